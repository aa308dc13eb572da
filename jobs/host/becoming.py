"""Hand this process over to a program; for Python code that calls a verb, run it beside."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console


def become(argv: Sequence[str], environ: Mapping[str, str], *, folder: Path, nice: int) -> None:
    """Become the program, in its folder, variables and niceness.

    Where Python code called, its process stays as it is: the program's output is data, and
    EnvironmentFailure says that it failed. Raises OSError for a program that cannot be started.
    """
    if console.is_heard():
        _run_beside(argv, environ, folder=folder, nice=nice)
        return
    os.chdir(folder)
    os.nice(nice)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(argv[0], list(argv), dict(environ))


def _run_beside(
    argv: Sequence[str], environ: Mapping[str, str], *, folder: Path, nice: int
) -> None:
    import subprocess

    with subprocess.Popen(
        argv,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        # As os.nice: a process that is nice itself may not make it less so.
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process.pid, min(own + nice, 19))
        told, said = process.communicate()
    if told:
        console.out(told.removesuffix("\n"))
    if process.returncode:
        message = f"`{argv[0]}` ended with exit code {process.returncode}"
        raise EnvironmentFailure(message, hint=said.strip() or None)
    console.say(said)
