"""Run programs that measure themselves in turn (A B, A B, ...); each prints its rate last."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from tests.bench.pairs import Command


def rates_in_turn(commands: Sequence[Command], *, rounds: int) -> dict[str, float]:
    """Run every command once a round; gives the median of the numbers that each printed last."""
    rates: dict[str, list[float]] = {command.name: [] for command in commands}
    for number in range(rounds):
        for command in commands:
            done = subprocess.run(
                command.argv,
                env={**os.environ, **command.env},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                message = f"{command.name} ended with {done.returncode}:\n{done.stderr[-3000:]}"
                raise RuntimeError(message)
            rates[command.name].append(float(done.stdout.splitlines()[-1]))
            print(
                f"  round {number + 1}/{rounds} {command.name}: {rates[command.name][-1]:.2f}/s",
                file=sys.stderr,
            )
    return {name: median(values) for name, values in rates.items()}
