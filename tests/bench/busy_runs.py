"""Runs `make test` again and again beside two busy loops, and adds what came of each to docs/benchmarks/tests.md.

`python -m tests.bench.busy_runs N` names the commit that the working tree stands on, `-dirty` where files differ from it; a skip that is not listed fails a run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests import skips
from tests.bench.table import hardware
from tests.times import read_report

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "benchmarks" / "tests.md"
NUM_LOOPS = 2
LOOP = "while True: pass"


def main(words: list[str]) -> int:
    """Run the tests so many times; returns 1 where a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=int, metavar="N", help="how many times")
    codes: list[int] = []
    for _ in range(parser.parse_args(words).runs):
        with busy_loops(), tempfile.TemporaryDirectory() as folder:
            began_s = time.monotonic()
            report = Path(folder) / "report.xml"
            code = subprocess.run(
                ["make", "test"],
                cwd=PROJECT,
                env={**os.environ, skips.VARIABLE: "1", "PYTEST_ADDOPTS": f"--junitxml={report}"},
                check=False,
            ).returncode
            row = row_text(report, code, time.monotonic() - began_s)
        codes.append(code)
        with PAGE.open("a", encoding="utf-8") as page:
            page.write(row)
        print(row, end="", flush=True)
    return int(any(codes))


@contextmanager
def busy_loops() -> Generator[None]:
    """Keep as many processors busy as there are loops."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(NUM_LOOPS)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def row_text(report: Path, code: int, took_s: float) -> str:
    """Give the row of one run, by pytest's report; it names the tests that failed."""
    cases = read_report(report) if report.exists() else []
    counted = Counter(each.outcome for each in cases)
    failed = [
        f"`{each.classname}::{each.name}`" for each in cases if each.outcome in {"failure", "error"}
    ]
    told = ", ".join(failed) or ("none" if code == 0 else f"`make test` ended with {code}")
    # Rows of runs before are not yet committed, and no change of what ran.
    changed = subprocess.check_output(
        ["git", "status", "--porcelain", "--", ".", f":!{PAGE.relative_to(PROJECT)}"],
        cwd=PROJECT,
        text=True,
    )
    commit = subprocess.check_output(
        ["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT, text=True
    )
    cells = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
        commit.strip() + ("-dirty" if changed else ""),
        hardware(),
        f"{took_s / 60:.1f}",
        f"{counted['passed']:,}",
        str(counted["skipped"]),
        told,
    ]
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
