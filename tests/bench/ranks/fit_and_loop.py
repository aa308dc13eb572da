"""Lets one TensorFlow training take its epochs by the loop and by Keras's `fit` in turn, and times them.

    python tests/bench/ranks/fit_and_loop.py PAIRS [OPTION of trainer.tf.resnet50 ...]

One network, one optimizer and one process, so that nothing differs but who takes the steps, and what else
the machine does hits both. Prints, last, the ratios of `fit`'s rate to the loop's: by wall clock, and by CPU time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from statistics import median
from typing import Literal

import numpy as np

from trainer.common.position import Position
from trainer.common.throughput import Throughput
from trainer.tf.guard import Guard
from trainer.tf.job import Job, Options
from trainer.tf.loader import Reading
from trainer.tf.profiling import Profiler
from trainer.tf.program import run_program
from trainer.tf.resnet50 import Loop
from trainer.tfkeras.resnet50 import Fit

# Of each: graphs are made in the first, and found again in the second.
NUM_WARM_UP = 2

# Wall seconds and CPU seconds of each counted epoch, by who took its steps.
TIMES: dict[Literal["loop", "fit"], list[tuple[float, float]]] = {"loop": [], "fit": []}


class Turns:
    """Takes an epoch by the loop, two by `fit`, one by the loop, and so on."""

    def __init__(self, job: Job, guard: Guard, throughput: Throughput, profiler: Profiler) -> None:
        self._loop = Loop(job, guard, throughput, profiler)
        self._fit = Fit(job, guard, throughput, profiler)
        self._guard = guard

    def train_epoch(self, reading: Reading, position: Position) -> Position:
        """Train on what is left of the epoch."""
        name = ("loop", "fit", "fit", "loop")[position.epoch % 4]
        driver = self._loop if name == "loop" else self._fit
        began = (time.perf_counter(), cpu_s())
        position = driver.train_epoch(reading, position)
        self._guard.settle()
        if position.epoch > 2 * NUM_WARM_UP:
            TIMES[name].append((time.perf_counter() - began[0], cpu_s() - began[1]))
        return position

    def score(self, reading: Reading, position: Position) -> np.ndarray:
        """Score by the loop."""
        return self._loop.score(reading, position)


def cpu_s() -> float:
    """Give the CPU seconds of all threads so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Train, and print the two ratios; gives the exit code."""
    num_pairs = int(sys.argv[1])
    never = ["--checkpoint-every", str(10**9), "--epochs", str(2 * (NUM_WARM_UP + num_pairs))]
    arguments, name = [*sys.argv[2:], *never], "tests.bench.ranks.fit_and_loop"
    code = run_program(Options, Turns, arguments, program=name, description=__doc__ or "")
    if code == 0:
        pairs = list(zip(TIMES["loop"], TIMES["fit"], strict=True))
        wall, cpu = (median(loop[n] / fit[n] for loop, fit in pairs) for n in (0, 1))
        print(json.dumps({"wall": wall, "cpu": cpu}))
    return code


if __name__ == "__main__":
    sys.exit(main())
