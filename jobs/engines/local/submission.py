"""Puts a run on disk and starts its supervisor, so that an acknowledged run is never lost.

The order is what makes it safe: the lock, the code, the place in the queue, the record, and only
then the process. Whoever dies in between leaves either nothing that counts as a run, which the next
submit removes, or a run that is shown as lost, because nobody holds its lock.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import Plan, RunHandle
from jobs.engines.local.launchers import read_request
from jobs.engines.local.queue import Slots
from jobs.host.cache import cache_root
from jobs.runs import supervision
from jobs.runs.checkpoints import hand_on_checkpoints
from jobs.runs.code import snapshot
from jobs.runs.record import make_record
from jobs.runs.store import RunStore
from jobs.runs.supervision import Handover

# What a rank may see of the shell that launched it. Everything else comes from the job file, so
# that a job that runs here runs on a cluster, and no stray credential reaches someone's script.
INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
        "XDG_CACHE_HOME",
    }
)
_LOCK_FD = 3


def submit_run(
    store: RunStore, plan: Plan, handover: Handover, *, image_digest: str | None
) -> RunHandle:
    """Make the run, start its supervisor; raises EnvironmentFailure and leaves nothing behind."""
    _remove_abandoned(store)
    handle, lock = _claim(store)
    run_dir = Path(handle.run_dir)
    slots = Slots(store.workspace, read_request(plan).compute)
    try:
        try:
            _copy_code(plan, run_dir, exclude=store.workspace)
            if plan.spec.resume is not None:
                hand_on_checkpoints(store.runs / plan.spec.resume.run, run_dir)
            record = make_record(
                run_dir,
                plan,
                handover.environment,
                image_digest=image_digest,
            )
            slots.enqueue(run_dir, plan.spec.nodes, plan.spec.priority)
            store.commit(record)
            _start_supervisor(run_dir, lock, handover)
        finally:
            os.close(lock)
    except BaseException as error:
        if supervision.is_supervised(run_dir):
            # Interrupted after the start: its folder is the supervisor's now.
            supervision.ask_to_cancel(run_dir)
            raise
        shutil.rmtree(run_dir, ignore_errors=True)
        slots.release(run_dir)
        if not isinstance(error, OSError):
            raise
        raise _cannot_make(run_dir, error) from error
    return handle


def _cannot_make(run_dir: Path, error: OSError) -> EnvironmentFailure:
    message = f"cannot make a run in `{run_dir.parent}`: {error.strerror or error}"
    return EnvironmentFailure(message, hint="free some space, or correct the folder's permissions")


def _claim(store: RunStore) -> tuple[RunHandle, int]:
    """Take an id, and the lock in its folder, which `_remove_abandoned` of another may have met."""
    while True:
        handle = store.claim()
        run_dir = Path(handle.run_dir)
        try:
            lock = supervision.take_lock(run_dir)
        except FileNotFoundError:
            continue
        except OSError as error:
            shutil.rmtree(run_dir, ignore_errors=True)
            raise _cannot_make(run_dir, error) from error
        if os.fstat(lock).st_nlink:
            return handle, lock
        os.close(lock)


def _remove_abandoned(store: RunStore) -> None:
    """Remove copies of a `launch` that was killed before its run existed."""
    try:
        names = [each for each in store.names() if store.is_unfinished(each)]
    except LaunchError:  # to make a run will say it
        return
    for name in names:
        lock = supervision.try_lock(store.runs / name)
        if lock is None:
            continue
        try:
            if store.is_unfinished(name):  # still, now that nobody else has it
                shutil.rmtree(store.runs / name, ignore_errors=True)
        finally:
            os.close(lock)


def inherited_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the part of the shell's environment that supervisor and ranks inherit."""
    return {
        # torch keeps code that it compiled, and loads, in a folder of /tmp that anybody may make.
        "TORCHINDUCTOR_CACHE_DIR": str(cache_root(environ) / "torchinductor"),
        **{k: v for k, v in environ.items() if k in INHERITED or k.startswith("LC_")},
    }


def _copy_code(plan: Plan, run_dir: Path, *, exclude: Path) -> None:
    code = run_dir / "code"
    if plan.spec.code is None:
        code.mkdir()
    else:
        kept_off = (exclude, *plan.spec.pushed_paths)
        snapshot(Path(plan.spec.code), code, only=plan.spec.code_only, exclude=kept_off)


def _start_supervisor(run_dir: Path, lock: int, handover: Handover) -> None:
    """Start the process that holds the lock from now on, in a session of its own."""
    # In memory, whole before the start: no secret on disk, no supervisor with half of it.
    told = os.memfd_create("handover", os.MFD_CLOEXEC)
    log = os.open(run_dir / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        with os.fdopen(os.dup(told), "wb") as file:
            file.write(msgspec.json.encode(handover))
        os.lseek(told, 0, os.SEEK_SET)
        root = str(Path(__file__).parents[3])
        # -P: a folder `jobs` where `launch` was typed must not stand in for ours.
        argv = [
            sys.executable,
            "-P",
            "-m",
            "jobs.engines.local.supervisor",
            str(run_dir),
            str(_LOCK_FD),
        ]
        environ = {**inherited_environment(os.environ), "PYTHONPATH": root}
        actions: Iterable[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, told, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            (os.POSIX_SPAWN_DUP2, lock, _LOCK_FD),
        ]
        os.posix_spawn(sys.executable, argv, environ, file_actions=actions, setsid=True)
    finally:
        os.close(log)
        os.close(told)
