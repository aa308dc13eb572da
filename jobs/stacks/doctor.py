"""Check the local stack's and its runs' needs on this machine; give the command that meets each.

Starts nothing but `--version` calls, and changes nothing but the mode of our folders that others
could enter. What set-up builds once (Pulumi, the
runtimes) makes its own builders needless: no compiler is asked for where Horovod is built.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from jobs.contracts.errors import EnvironmentFailure, LaunchError, hint_for_file
from jobs.contracts.spec import Environment
from jobs.host.private import close_folder
from jobs.host.trust import is_trusted
from jobs.stacks.checks import Check, Health

OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 13)
# A runtime's packages take 6 GB, Pulumi's build 2 GB; a run writes megabytes.
SPACE_TO_BUILD_GB = 12
SPACE_TO_RUN_GB = 1
VERSION_TIMEOUT_S = 20
INSTALLERS = {
    "apt-get": "apt-get install -y {}",
    "dnf": "dnf install -y {}",
    "apk": "apk add {}",
    "brew": "brew install {}",
}
PACKAGES = {
    "make": {"brew": "make"},
    "c++": {"apt-get": "g++", "dnf": "gcc-c++", "apk": "g++", "brew": "gcc"},
    "go": {"apt-get": "golang-go", "dnf": "golang"},
}


@dataclass(frozen=True, kw_only=True)
class Project:
    """The checked clone and the parts that set-up installed."""

    root: Path
    tools: dict[str, Any]

    @classmethod
    def at(cls, root: Path) -> Project:
        """Read the record of set-up; empty if it was not run."""
        try:
            tools = json.loads((root / ".trainyard" / "tools.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            tools = {}
        known = isinstance(tools, dict)
        return cls(root=root, tools=cast("dict[str, Any]", tools) if known else {})


def diagnose(stack: str, env_file: Path | None) -> Iterator[Check]:
    """Check everything, yielding each result as it is made."""
    yield check_python(sys.version_info[:2])
    if env_file is None:
        try:
            project = _find_project()
        except LaunchError as error:
            yield _missing("project", error.message, error.hint)
            return
        yield from check_set_up(project)
        yield from check_folders(project, stack)
    for check in check_environment_of(stack, env_file):
        if env_file is not None and check.mend is not None:
            yield structs.replace(check, mend=hint_for_file(check.mend, env_file))
        else:
            yield check


def check_python(version: tuple[int, int]) -> Check:
    """Check the Python that runs `launch` and lays the runtimes."""
    found = ".".join(map(str, version))
    if OLDEST_PYTHON <= version < FIRST_UNTRIED_PYTHON:
        return _ok("python", found)
    return _missing("python", f"{found}; 3.11 or 3.12 is needed", "make setup PYTHON=python3.12")


def check_set_up(project: Project) -> Iterator[Check]:
    """Check the tools that `make setup` finds, and what it builds with them."""
    yield _program("make", "make", needed=True)
    yield _uv(project)
    pulumi = check_pulumi(project)
    yield pulumi
    if pulumi.health is not Health.OK:
        yield _program("go (builds Pulumi if its release cannot be downloaded)", "go")
    yield check_azurite(project)
    runtimes = list(check_runtimes(project))
    yield from runtimes
    all_built = all(each.health is not Health.MISSING for each in runtimes)
    if not all_built:
        yield _compiler()
    yield check_containers()
    yield check_space(project, SPACE_TO_RUN_GB if all_built else SPACE_TO_BUILD_GB)


def check_pulumi(project: Project) -> Check:
    """Check the wrapper that set-up wrote, and the Pulumi behind it."""
    wrapper = Path(sys.prefix) / "bin" / "pulumi"
    if not wrapper.exists():
        found = shutil.which("pulumi")
        where = f"only {found}, without this project's state" if found else "not set up"
        return _missing("pulumi", where, f"make -C {project.root} setup")
    version = _version([str(wrapper), "version"])
    if version is None:
        return _missing("pulumi", f"{wrapper} does not run", f"make -C {project.root} setup")
    return _ok("pulumi", version)


def check_azurite(project: Project) -> Check:
    """Check the local store's program and the Node that it runs on."""
    for tool in ("node", "azurite"):
        path = project.tools.get(tool)
        if not isinstance(path, str) or not Path(path).is_file():
            found = f"{path} is gone" if path else f"no {tool} set up"
            return _missing("azurite", found, f"make -C {project.root} setup")
    return _ok("azurite", str(Path(project.tools["azurite"])))


def check_runtimes(project: Project) -> Iterator[Check]:
    """Check every image of the project, and whether GPUs fit them; those of set-up have to be here."""
    from jobs.images import runtimes as images
    from jobs.stacks.doctor_gpus import check_gpus

    installed: dict[str, Path] = {}
    for name in images.list_images(project.root):
        try:
            root = images.runtime_root(name, project.root)
        except LaunchError as error:
            found = error.message
            yield Check(part=f"image {name}", health=Health.NOTE, found=found, mend=error.hint)
            continue
        if images.is_finished(root):
            yield _ok(f"image {name}", str(root))
            installed[name] = root
            continue
        health = Health.MISSING if name in images.OF_SET_UP else Health.NOTE
        mend = f"launch image install {name}"
        yield Check(part=f"image {name}", health=health, found="not installed here", mend=mend)
    yield from check_gpus(installed)


def check_containers() -> Check:
    """Check for an engine that runs a registry's image; only jobs with one need it."""
    from jobs.images.engines import find_runner

    part = "podman or docker (runs images of registries)"
    try:
        engine = find_runner()
        engine.require_running()
    except EnvironmentFailure as error:
        return Check(part=part, health=Health.NOTE, found=error.message, mend=error.hint)
    return _ok(part, str(engine.program))


