"""Runs ranks in containers of podman or docker: one container a rank, on the host's network.

Ranks share the host's process ids, so that their records, signs of life and ends are read as those of
plain processes. Their environment travels through standard input: neither argv nor the engine's own
files hold a secret.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import JobSpec, Launcher
from jobs.engines.local.devices import HIDDEN
from jobs.host.gpus import VISIBLE, count_gpus
from jobs.host.processes import MARK
from jobs.images.engines import find_runner
from jobs.images.references import is_reference
from jobs.runs import supervision
from jobs.runs.supervision import ContainerProgram

PYTHON = "python3"
LAUNCHERS: tuple[Launcher, ...] = ("none", "torch", "horovod")
# What decides which daemon, storage and login the engine uses; ranks do not see it.
ENGINE_VARIABLES = (
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"),
    *("REGISTRY_AUTH_FILE", "STORAGE_DRIVER"),
)
# What ranks see of the shell that launched them. PATH, HOME and libraries are the image's.
INHERITED = frozenset(
    {
        *("USER", "LOGNAME", "TZ", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    }
)
_OF_RUN = "trainyard.run"
_OF_USER = "trainyard.user"
_REMOVAL_TIMEOUT_S = 60.0
# The container's first program: it takes its environment from stdin and becomes its arguments.
_TAKE_ENVIRONMENT = (
    "import json, os, sys; os.environ.update(json.load(sys.stdin)); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
# Beside a container's rank: it takes that one's folder and environment, and becomes its arguments.
_BESIDE = (
    "import os, sys; os.chdir(f'/proc/{sys.argv[1]}/cwd'); os.nice(19); "
    "told = open(f'/proc/{sys.argv[1]}/environ', 'rb').read().split(b'\\0'); "
    "environ = dict(each.split(b'=', 1) for each in told if b'=' in each); "
    f"environ.pop(b'{MARK}', None); "
    "os.execvpe(sys.argv[2], sys.argv[2:], environ)"
)
_TRIAL = "import sys; sys.exit(0 if sys.version_info >= (3, 9) else 'Python ' + sys.version)"


class ContainerRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container that each rank of a gang runs in."""

    image: str
    shm_size: str | None


def container_request(spec: JobSpec) -> ContainerRequest | None:
    """Decide what container a job's ranks run in; None for an image of the project.

    Raises LaunchError for a launcher that containers of this machine cannot have.
    """
    if not is_reference(spec.image):
        return None
    if spec.launcher not in LAUNCHERS:
        known = ", ".join(f"`{each}`" for each in LAUNCHERS)
        message = f"the local stack cannot run `launcher: {spec.launcher}` in a registry's image"
        hint = f"the launchers {known} can; or use a folder of images/: launch image ls"
        raise LaunchError(message, hint=hint)
    return ContainerRequest(image=spec.image, shm_size=spec.shm_size)


def notes_on_containers(launcher: Launcher) -> list[str]:
    """Tell which engine runs the ranks, and who reaches their ports; nothing without an engine."""
    try:
        name = find_runner().name
    except EnvironmentFailure:  # the check of what `launch run` needs says it
        return []
    notes = [f"each rank runs in a container of {name}, on this machine's network"]
    if launcher != "none":
        notes.append("other users of this machine can connect to the ranks' ports")
    return notes


def run_argv(
    program: ContainerProgram,
    request: ContainerRequest,
    argv: Sequence[str],
    *,
    name: str,
    run_dir: Path,
    mounts: Mapping[Path, str],
    user: tuple[int, int],
    num_gpus: int,
) -> list[str]:
    """Give the command that runs `argv` in a container; it ends with the exit code of `argv`.

    `mounts` maps folders and files to `ro` or `rw`; each has the same path inside.
    """
    words = [program.path, "run", "--rm", "--interactive", f"--name={name}", "--pull=never"]
    # No layer of the network between ranks, and loopback stays this machine's alone.
    words += ["--network=host", "--pid=host", "--security-opt=label=disable"]
    words += [f"--label={_OF_RUN}={run_dir}", f"--label={_OF_USER}={user[0]}"]
    if program.name == "podman" and user[0]:
        words += ["--userns=keep-id"]
    words += [f"--user={user[0]}:{user[1]}", f"--env={MARK}={run_dir}"]
    words += ["--ipc=host"] if request.shm_size is None else [f"--shm-size={request.shm_size}"]
    words += gpu_options(program.name, num_gpus)
    words += [f"--volume={path}:{path}:{mode}" for path, mode in mounts.items()]
    words += [f"--workdir={run_dir}", f"--entrypoint={PYTHON}", request.image]
    return [*words, "-I", "-S", "-c", _TAKE_ENVIRONMENT, *argv]


def gpu_options(program: str, num_gpus: int) -> list[str]:
    """Give the options that show all GPUs to a container: podman knows them by CDI."""
    if not num_gpus:
        return []
    return ["--device=nvidia.com/gpu=all"] if program == "podman" else ["--gpus=all"]


def _num_gpus(environ: Mapping[str, str]) -> int:
    """Count the GPUs of a container whose ranks have `environ`: all, or none where they are hidden."""
    return 0 if environ.get(VISIBLE) in HIDDEN else count_gpus()


