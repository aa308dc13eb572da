"""Leaves second proofs to `make faults`, by tests/second_proofs.toml, and holds that table. A plugin."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.judges import fail_collection

TESTS = Path(__file__).parent
TABLE = TESTS / "second_proofs.toml"
MARK = "mark.faults"


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """Tests of a file by the beginnings of their names, and those that prove it before them."""

    file: str
    first: Sequence[str]
    # Moved by this table.
    tests: Sequence[str] = ()
    # Moved by a mark in their file.
    marked: Sequence[str] = ()

    def holds(self, test: Test) -> bool:
        """Whether this row moves a test."""
        return test.file == self.file and any(is_named(test.name, each) for each in self.tests)


@dataclass(frozen=True, kw_only=True)
class Test:
    """A collected test: its file, its name with its parameters, whether `make test` leaves it out."""

    __test__ = False

    file: str
    name: str
    is_left_out: bool


def is_named(name: str, wanted: str) -> bool:
    """Whether a name is the wanted one, or that with any parameters."""
    return name == wanted or name.startswith(wanted if "[" in wanted else f"{wanted}[")


def read_table() -> tuple[list[Proofs], dict[str, int]]:
    """Read the rows, and how often the mark stands in the source of each file."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [
        Proofs(
            file=each["file"],
            first=[each["first"]] if isinstance(each["first"], str) else each["first"],
            tests=each.get("tests", []),
            marked=each.get("marked", []),
        )
        for each in found["proofs"]
    ]
    return rows, found["marks"]


def marks_in_source() -> dict[str, int]:
    """Count the mark in each file of tests."""
    counts = {
        path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8").count(MARK)
        for path in TESTS.rglob("test_*.py")
    }
    return {file: number for file, number in sorted(counts.items()) if number}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the second proofs; where whole files are collected, a row that is wrong ends the run."""
    rows = _by_file(read_table()[0])
    tests: list[Test] = []
    for item in items:
        test = _test_of(item)
        if any(row.holds(test) for row in rows.get(test.file, ())):
            item.add_marker(pytest.mark.faults)
            test = _test_of(item)
        tests.append(test)
    if items and not any("::" in each for each in config.args):
        wrong = list(wrong_rows([row for each in rows.values() for row in each], tests))
        if wrong:
            fail_collection(items[0], "tests/second_proofs.toml: " + "; ".join(wrong))


def wrong_rows(rows: Sequence[Proofs], tests: Sequence[Test]) -> Iterable[str]:
    """Name rows whose tests or first proofs are not there, and tests left out without a row.

    Files that were not collected are not judged.
    """
    by_file: dict[str, list[Test]] = {}
    for test in tests:
        by_file.setdefault(test.file, []).append(test)
    for row in rows:
        there = by_file.get(row.file)
        for wanted in (*row.tests, *row.marked) if there else ():
            found = [each for each in there or () if is_named(each.name, wanted)]
            if not any(each.is_left_out for each in found):
                yield f"no test {row.file}::{wanted} that `make test` leaves out"
        for first in row.first:
            file, _, path = first.partition("::")
            wanted = path.rpartition("::")[2]
            if file in by_file and not any(
                is_named(each.name, wanted) and not each.is_left_out for each in by_file[file]
            ):
                yield f"{first} is no test that `make test` runs"
    named = _by_file(rows)
    for test in tests:
        of_file = [*named.get(test.file, ())]
        if test.is_left_out and not any(
            is_named(test.name, each) for row in of_file for each in (*row.tests, *row.marked)
        ):
            yield f"no row names the first proof of {test.file}::{test.name}"


def _by_file(rows: Iterable[Proofs]) -> Mapping[str, Sequence[Proofs]]:
    found: dict[str, list[Proofs]] = {}
    for row in rows:
        found.setdefault(row.file, []).append(row)
    return found


def _test_of(item: pytest.Item) -> Test:
    file = _file_of(item.path)
    return Test(
        file=file,
        name=item.name,
        is_left_out=bool(file) and item.get_closest_marker("faults") is not None,
    )


@cache
def _file_of(path: Path) -> str:
    """The path below the tests; empty for a file that is elsewhere."""
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
