"""Leaves second proofs to `make faults`, by tests/second_proofs.toml, and holds that table. A plugin."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.judges import is_ci

TESTS = Path(__file__).parent
TABLE = TESTS / "second_proofs.toml"
MARK = "mark.faults"


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """Tests of a file, by the beginnings of their names, and the test that proves it before them."""

    file: str
    first: str
    tests: Sequence[str]

    def holds(self, file: str, name: str) -> bool:
        """Whether a test, with its parameters, is one of them."""
        return file == self.file and any(is_named(name, each) for each in self.tests)


def is_named(name: str, wanted: str) -> bool:
    """Whether a name is the wanted one, or that with any parameters."""
    return name == wanted or name.startswith(wanted if "[" in wanted else f"{wanted}[")


def read_table() -> tuple[list[Proofs], dict[str, int]]:
    """Read the rows, and how often the mark stands in the source of each file."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [
        Proofs(file=each["file"], first=each["first"], tests=each["tests"])
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
    """Mark the second proofs; in CI, where all is collected, a row that is wrong ends the run."""
    rows, _ = read_table()
    names = [_name(item) for item in items]
    for item, (file, name) in zip(items, names, strict=True):
        if any(row.holds(file, name) for row in rows):
            item.add_marker(pytest.mark.faults)
    if is_ci() and not any("::" in each for each in config.args):
        wrong = list(_wrong_rows(rows, items, names))
        if wrong:
            message = "tests/second_proofs.toml: " + "; ".join(wrong)
            raise pytest.UsageError(message)


def _wrong_rows(
    rows: Sequence[Proofs], items: Sequence[pytest.Item], names: Sequence[tuple[str, str]]
) -> Iterable[str]:
    files = {file for file, _ in names}
    left = {
        (file, name)
        for item, (file, name) in zip(items, names, strict=True)
        if item.get_closest_marker("faults") is None
    }
    for row in rows:
        for wanted in row.tests if row.file in files else ():
            if not any(file == row.file and is_named(name, wanted) for file, name in names):
                yield f"no test {row.file}::{wanted}"
        file, _, path = row.first.partition("::")
        wanted = path.rpartition("::")[2]
        if file in files and not any(
            each == file and is_named(name, wanted) for each, name in left
        ):
            yield f"{row.first} is no test that `make test` runs"


def _name(item: pytest.Item) -> tuple[str, str]:
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(
        TESTS
    ) else "", item.name
