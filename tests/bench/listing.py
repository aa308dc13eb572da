"""`launch ls` with 10,000 runs in the store against 10."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.bench.pairs import Command, median_wall_s, time_in_turn
from tests.bench.table import Row
from tests.bench.workspace import launch_program, local_environment

SMALL, LARGE = 10, 10_000


def listing_rows(project: Path, rounds: int) -> list[Row]:
    """Fill two stores with copies of one real run and time `launch ls` on both in turn."""
    launch = str(launch_program(project))
    with tempfile.TemporaryDirectory() as name:
        commands: list[Command] = []
        for size in (SMALL, LARGE):
            folder = Path(name) / str(size)
            folder.mkdir()
            environment = local_environment(folder)
            fill(launch, environment, folder, size)
            argv = [launch, "ls", "--env", str(environment)]
            commands.append(Command(name=f"ls of {size}", argv=argv))
        timings = time_in_turn(commands, rounds=3 * rounds)
    small_s = median_wall_s(timings[f"ls of {SMALL}"])
    large_s = median_wall_s(timings[f"ls of {LARGE}"])
    return [
        Row(
            goal="`launch ls` with 10,000 runs in the store",
            ours=f"{large_s:.3f} s",
            peer=f"with 10 runs {small_s:.3f} s",
            ratio=large_s / small_s,
            at_most=2.0,
        )
    ]


def fill(launch: str, environment: Path, folder: Path, size: int) -> None:
    """Fill a store with copies of one real run, so that it holds this many."""
    job = folder / "job.yaml"
    job.write_text("name: tiny\nimage: pytorch\ncommand: [python, -c, pass]\n")
    subprocess.run(
        [launch, "run", str(job), "--env", str(environment)], check=True, capture_output=True
    )
    runs = folder / "workspace" / "runs"
    (model,) = runs.iterdir()
    record = (model / "run.json").read_text()
    start = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    for number in range(size - 1):
        moment = start + datetime.timedelta(seconds=number)
        copy = runs / f"{moment:%Y%m%d-%H%M%S}-0000"
        copy.mkdir()
        (copy / "run.json").write_text(record.replace(model.name, copy.name))
        shutil.copy(model / "events.jsonl", copy)