def check_folders(project: Project, stack: str) -> Iterator[Check]:
    """Close folders that older versions left open: logs, data, runs and Pulumi's state."""
    folders = [project.root / ".trainyard"]
    # What another's project names may be any folder of ours.
    if is_trusted(project.root):
        folders += _folders_of(stack)
    closed = [str(folder) for folder in folders if close_folder(folder)]
    if closed:
        found = f"other users could enter {', '.join(closed)}: closed to them now"
        yield Check(part="folders", health=Health.NOTE, found=found)
    elif folders[0].is_dir():
        yield _ok("folders", "closed to others")


def check_space(project: Project, wanted_gb: int) -> Check:
    """Check the free space of the project's disk and of the cache's."""
    from jobs.host.cache import cache_root

    places = [project.root, _nearest(cache_root(os.environ))]
    free_gb, place = min((shutil.disk_usage(each).free / 1e9, each) for each in places)
    found = f"{free_gb:.0f} GB free in {place}"
    if free_gb >= wanted_gb:
        return _ok("disk", found)
    return _missing("disk", f"{found}; {wanted_gb} GB are needed", f"du -xh -d 2 {place} | sort -h")


def check_environment_of(stack: str, env_file: Path | None) -> Iterator[Check]:
    """Check that the stack is up and its parts answer."""
    from jobs.stacks.read import load_environment

    try:
        environment = load_environment(stack, env_file)
    except LaunchError as error:
        part = f"stack {stack}" if env_file is None else str(env_file)
        yield _missing(part, error.message, error.hint)
        if env_file is None:
            yield from _port_of(stack)
        return
    yield _ok(f"stack {environment.stack}", f"up, engine {environment.engine}")
    yield from check_parts(environment)


def check_parts(environment: Environment) -> Iterator[Check]:
    """Check store, workspace and clusters as `launch env check` does."""
    from jobs.stacks.reachability import check_environment

    for each in check_environment(environment):
        if each.ok:
            yield _ok(each.part, each.detail)
        elif each.part == "storage" and environment.storage.folder is not None:
            # The next launch that needs Azurite starts it again.
            yield Check(part=each.part, health=Health.NOTE, found=each.detail)
        else:
            yield _missing(each.part, each.detail, f"launch env check -s {environment.stack}")
    if environment.workspace.is_folder and not sys.platform.startswith("linux"):
        yield _missing("system", f"{sys.platform}; runs on this machine need Linux", None)


def _folders_of(stack: str) -> list[Path]:
    """Find the folders of a stack's data and runs on this machine, as far as known."""
    from jobs.host.environment_file import known_environment
    from jobs.runs import cloud_folder as folders
    from jobs.runs.store import workspace_folder

    try:
        known = known_environment(stack)
        if known is None or not known.workspace.is_folder:
            return [] if known is None else [folders.workspace_folder(known)]
        workspace = workspace_folder(known)
    except LaunchError:  # told where the stack is looked at
        return []
    return [workspace, *([Path(known.storage.folder)] if known.storage.folder else [])]


def _find_project() -> Project:
    from jobs.host.project import project_root

    return Project.at(project_root())


def _uv(project: Project) -> Check:
    from jobs.images.runtimes import find_uv

    try:
        return _ok("uv", str(find_uv(project.root)))
    except LaunchError as error:
        return _missing("uv", error.message, f"make -C {project.root} setup")


def _compiler() -> Check:
    if shutil.which("c++") or shutil.which("g++"):
        return _ok("c++ compiler", str(shutil.which("c++") or shutil.which("g++")))
    return _missing("c++ compiler", "none; Horovod has to be compiled", _install("c++"))


def _program(part: str, name: str, *, needed: bool = False) -> Check:
    path = shutil.which(name)
    if path is not None:
        return _ok(part, path)
    health = Health.MISSING if needed else Health.NOTE
    return Check(part=part, health=health, found="not on PATH", mend=_install(name))


def _port_of(stack: str) -> Iterator[Check]:
    """Check that the port of a local store that is down is free."""
    from jobs.host.project import project_root

    port = _configured_port(project_root() / f"Pulumi.{stack}.yaml")
    if port is None:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            mend = f"set trainyard:storage.port in Pulumi.{stack}.yaml to a free one"
            yield _missing(f"port {port}", f"{error.strerror}; the store needs it", mend)
        else:
            yield _ok(f"port {port}", "free")


def _configured_port(settings: Path) -> int | None:
    from jobs.jobfile.yaml_tree import parse_yaml

    try:
        node = parse_yaml(settings.read_text(encoding="utf-8"), settings.name)
    except (OSError, UnicodeDecodeError, LaunchError):
        return None
    for key in ("config", "trainyard:storage", "port"):
        if not isinstance(node.value, dict) or key not in node.value:
            return None
        node = node.value[key].node
    port = node.value
    return port if isinstance(port, int) and 0 < port < 1 << 16 else None


def _version(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else None


def _install(program: str) -> str:
    which: Callable[[str], str | None] = shutil.which
    installer = next((each for each in INSTALLERS if which(each)), "apt-get")
    return INSTALLERS[installer].format(PACKAGES[program].get(installer, program))


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _ok(part: str, found: str) -> Check:
    return Check(part=part, health=Health.OK, found=found)


def _missing(part: str, found: str, mend: str | None) -> Check:
    return Check(part=part, health=Health.MISSING, found=found, mend=mend)
