"""Time commands in turn (A B C, A B C, ...) and give medians, so that drift hits all alike."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command to time."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One finished run: seconds of wall clock, and CPU seconds of it and its children."""

    wall_s: float
    cpu_s: float


def time_in_turn(
    commands: Sequence[Command], *, rounds: int, warm_up: int = 1
) -> dict[str, list[Timing]]:
    """Run every command once a round, in order; the warm-up rounds are not counted."""
    timings: dict[str, list[Timing]] = {command.name: [] for command in commands}
    for number in range(-warm_up, rounds):
        for command in commands:
            timing = time_once(command)
            if number >= 0:
                timings[command.name].append(timing)
                print(
                    f"  round {number + 1}/{rounds} {command.name}: "
                    f"{timing.wall_s:.2f} s wall, {timing.cpu_s:.2f} s cpu",
                    file=sys.stderr,
                )
    return timings


def median_wall_s(timings: Sequence[Timing]) -> float:
    """Median wall seconds."""
    return median(timing.wall_s for timing in timings)


def median_cpu_s(timings: Sequence[Timing]) -> float:
    """Median CPU seconds."""
    return median(timing.cpu_s for timing in timings)


def time_once(command: Command) -> Timing:
    """Run a command to its end; raises RuntimeError with its last words where that is not 0."""
    environ = {**os.environ, **command.env}
    # Ours and the peers' start from bytecode, as they do for a person from the second time on.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command.argv,
            env=environ,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            tail = output.read().decode(errors="replace")[-3000:]
            message = f"{command.name} ended with {process.returncode}:\n{tail}"
            raise RuntimeError(message)
    return Timing(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime)
