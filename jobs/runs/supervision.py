"""Tells whether a run has a supervisor, by the lock that it holds, and wakes it.

The lock is taken by `launch` before the run exists and handed on to the supervisor as an open
file, so there is no moment at which a run that exists and is alive is not locked. It is a
`flock`: the kernel lets go of it when the last process that holds the file is gone, however that
process ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

from msgspec import Struct

from jobs.contracts.spec import Environment
from jobs.host import private
from jobs.host.processes import read_words
from jobs.host.untrusted import read_small

LOCK_NAME = "supervisor.lock"
CANCEL_NAME = "cancel"


class ContainerProgram(Struct, frozen=True, kw_only=True):
    """The program that runs ranks in containers, and the variables that it needs for itself."""

    name: str
    path: str
    environ: dict[str, str]


class Handover(Struct, frozen=True, kw_only=True):
    """The message of `launch` to a supervisor, through memory that nobody else sees.

    `layer` is the interpreter of the job's requirements, over the runtime's; `pip` the folder of a pip.
    With `containers` the interpreter is a name in the image.
    """

    interpreter: str
    environment: Environment
    secrets: dict[str, str]
    layer: str | None = None
    pip: str | None = None
    containers: ContainerProgram | None = None


def take_lock(run_dir: Path) -> int:
    """Take the run's lock; gives the open file that holds it. For a run that is just made."""
    descriptor = private.open_lock(run_dir / LOCK_NAME)
    private.wait_for_lock(descriptor)
    return descriptor


def try_lock(run_dir: Path) -> int | None:
    """Take the lock of a run that may be somebody's; None where it is, or where no folder is."""
    try:
        descriptor = private.open_lock(run_dir / LOCK_NAME)
    except OSError:
        return None
    if private.try_lock(descriptor, without_locks=False):
        return descriptor
    os.close(descriptor)
    return None


def is_supervised(run_dir: Path) -> bool:
    """Tell whether a supervisor or its watcher lives."""
    try:
        # Its program may have put a pipe there, which would wait for a writer.
        descriptor = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO, errno.ELOOP):
            raise
        return False
    try:
        # Shared, so that two who look at once do not take each other for a supervisor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def announce(lock: int) -> None:
    """Write this process's id into the lock file, for `poke`."""
    os.pwrite(lock, b"%-20d\n" % os.getpid(), 0)


def ask_to_cancel(run_dir: Path) -> None:
    """Record the cancellation on disk, then wake the supervisor if it is running.

    In this order nothing is missed: a supervisor says who it is before it looks for the wish.
    """
    (run_dir / CANCEL_NAME).touch()
    poke(run_dir)


def is_cancel_asked(run_dir: Path) -> bool:
    """Tell whether the run's cancellation was asked for."""
    return os.path.lexists(run_dir / CANCEL_NAME)


def poke(run_dir: Path) -> None:
    """Wake the run's supervisor so that it looks at its queue and at cancellation again."""
    try:
        pid = int(read_small(run_dir / LOCK_NAME, 100) or b"0")
        if pid <= 1:
            return
        # A handle first, then the look at who it is: the id cannot change hands in between.
        handle = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        if os.fsencode(run_dir) in read_words(pid):
            signal.pidfd_send_signal(handle, signal.SIGUSR1)
    except OSError:
        pass
    finally:
        os.close(handle)
