"""Passes a signal on to a rank's command: to the program that catches it, else to all its processes.

A program that catches SIGTERM saves something and leaves, and needs its own processes until then: a
loader's worker that dies meanwhile makes it fail. A shell waits for the program that it runs and
tells it nothing, so the programs below a shell count.
"""

from __future__ import annotations

import contextlib
import os
import signal

_SHELLS = frozenset({"ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "sh", "zsh"})


def pass_on(command: int, number: int) -> None:
    """Send a signal to a command, which leads a group; raises OSError if there is no such group."""
    takers = _takers(command, number)
    if not takers:
        os.killpg(command, number)
    for pid in takers:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == command:  # its id may be another's by now
                os.kill(pid, number)


def _takers(command: int, number: int) -> list[int]:
    """Find who is to get the signal; nobody in particular where no program catches it.

    A shell with a trap gets it beside a program, never alone: a trap waits for the program that the shell runs.
    """
    programs: list[int] = []
    shells: list[int] = []
    waiting = [command]
    while waiting:
        pid = waiting.pop()
        try:
            is_shell = os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS
            catches = _catches(pid, number)
            if is_shell:
                waiting += _children(pid)
                # With a trap for its end bash catches all that would end it, and then leaves at once.
                if catches and not _catches(pid, signal.SIGILL):
                    shells.append(pid)
            elif catches:
                programs.append(pid)
        except OSError:  # it is over, or it is nobody's business but root's
            continue
    return programs and programs + shells


def _catches(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status", "rb") as file:
        caught = next((line for line in file if line.startswith(b"SigCgt:")), b"SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _children(pid: int) -> list[int]:
    """List the processes that a shell has started; a shell has one thread."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        return [int(each) for each in file.read().split()]
