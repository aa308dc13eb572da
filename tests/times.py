"""Sums up how long tests took by folder: at the end of a long run, or of reports that pytest wrote.

A pytest plugin, and `python -m tests.times AFTER.xml [BEFORE.xml]` for files of `--junitxml`: a table
in Markdown. Seconds are those of all workers together, with set-up and end of fixtures.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

# Folders of these have a row each.
DIVIDED = ("integration",)
# A run of fewer tests is somebody's look at a few files.
MANY = 1000
# What a report has below a test that did not pass.
NOT_PASSED = ("failure", "error", "skipped")


@dataclass(frozen=True, kw_only=True)
class Took:
    """Tests of one folder, or all: how many, and their seconds."""

    num_tests: int = 0
    seconds: float = 0.0

    def __add__(self, other: Took) -> Took:
        return Took(
            num_tests=self.num_tests + other.num_tests, seconds=self.seconds + other.seconds
        )


def folder_of(file: str) -> str:
    """Give the row that a file of tests is summed up in."""
    first, *parents = Path(file.removeprefix("tests/")).parts[:-1] or (".",)
    return "/".join([first, *parents[:1]]) if first in DIVIDED else first


def by_folder(tests: Iterable[tuple[str, Took]]) -> dict[str, Took]:
    """Sum up tests, each with its file, by folder; the slowest first."""
    found: dict[str, Took] = {}
    for file, took in tests:
        folder = folder_of(file)
        found[folder] = found.get(folder, Took()) + took
    return dict(sorted(found.items(), key=lambda row: -row[1].seconds))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A test as a report tells of it; `outcome` is passed, skipped, failure or error."""

    classname: str
    name: str
    seconds: float
    outcome: str


def read_report(path: Path) -> list[Case]:
    """Read a file of `--junitxml`; a test that both failed and ended in an error is there twice."""
    return [
        Case(
            classname=each.get("classname", ""),
            name=each.get("name", ""),
            seconds=float(each.get("time", 0)),
            outcome=next((kind for kind in NOT_PASSED if each.find(kind) is not None), "passed"),
        )
        for each in ET.parse(path).iter("testcase")
    ]


def report_by_folder(path: Path) -> dict[str, Took]:
    """Sum up a file of `--junitxml`."""
    return by_folder(
        (_file_of(each.classname), Took(num_tests=1, seconds=each.seconds))
        for each in read_report(path)
    )


def _file_of(classname: str) -> str:
    """The path that a class's dotted name begins with: tests.jobs.test_x.TestIt."""
    parts = classname.split(".")
    number = next((i for i, each in enumerate(parts) if each.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: number + 1]) + ".py"


def table(after: Mapping[str, Took], before: Mapping[str, Took] | None = None) -> Sequence[str]:
    """Write the rows in Markdown, all together last; beside those of an earlier run where given."""
    total = sum(after.values(), Took())
    if before is None:
        head = ["| folder | tests | seconds | share |", "| --- | ---: | ---: | ---: |"]
        return [
            *head,
            *(
                f"| {name} | {took.num_tests:,} | {took.seconds:,.0f} | "
                f"{took.seconds / max(total.seconds, 1e-9):.0%} |"
                for name, took in (*after.items(), ("all", total))
            ),
        ]
    head = [
        "| folder | tests before | tests after | seconds before | seconds after |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    names = [*after, *(name for name in before if name not in after)]
    rows = [(name, before.get(name, Took()), after.get(name, Took())) for name in names]
    rows.append(("all", sum(before.values(), Took()), total))
    return [
        *head,
        *(
            f"| {name} | {was.num_tests:,} | {now.num_tests:,} | {was.seconds:,.0f} | "
            f"{now.seconds:,.0f} |"
            for name, was, now in rows
        ),
    ]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table after a long run."""
    reports = [
        each
        for found in terminalreporter.stats.values()
        for each in found
        if isinstance(each, pytest.TestReport)
    ]
    tests = [
        (each.nodeid.partition("::")[0], Took(num_tests=each.when == "call", seconds=each.duration))
        for each in reports
    ]
    if sum(took.num_tests for _, took in tests) < MANY:
        return
    terminalreporter.section("seconds by folder, of all workers")
    for line in table(by_folder(tests)):
        terminalreporter.write_line(line)


def main(words: Sequence[str]) -> int:
    """Print the table of one report, or of two beside each other; 2 where it was typed wrongly."""
    if len(words) not in {1, 2}:
        print("usage: python -m tests.times AFTER.xml [BEFORE.xml]", file=sys.stderr)
        return 2
    reports = [report_by_folder(Path(each)) for each in words]
    print("\n".join(table(*reports)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
