"""From the start of a PyTorch program to the end of its first step, against bare scripts of torch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median

from tests.bench.mnist import PROGRAMS, make_digits
from tests.bench.pairs import Command, time_in_turn
from tests.bench.table import Row
from tests.bench.workspace import runtime_bin

RESNET = ("--data", "random", "--image-size", "64", "--batch-per-rank", "8", "--num-images", "80")


def first_step_rows(project: Path, rounds: int) -> list[Row]:
    """Time imports, data, network and one step of one process, in CPU seconds."""
    python = str(runtime_bin(project) / "python")
    env = {"PYTHONPATH": str(project), "OMP_NUM_THREADS": str(os.cpu_count())}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = str(make_digits(folder / "digits"))
        for what, ours, peers in (
            ("mnist", ["--data", data], [data]),
            ("resnet50", RESNET, []),
        ):
            commands = [
                Command(name=each, argv=[python, *argv], env=env, cwd=folder)
                for each, argv in (
                    (
                        f"trainer.pytorch.{what}",
                        [str(PROGRAMS / "first_step_of.py"), f"trainer.pytorch.{what}", *ours],
                    ),
                    ("a bare script", [str(PROGRAMS / "first_step_bare.py"), what, *peers]),
                )
            ]
            found = time_in_turn(commands, rounds=rounds)
            both = zip(*(found[each.name] for each in commands), strict=True)
            mine, bare = (median(each.cpu_s for each in found[one.name]) for one in commands)
            rows.append(
                Row(
                    goal=f"Start to the end of the first step, {what}, 1 process, CPU",
                    ours=f"{mine:.2f} s of CPU",
                    peer=f"{commands[1].name} {bare:.2f} s",
                    ratio=median(own.cpu_s / other.cpu_s for own, other in both),
                    at_most=1.2,
                )
            )
    return rows
