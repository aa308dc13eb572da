"""Finds the project: the folder whose Pulumi.yaml is Trainyard's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jobs.contracts.errors import LaunchError, Refused
from jobs.host import trust
from jobs.host.owners import owner_of, why_foreign

NAME = "trainyard"
_NAME_LINE = re.compile(rf"^name:\s*[\"']?{NAME}[\"']?\s*$".encode(), re.MULTILINE)
# Of a Pulumi.yaml, which somebody else may have written.
_MAX_BYTES = 1 << 16


def project_root() -> Path:
    """Find the project: the working folder or the nearest above it, else `launch`'s own clone.

    Raises Refused where that is another user's or others can write to it, LaunchError where there
    is none, as for a practitioner who has `launch` only.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if is_project(folder):
            _refuse_foreign(folder)
            return folder
    if is_project(trust.INSTALLED):
        return trust.INSTALLED
    message = f"no {NAME} project in {Path.cwd()} or above"
    raise LaunchError(
        message, hint="use an environment file: `--env FILE` (`launch env export` writes one)"
    )


def sources_folder() -> Path:
    """Find `trainer` and `images`: in the project, else where `launch` is installed."""
    try:
        return project_root()
    except Refused:
        raise
    except LaunchError:
        if not (trust.INSTALLED / "trainer").is_dir():
            raise
        return trust.INSTALLED


def require_trusted(root: Path) -> None:
    """Refuse to start programs of a project that is not this `launch`'s own and that nobody named."""
    if trust.is_trusted(root):
        return
    message = (
        f"the project in {root} (of {owner_of(root)}) is not the project of this `launch`: "
        "no program of it is started"
    )
    hint = f"{_trust_command(root)}, if you trust its author; or use its own `launch`"
    raise Refused(message, hint=hint)


def trust_project(folder: Path) -> tuple[Path, Path]:
    """Trust a project from now on; gives its folder and the file that lists it.

    Raises LaunchError where there is no project, EnvironmentFailure where the list is not written.
    """
    root = folder.expanduser().resolve()
    if not is_project(root):
        message = f"no {NAME} project in {root}"
        raise LaunchError(message, hint=f"name the folder that its {trust.PROJECT_FILE} lies in")
    return root, trust.trust(root)


def is_project(folder: Path) -> bool:
    """Tell whether the folder's Pulumi.yaml is Trainyard's."""
    file = folder / trust.PROJECT_FILE
    try:
        if not file.is_file():  # a pipe would be waited for
            return False
        with file.open("rb") as opened:
            return _NAME_LINE.search(opened.read(_MAX_BYTES)) is not None
    except OSError:
        return False


def _refuse_foreign(root: Path) -> None:
    if trust.is_trusted(root):
        return
    if reason := why_foreign(root, root / trust.PROJECT_FILE):
        message = f"the project in {root} is not trusted: {reason}"
        hint = f"{_trust_command(root)}, if you trust every user who can write there; or work elsewhere"
        raise Refused(message, hint=hint)


def _trust_command(root: Path) -> str:
    return f"launch env trust {shlex.quote(str(root))}"
