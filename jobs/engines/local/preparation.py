"""Prepares a gang's start: rank.pyz before the run waits, then its folders, its inputs and RANK.json."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import Environment, JobSpec
from jobs.engines.local.launchers import GangRequest, share_cpus, share_gpus
from jobs.engines.local.watcher import end_with_parent
from jobs.host.files import reserve_ending
from jobs.host.gpus import count_gpus, visible_gpus
from jobs.host.structs import prepared
from jobs.rank.placeholders import has_placeholder
from jobs.rank.program import PROGRAM_FILE, rank_program
from jobs.rank.world import RankJob
from jobs.runs.signatures import forget_signatures_of_the_dead
from jobs.runs.supervision import Handover

FOLDERS = ("logs", "ranks", "nodes", "checkpoints", "outputs")


class _Answer(Struct, frozen=True, kw_only=True):
    """The answer of the child that fetches inputs: folders by input, or an error."""

    folders: dict[str, str] = {}
    error: str | None = None
    hint: str | None = None


def keep_programs(run_dir: Path, spec: JobSpec) -> None:
    """Pack what starts the ranks, and load what the job needs later; raises OSError.

    Before the run waits for nodes: from then on a `git pull` may change our sources.
    """
    reserve_ending(run_dir)
    (run_dir / PROGRAM_FILE).write_bytes(rank_program())
    # Only jobs with inputs pay for the store's client, only Horovod's for its server.
    if spec.inputs:
        import_module("jobs.engines.local.inputs")
    if spec.launcher == "horovod":
        import_module("jobs.engines.local.horovod_store")


def prepare(
    run_dir: Path,
    spec: JobSpec,
    request: GangRequest,
    *,
    handover: Handover,
    nodes: tuple[int, ...],
    wait: Callable[..., None],
) -> None:
    """Make everything else that the ranks need; raises LaunchError or OSError.

    `wait(timeout, fd)` sleeps until the descriptor is readable; it may raise to end the run.
    """
    forget_signatures_of_the_dead(run_dir.parent.parent)
    for name in FOLDERS:
        (run_dir / name).mkdir(exist_ok=True)
    for name in spec.outputs:
        (run_dir / "outputs" / name).mkdir(exist_ok=True)
    folders = _fetch_inputs(spec, handover.environment, run_dir, wait) if spec.inputs else {}
    is_inside = request.container is not None
    job = RankJob(
        run_dir=str(run_dir),
        command=request.command,
        setup=request.setup,
        # In a container the node makes the layer; its Python is the one that started the rank.
        interpreter=None if is_inside else handover.layer or handover.interpreter,
        requirements=(spec.requirements or None) if is_inside else None,
        path=[str(Path(handover.interpreter).parent)] if handover.layer else (),
        pip=handover.pip,
        processes_per_node=request.processes_per_node,
        inputs={name: _place(folders[name], each.file) for name, each in spec.inputs.items()},
        streams=tuple(name for name, each in spec.inputs.items() if each.mode == "stream"),
        outputs=spec.outputs,
        secrets=tuple(spec.secrets),
        cpus=share_cpus(
            sorted(os.sched_getaffinity(0)),
            cpus_per_node=request.cpus_per_node,
            nodes=nodes,
            processes_per_node=request.processes_per_node,
            num_servers=spec.parameter_servers,
        ),
        gpus=share_gpus(
            visible_gpus(os.environ, count_gpus()),
            nodes=nodes,
            capacity_nodes=request.capacity_nodes,
        ),
        # The parent in a container is the engine's monitor, which may go first.
        die_with_parent=not is_inside,
        supervisor=None if is_inside or request.launcher == "mpi" else os.getpid(),
        leave_together=request.launcher == "mpi",
        run=run_dir.name,
        filled=tuple(name for name, value in spec.env.items() if has_placeholder(value)),
    )
    (run_dir / "rank.json").write_bytes(msgspec.json.encode(job._asdict()))


def _place(folder: str, file: str | None) -> str:
    """Give what an input stands for: its folder, or one file in it."""
    return folder if file is None else f"{folder}/{file}"


def _fetch_inputs(
    spec: JobSpec, environment: Environment, run_dir: Path, wait: Callable[..., None]
) -> dict[str, str]:
    """Download the inputs in a child, which can be killed at any moment when the run is ended."""
    answer, inlet = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(answer)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        # It holds the run's lock as well: without its parent the run must count as lost.
        end_with_parent(parent)
        _answer_with_inputs(spec, environment, run_dir, inlet)
    os.close(inlet)
    received = b""
    try:
        while chunk := _read_when_ready(answer, wait):
            received += chunk
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(answer)
        os.waitpid(child, 0)
    if not received:
        message = "the download of the inputs was killed"
        raise EnvironmentFailure(message, hint="see supervisor.log in the run's folder")
    told = msgspec.json.decode(received, type=prepared(_Answer))
    if told.error is not None:
        raise EnvironmentFailure(told.error, hint=told.hint)
    return told.folders


def _read_when_ready(fd: int, wait: Callable[..., None]) -> bytes:
    os.set_blocking(fd, False)
    while True:
        try:
            return os.read(fd, 1 << 16)
        except BlockingIOError:
            wait(None, fd)


def _answer_with_inputs(spec: JobSpec, environment: Environment, run_dir: Path, inlet: int) -> None:
    """Fetch inputs in the child, and answer with their folders. Does not return."""
    try:
        from jobs.engines.local.inputs import give_inputs

        try:
            answer = _Answer(folders=give_inputs(spec, environment, run_dir))
        except LaunchError as error:
            answer = _Answer(error=error.message, hint=error.hint)
        except Exception as error:  # noqa: BLE001 (the process's edge: the supervisor must hear)
            sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
            answer = _Answer(
                error=f"cannot fetch the inputs: {type(error).__name__}: {error}",
                hint="see supervisor.log in the run's folder",
            )
        os.write(inlet, msgspec.json.encode(answer))
    except BaseException:  # noqa: BLE001 (a forked child must never come back into its parent)
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    finally:
        os._exit(0)
