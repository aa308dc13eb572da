"""Run the benchmarks and write docs/benchmarks: `python -m tests.bench [--only NAME]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench.launches import launch_rows
from tests.bench.listing import listing_rows
from tests.bench.starts import start_rows
from tests.bench.table import Row, write_table
from tests.bench.up import up_rows

PROJECT = Path(__file__).resolve().parents[2]
BENCHMARKS: dict[str, Callable[[Path, int], list[Row]]] = {
    "starts": start_rows,
    "launches": launch_rows,
    "listing": listing_rows,
    "up": up_rows,
}
NOTES = (
    "- `launch --help` and `launch ls`: CPU seconds (user and system) of the whole process.",
    "- Launch overhead: wall time of the whole command less that of two bare processes which do "
    "the same imports at the same time, in the same round. `launch run` stays attached to the end. "
    "The peer `horovodrun` runs in a network namespace of its own.",
    "- `launch ls`: wall time with 10,000 runs in the store against 10.",
    "- No-op `pulumi up`: the local stack against a Python stack that declares nothing, both on a "
    "file backend.",
)


def main() -> int:
    """Measure, print the table, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(BENCHMARKS), action="append")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=PROJECT / "docs/benchmarks/one-machine.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.only or BENCHMARKS:
        print(f"{name}:", file=sys.stderr)
        rows += BENCHMARKS[name](PROJECT, options.rounds)
    print(write_table(rows, NOTES, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
