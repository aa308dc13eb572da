"""Reads the Python stacks of other processes, by py-spy."""

from __future__ import annotations

import subprocess
import sysconfig
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.parallel import parallel
from jobs.host.processes import descendants, read_table
from jobs.host.structs import prepared

# For all processes together: with the start of `launch` a hang is seen within three seconds.
TIMEOUT_S = 2.0


class RawFrame(Struct, frozen=True):
    """Hold one frame of py-spy's JSON."""

    name: str
    filename: str
    line: int = 0


class RawThread(Struct, frozen=True):
    """Hold one thread of py-spy's JSON, with its frames."""

    pid: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    frames: tuple[RawFrame, ...] = ()

    @property
    def is_main(self) -> bool:
        """Whether it is the process's first thread."""
        return self.os_thread_id == self.pid


def read_stacks(pids: Collection[int]) -> Mapping[int, tuple[RawThread, ...] | str]:
    """Read the threads of Python processes, several at once; a text says why there are none.

    Takes TIMEOUT_S at most, however many processes do not answer.
    Of a process that is no Python the nearest one below it is read. Raises EnvironmentFailure without
    py-spy, or where this user may look at no process.
    """
    program = Path(sysconfig.get_path("scripts")) / "py-spy"
    if not program.is_file():
        message = "py-spy is not installed beside `launch`"
        raise EnvironmentFailure(message, hint="make setup")
    table = read_table()
    found: dict[int, int | None] = {}
    for pid in pids:
        below = [each.pid for each in descendants(pid, table)]
        found[pid] = next((each for each in (pid, *below) if _is_python(each)), None)

    until_s = time.monotonic() + TIMEOUT_S

    def read(pid: int) -> tuple[RawThread, ...] | str:
        python = found[pid]
        return "no Python runs in it" if python is None else _dump(program, python, until_s)

    return dict(zip(pids, parallel(read, list(pids)), strict=True))


def _dump(program: Path, pid: int, until_s: float) -> tuple[RawThread, ...] | str:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        return f"the others took the {TIMEOUT_S:g} s that there are for all; ask again"
    try:
        done = subprocess.run(
            [str(program), "dump", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=left_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TIMEOUT_S:g} s"
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace")
        if "Permission" in said or "permitted" in said:
            message = "this user may not look into other processes (kernel.yama.ptrace_scope)"
            hint = "sudo sysctl kernel.yama.ptrace_scope=0, or `launch` as root"
            raise EnvironmentFailure(message, hint=hint)
        return said.strip().splitlines()[0][:200] if said.strip() else "it has ended"
    try:
        return msgspec.json.decode(done.stdout, type=prepared(tuple[RawThread, ...]))
    except msgspec.DecodeError as error:
        return f"what py-spy printed cannot be read: {error}"


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False
