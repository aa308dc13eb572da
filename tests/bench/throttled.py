"""Foresight on links of our own: ranks in network namespaces behind token buckets.

`python -m tests.bench.throttled` measures (root, Linux, iproute2; 15 minutes) and writes
throttled_links.csv; `make bench` predicts its rates from those of one rank and a probe of the links.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.foresight.predict import predict
from jobs.foresight.rows import Prediction
from jobs.foresight.rows import Row as Size
from tests.bench.table import Row
from tests.bench.workspace import runtime_bin

PROJECT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("throttled_links.csv")
RANK = Path(__file__).parent / "ranks/paced_ddp.py"
COLUMNS = ("mbit_per_s", "ranks", "network", "batch", "gradient_mb", "step_s", "steps")
NETWORKS = ("resnet18", "mobilenet_v3_small", "squeezenet1_1")
BATCHES = (8, 16)
MBIT_PER_S = (150, 300, 600)
MOST_RANKS = 4
SECONDS = 8  # of a training at one size, or ten steps
# What a probe of the links exchanges, in MB, and between how many ranks.
PROBE = (("exchange-40", 2), ("exchange-40", 4), ("exchange-10", 4))
NEAR = 0.1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A measured size and what was predicted of it."""

    mbit_per_s: int
    network: str
    measured: Size
    predicted: Prediction

    @property
    def off(self) -> float:
        """How far the prediction is off, as a part of the measured rate."""
        return self.predicted.rate / (self.measured.rate or 1.0) - 1


def cases() -> list[Case]:
    """Predict each size of several ranks from the rates of one rank and from the probe."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ones = {(row["network"], row["batch"]): row for row in rows if row["ranks"] == "1"}
    found: list[Case] = []
    for speed in MBIT_PER_S:
        there = [each for each in rows if each["ranks"] != "1" and each["mbit_per_s"] == str(speed)]
        probe = [each for each in there if (each["network"], int(each["ranks"])) in PROBE]
        asked = [each for each in there if each["network"] in NETWORKS]
        measured = [_size(each, speed) for each in (*ones.values(), *probe)]
        sizes = [_size(each, speed) for each in asked]
        found += [
            Case(mbit_per_s=speed, network=row["network"], measured=size, predicted=it)
            for row, size, it in zip(asked, sizes, predict(measured, sizes), strict=True)
        ]
    return found


def throttled_rows(project: Path, rounds: int) -> list[Row]:
    """Give the goals of all cases, and the mean error of each network and link."""
    del project, rounds
    found = cases()
    rows = [
        _error_row("throttled links: mean error", found, 0.07),
        Row(
            goal="throttled links: within 10 %",
            ours=f"{near(found):.1%} of {len(found)}",
            peer="measured",
            ratio=near(found),
            at_least=0.9,
        ),
        Row(
            goal="throttled links: rates in their band",
            ours=f"{held(found):.1%} of {len(found)}, median high / low {width(found):.2f}",
            peer="measured",
            ratio=held(found),
            at_least=0.85,
        ),
    ]
    parts = {(each.network, each.mbit_per_s): None for each in found}
    for network, speed in parts:
        these = [each for each in found if (each.network, each.mbit_per_s) == (network, speed)]
        rows.append(_error_row(f"{network}, {speed} Mbit/s: mean error", these, 0.1))
    return rows


def near(found: Sequence[Case]) -> float:
    """Return the part of the cases whose prediction is within 10 %."""
    return sum(abs(each.off) <= NEAR for each in found) / len(found)


def held(found: Sequence[Case]) -> float:
    """Return the part of the cases whose band holds the measured rate."""
    inside = [
        each.predicted.low <= (each.measured.rate or 0.0) <= each.predicted.high for each in found
    ]
    return sum(inside) / len(found)


def width(found: Sequence[Case]) -> float:
    """Return the middle one of the bands' high / low."""
    return statistics.median(each.predicted.high / each.predicted.low for each in found)