def exec_argv(
    program: ContainerProgram, run_dir: Path, rank: int, pid: int, words: Sequence[str]
) -> list[str]:
    """Give the command that runs `words` in a rank's container, as the rank's command `pid` is run."""
    options = ["--interactive", *(["--tty"] if os.isatty(0) and os.isatty(1) else [])]
    name = _name(run_dir, str(rank))
    command = [program.path, "exec", *options, name, PYTHON, "-I", "-S", "-c", _BESIDE]
    return [*command, str(pid), *words]


def rank_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the part of the supervisor's environment that ranks in containers get."""
    # The user may be unknown to the image, and then has no home in it.
    return {"HOME": "/tmp", **{k: v for k, v in environ.items() if k in INHERITED}}  # noqa: S108


class Containers:
    """The containers of one gang, from their start to their removal."""

    def __init__(self, run_dir: Path, request: ContainerRequest, program: ContainerProgram) -> None:
        self._run_dir = run_dir
        self._request = request
        self._program = program
        self._names: list[str] = []

    def start(
        self,
        label: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        files: Sequence[Path] = (),
    ) -> int:
        """Start a container; gives the process that lives as long as it, and passes signals on.

        `files` are readable inside.
        """
        name = _name(self._run_dir, label)
        self._names.append(name)
        command = run_argv(
            self._program,
            self._request,
            argv,
            name=name,
            run_dir=self._run_dir,
            mounts={**self._folders(), **dict.fromkeys(files, "ro")},
            user=(os.getuid(), os.getgid()),
            num_gpus=_num_gpus(environment),
        )
        told = os.memfd_create("environment", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(told), "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(dict(environment), file)
            os.lseek(told, 0, os.SEEK_SET)
            actions = [(os.POSIX_SPAWN_DUP2, told, 0)]
            environ = self._environ()
            return os.posix_spawn(command[0], command, environ, file_actions=actions, setsid=True)
        finally:
            os.close(told)

    def remove(self) -> None:
        """Remove what is left of the containers; silent where nothing is."""
        if self._names:
            _remove(self._program, self._names)
            self._names = []

    def _folders(self) -> dict[Path, str]:
        workspace = self._run_dir.parent.parent
        found = {workspace / "inputs": "ro", workspace / "cache": "rw"}
        return {
            **{path: mode for path, mode in found.items() if path.is_dir()},
            self._run_dir: "rw",
        }

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self._program.environ}


def _name(run_dir: Path, label: str) -> str:
    return f"trainyard-{run_dir.name}-{label}"


def find_program(environ: Mapping[str, str]) -> ContainerProgram:
    """Find podman or docker, and what they need of the caller's environment.

    Raises EnvironmentFailure where there is neither.
    """
    engine = find_runner()
    kept = {name: environ[name] for name in ENGINE_VARIABLES if name in environ}
    return ContainerProgram(name=engine.name, path=str(engine.program), environ=kept)


def make_ready(image: str, environ: Mapping[str, str]) -> None:
    """Fetch an image unless it is here, and see that it can run ranks that have `environ`.

    Raises EnvironmentFailure with the engine's own words.
    """
    from jobs.host.progress import step

    engine = find_runner()
    engine.require_running()
    if not engine.has(image):
        with step(f"{image}: fetched by {engine.name}"):
            engine.pull(image)
    options = gpu_options(engine.name, _num_gpus(environ))
    needs = f"{PYTHON} of 3.9 or newer"
    if options:
        set_up = "cdi generate" if engine.name == "podman" else "runtime configure"
        needs += f", and for GPUs NVIDIA's container toolkit (sudo nvidia-ctk {set_up})"
        needs += f"; {VISIBLE}=-1 hides the GPUs"
    command = [PYTHON, "-I", "-S", "-c", _TRIAL]
    engine.try_program(image, command, options=options, needs=needs)


def image_id(image: str) -> str | None:
    """Give the id of an image that is here; None for one that is not, or without an engine."""
    try:
        return find_runner().image_id(image)
    except EnvironmentFailure:
        return None


def remove_orphans(program: ContainerProgram) -> None:
    """Remove containers of this user's runs that nobody looks after any more."""
    label = f'{{{{.Label "{_OF_RUN}"}}}}'
    command = [program.path, "ps", "--all", f"--filter=label={_OF_USER}={os.getuid()}"]
    answer = _ask([*command, f"--format={{{{.Names}}}}\t{label}"], program)
    orphans: list[str] = []
    for line in answer.splitlines():
        name, _, run_dir = line.partition("\t")
        try:
            is_left = bool(run_dir) and not supervision.is_supervised(Path(run_dir))
        except OSError:  # somebody else's
            continue
        if is_left and not name.startswith("-"):
            orphans.append(name)
    if orphans:
        _remove(program, orphans)


def _remove(program: ContainerProgram, names: Sequence[str]) -> None:
    options = ["--force", *(["--time=0", "--ignore"] if program.name == "podman" else [])]
    _ask([program.path, "rm", *options, *names], program)


def _ask(command: Sequence[str], program: ContainerProgram) -> str:
    """Give what a command prints; nothing where it fails, as for a container that is gone."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **program.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVAL_TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
