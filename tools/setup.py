"""Brings a fresh clone to where `pulumi` and `launch` work: `python3 -m tools.setup`.

`python3 -m tools.setup environment` stops at the Python packages, which is all that checks need.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError
from jobs.host.private import close_folder
from jobs.images.runtimes import OF_SET_UP, build_runtime
from tools.install_azurite import Azurite, ensure_azurite
from tools.install_pulumi import ensure_pulumi
from tools.install_uv import ensure_uv, require_python, sync_environment
from tools.local_stack import ensure_local_stack, write_wrapper
from tools.phases import Phases
from tools.project import Project, this_project

UNWRITABLE = "XDG_CACHE_HOME names the folder for the cache; it and the clone must be writable"
HINTS = {
    errno.EACCES: UNWRITABLE,
    errno.EROFS: UNWRITABLE,
    errno.ENOSPC: "a whole set-up takes about 9 GB; XDG_CACHE_HOME may name another disk",
}
OTHER_HINT = "correct this and type the same again, it goes on"


def main() -> int:
    """Set this clone up; returns the exit code."""
    project = this_project(os.environ)
    only_environment = sys.argv[1:] == ["environment"]
    with Phases(sys.stdout, environ=os.environ) as phases:
        try:
            if only_environment:
                lay_environment(project, phases)
            else:
                set_up(project, phases)
        except (LaunchError, OSError) as error:
            phases.say(explain(error))
            return ExitCode.ENVIRONMENT
        except KeyboardInterrupt:
            phases.say("interrupted; typed again, it goes on from here")
            return ExitCode.INTERRUPTED
    return 0


def set_up(project: Project, phases: Phases) -> None:
    """Lay the environment, then what it needs side by side: compilers here, downloads there.

    Raises LaunchError where a part failed; says at once what the others' end would only hide.
    """
    with phases.phase("set-up, all of it"):
        close_folder(project.state)  # an older set-up let others in
        uv = lay_uv(project, phases)
        with ThreadPoolExecutor(max_workers=2) as pool:
            pulumi = pool.submit(ensure_pulumi, project, phases)
            rest = pool.submit(lay_runtimes, project, uv, phases)
            wait_for(pulumi, rest, phases=phases)
        wrapper = write_wrapper(project, pulumi.result())
        write_tools(project, rest.result(), pulumi.result())
        ensure_local_stack(project, wrapper, phases)


def lay_environment(project: Project, phases: Phases) -> None:
    """Lay the Python packages of uv.lock."""
    sync_environment(project, lay_uv(project, phases), phases)


def lay_uv(project: Project, phases: Phases) -> Path:
    require_python(sys.version_info[:2])
    uv = ensure_uv(project, phases)
    os.environ["UV"] = str(uv)  # jobs.images.runtimes looks there first
    return uv


def lay_runtimes(project: Project, uv: Path, phases: Phases) -> Azurite:
    """Install the packages, then Azurite and the images' runtimes, which need them."""
    sync_environment(project, uv, phases)
    azurite = ensure_azurite(project, phases)
    for image in OF_SET_UP:
        build_runtime(image, project.root, report=phases.phase)
    return azurite


def wait_for(*parts: Future[Path] | Future[Azurite], phases: Phases) -> None:
    """Wait for all parts; explain a failure when it happens, not when the last part ends."""
    failed = False
    for part in as_completed(parts):
        error = part.exception()
        if isinstance(error, (LaunchError, OSError)):
            phases.say(explain(error))
            failed = True
        elif error is not None:
            raise error
    if failed:
        message = "set-up is not complete"
        raise EnvironmentFailure(message, hint="mend what failed, then try again")


def write_tools(project: Project, azurite: Azurite, pulumi: Path) -> None:
    """Write the paths of the tools for the local stack, which does not import this package."""
    tools = {
        "node": str(azurite.node),
        "azurite": str(azurite.azurite),
        "pulumi": str(pulumi / "pulumi"),
    }
    target = project.state / "tools.json"
    partial = target.with_name("tools.json.partial")
    partial.write_text(json.dumps(tools, indent=2) + "\n", encoding="utf-8")
    partial.replace(target)


def explain(error: LaunchError | OSError) -> str:
    """Write an error's message with its hint."""
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}\nhint: {HINTS.get(error.errno or 0, OTHER_HINT)}"
    return f"{error.message}\nhint: {error.hint}" if error.hint else error.message


if __name__ == "__main__":
    sys.exit(main())
