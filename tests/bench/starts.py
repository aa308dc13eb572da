"""Start-up: CPU time of `launch --help` and `launch ls` against `torchx --help`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.pairs import Command, median_cpu_s, time_in_turn
from tests.bench.peers import torchx
from tests.bench.table import Row
from tests.bench.workspace import launch_program, local_environment


def start_rows(project: Path, rounds: int) -> list[Row]:
    """Time the three in turn."""
    launch = str(launch_program(project))
    with tempfile.TemporaryDirectory() as folder:
        environment = local_environment(Path(folder))
        timings = time_in_turn(
            [
                Command(name="launch --help", argv=[launch, "--help"]),
                Command(name="launch ls", argv=[launch, "ls", "--env", str(environment)]),
                Command(name="torchx --help", argv=[str(torchx(project)), "--help"]),
            ],
            rounds=3 * rounds,
        )
    peer_s = median_cpu_s(timings["torchx --help"])
    return [
        Row(
            goal=f"CPU time of `{name}`",
            ours=f"{median_cpu_s(timings[name]):.3f} s",
            peer=f"`torchx --help` {peer_s:.3f} s",
            ratio=median_cpu_s(timings[name]) / peer_s,
            at_most=0.5,
        )
        for name in ("launch --help", "launch ls")
    ]
