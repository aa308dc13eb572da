"""Read the locks of Pulumi's folder backend; tell whether their owners are alive."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jobs.contracts.errors import Refused
from jobs.host.console import duration_text
from jobs.host.structs import prepared

# The kernel counts a process's start in ticks since boot, the lock in wall time.
CLOCK_SLACK_S = 2.0


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    username: str
    hostname: str
    timestamp: datetime


class StackLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock file and its owner."""

    path: Path
    pid: int
    username: str
    hostname: str
    taken: datetime

    def age(self) -> str:
        """Write the time since it was taken."""
        return duration_text(max(0.0, (datetime.now(UTC) - self.taken).total_seconds()))

    def why_alive(self) -> str | None:
        """Give the reason why its owner may be at work; None when it is surely gone."""
        if self.hostname != socket.gethostname():
            return "it is another host"
        started_s = _started_s(self.pid)
        if started_s is None:
            return None
        if started_s > self.taken.timestamp() + CLOCK_SLACK_S and not _is_pulumi(self.pid):
            return None  # the pid was given to another process since
        return "the process is alive"


def read_locks(folder: Path) -> list[StackLock]:
    """Read all locks of a stack, oldest first. Raises Refused for one without an owner."""
    locks: list[StackLock] = []
    for path in folder.glob("*.json"):
        try:
            content = msgspec.json.decode(path.read_bytes(), type=prepared(_Content))
        except FileNotFoundError:
            continue  # its owner has just finished
        except msgspec.DecodeError as error:
            message = f"the lock {path} names no owner: {error}"
            raise Refused(message, hint="delete it if no pulumi runs") from error
        locks.append(
            StackLock(
                path=path,
                pid=content.pid,
                username=content.username,
                hostname=content.hostname,
                taken=content.timestamp,
            )
        )
    return sorted(locks, key=lambda lock: lock.taken)


def _started_s(pid: int) -> float | None:
    """Read when a living process started, in seconds since 1970; 0 where that is not known."""
    if not Path("/proc/self").exists():
        return _probe(pid)
    from jobs.host.processes import read_process

    process = read_process(pid)
    if process is None or process.state in "ZX":
        return None
    uptime_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return time.time() - uptime_s + process.start / os.sysconf("SC_CLK_TCK")


def _is_pulumi(pid: int) -> bool:
    """Tell whether a process is a `pulumi`, which after a step of the clock looks younger than its lock."""
    from jobs.host.processes import read_words

    return [word.rpartition(b"/")[2] for word in read_words(pid)[:1]] == [b"pulumi"]


def _probe(pid: int) -> float | None:
    """Look for a process without /proc; 0 for one that lives."""
    if os.name == "nt":
        return 0.0  # no signal 0 there; rather ask the user than guess
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0.0
