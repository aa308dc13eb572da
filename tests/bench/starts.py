"""Start-up: CPU time of `launch --help` and `launch ls` against `torchx --help`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

import msgspec

from jobs.contracts.spec import Environment
from tests.bench.pairs import Command, median_cpu_s, time_in_turn
from tests.bench.peers import torchx
from tests.bench.table import Row
from tests.bench.workspace import launch_program, local_environment
from tests.fakes.gangs import make_spec
from tests.fakes.launching import FakeEngine

NUM_RUNS = 20
PEER = "torchx --help"


def start_rows(project: Path, rounds: int) -> list[Row]:
    """Time the four in turn; a ratio is the median of the ratios of each round."""
    launch = str(launch_program(project))
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, each) for each in ("empty", "filled")]
        for folder in folders:
            folder.mkdir()
        empty, filled = map(local_environment, folders)
        _add_runs(filled)
        ls = [launch, "ls", "--env"]
        timings = time_in_turn(
            [
                Command(name="launch --help", argv=[launch, "--help"]),
                Command(name="launch ls, no run", argv=[*ls, str(empty)]),
                Command(name=f"launch ls, {NUM_RUNS} runs", argv=[*ls, str(filled)]),
                Command(name=PEER, argv=[str(torchx(project)), "--help"]),
            ],
            rounds=5 * rounds,
        )
    peers = timings.pop(PEER)
    return [
        Row(
            goal=f"CPU time of `{name.replace(',', '`,') if ',' in name else f'{name}`'}",
            ours=f"{median_cpu_s(ours):.3f} s",
            peer=f"`{PEER}` {median_cpu_s(peers):.3f} s",
            ratio=median(a.cpu_s / b.cpu_s for a, b in zip(ours, peers, strict=True)),
            at_most=1.0,
        )
        for name, ours in timings.items()
    ]


def _add_runs(environment: Path) -> None:
    engine = FakeEngine(msgspec.json.decode(environment.read_bytes(), type=Environment))
    for _ in range(NUM_RUNS):
        engine.submit(engine.plan(make_spec(["python", "train.py"], env={})), {})
