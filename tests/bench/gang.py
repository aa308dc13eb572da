"""Runs a program on one or two ranks, each on a core of its own, and reads the rate rank 0 prints."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.torch_ranks import Place, Strategy


def gang_line(
    python: Path,
    argv: Sequence[str],
    *,
    strategy: Strategy,
    project: Path,
    cwd: Path,
    size: int = 2,
    timeout_s: float = 300,
) -> str:
    """Run as so many ranks of the strategy; gives the last line that rank 0 printed."""
    place = Place(strategy, size)
    try:
        ranks = [
            _start(python, [*argv, *place.arguments], env, project, cwd, rank)
            for rank, env in enumerate(place.environments)
        ]
        return _finish(ranks, timeout_s)
    finally:
        place.close()


def alone_side_by_side(python: Path, argv: Sequence[str], *, project: Path, cwd: Path) -> float:
    """Run two processes that know nothing of each other, one a core; gives the mean of their rates.

    What two cores cost each other (caches, memory, clock) is in it: only talking is not.
    """
    whole = [*argv, "--strategy", "single"]
    alone = [_start(python, whole, {}, project, cwd, core) for core in (0, 1)]
    rates = [float(_finish([each], 300)) for each in alone]
    return sum(rates) / len(rates)


def _start(
    python: Path, argv: Sequence[str], env: dict[str, str], project: Path, cwd: Path, core: int
) -> subprocess.Popen[str]:
    cores = sorted(os.sched_getaffinity(0))
    return subprocess.Popen(
        ["taskset", "-c", str(cores[core % len(cores)]), str(python), *argv],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(project), **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(ranks: list[subprocess.Popen[str]], timeout_s: float) -> str:
    try:
        printed = [rank.communicate(timeout=timeout_s) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, errors) in zip(ranks, printed, strict=True):
        if rank.returncode != 0:
            message = f"{rank.args} ended with {rank.returncode}:\n{errors[-3000:]}"
            raise RuntimeError(message)
    return printed[0][0].splitlines()[-1]
