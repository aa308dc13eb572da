"""Runs the long fault campaigns and writes what they counted into docs/benchmarks/faults.md.

`python -m tests.documents.fault_counts` is `make faults`. Words behind it go to pytest; then, or where
a test fails, the page stays as it is.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from pathlib import Path

import pytest

from tests import campaign, skips
from tests.bench.table import hardware
from tools.marked import put_between

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "faults.md"
BEGIN = "<!-- counts: written by make faults -->"
END = "<!-- end of counts -->"
PYTEST = ("-m", skips.CAMPAIGNS, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


class Outcomes:
    """Counts the tests that pytest reports, as a plugin."""

    def __init__(self) -> None:
        self.num_passed = self.num_skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.num_passed += report.when == "call" and report.passed
        self.num_skipped += report.skipped


def main(words: list[str]) -> int:
    """Run the campaigns, then write the page; returns pytest's exit code.

    All of them are judged as in CI: a skip that is not listed fails the run.
    """
    if not words:
        os.environ[skips.VARIABLE] = "1"
    outcomes = Outcomes()
    began_s = time.monotonic()
    code = pytest.main([*PYTEST, *words], plugins=[outcomes])
    if code == 0 and not words:
        text = counts_text(outcomes, campaign.lines(), time.monotonic() - began_s)
        page = put_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, f"\n{text}\n")
        PAGE.write_text(page, encoding="utf-8")
    return code


def counts_text(outcomes: Outcomes, lines: list[str], took_s: float) -> str:
    """Say where and when all of it ran, and list what each campaign counted."""
    return "\n".join(
        [
            f"Command: `make faults`, in one go of {took_s / 60:.0f} minutes. "
            f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}. Hardware: {hardware()}. "
            f"Tests: {outcomes.num_passed} passed, {outcomes.num_skipped} skipped, none failed.",
            "",
            *(f"- {line}" for line in lines),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