def mean_error(found: Sequence[Case]) -> float:
    """Return the mean distance of the predictions from the measured rates."""
    return statistics.fmean(abs(each.off) for each in found)


def _error_row(goal: str, these: Sequence[Case], at_most: float) -> Row:
    offs = [each.off for each in these]
    return Row(
        goal=goal,
        ours=f"{mean_error(these):.1%} of {len(these)} ({min(offs):+.1%} to {max(offs):+.1%})",
        peer="measured",
        ratio=mean_error(these),
        at_most=at_most,
    )


def _size(row: dict[str, str], mbit_per_s: int) -> Size:
    ranks, batch = int(row["ranks"]), int(row["batch"])
    return Size(
        series=f"{row['network']} {batch}",
        gpus=ranks,
        gpus_per_node=1,
        rate=ranks * batch / float(row["step_s"]),
        gradient_mb=float(row["gradient_mb"]),
        batch_per_gpu=batch,
        fabric=f"{mbit_per_s} Mbit/s",
    )


# --- Measuring ----------------------------------------------------------------------------------


def measure(python: Path) -> list[dict[str, Any]]:
    """Measure all sizes, the links in turn."""
    trainings = [f"{network}:{batch}" for network in NETWORKS for batch in BATCHES]
    probes = sorted({f"{network}:1" for network, _ in PROBE})
    sizes = [(1, MBIT_PER_S[0])]
    sizes += [(ranks, speed) for ranks in range(2, MOST_RANKS + 1) for speed in MBIT_PER_S]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        paces = Path(folder, "paces.json")
        paces.write_text(json.dumps({each: [] for each in trainings}))
        subprocess.run(_command(python, str(paces)), check=True)
        for ranks, speed in sizes:
            argv = _command(python, str(paces), str(SECONDS), *trainings, *probes)
            for found in _gang(argv, ranks, speed):
                rows.append({"mbit_per_s": speed, "ranks": ranks, **found})
                print(rows[-1], file=sys.stderr)
    return rows


def _command(python: Path, *arguments: str) -> list[str]:
    # Others on the machine may wait.
    return ["nice", "-n", "-19", str(python), str(RANK), *arguments]


def _gang(argv: Sequence[str], ranks: int, mbit_per_s: int) -> list[dict[str, Any]]:
    """Run a rank in each namespace; gives what the first one prints."""
    with _links(ranks, mbit_per_s) as names:
        running = [
            subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{name}", *argv],
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": _address(0),
                    "MASTER_PORT": "29400",
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "GLOO_SOCKET_IFNAME": "eth0",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, name in enumerate(names)
        ]
        printed = [each.communicate()[0] for each in running]
        if codes := {each.returncode for each in running} - {0}:
            message = f"{ranks} ranks at {mbit_per_s} Mbit/s ended with {codes}"
            raise RuntimeError(message)
    return [json.loads(line) for line in printed[0].splitlines()]


@contextmanager
def _links(ranks: int, mbit_per_s: int) -> Iterator[list[str]]:
    """Make a namespace a rank, each with a throttled link to one bridge."""
    mark = f"bench{os.getpid()}"
    bridge, names = f"{mark}-bridge", [f"{mark}-{rank}" for rank in range(ranks)]
    try:
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", bridge, "link", "set", "br0", "up")
        for rank, name in enumerate(names):
            _ip("netns", "add", name)
            other = ("type", "veth", "peer", "name", f"to{rank}", "netns", bridge)
            _ip("-n", name, "link", "add", "eth0", *other)
            _ip("-n", bridge, "link", "set", f"to{rank}", "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{_address(rank)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")
            bucket = ("rate", f"{mbit_per_s}mbit", "burst", "256kb", "latency", "50ms")
            subprocess.run(
                ["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *bucket],
                check=True,
            )
        yield names
    finally:
        for name in (*names, bridge):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def _address(rank: int) -> str:
    return f"10.77.0.{rank + 1}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def main() -> int:
    """Measure and write the table."""
    rows = measure(runtime_bin(PROJECT) / "python")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
