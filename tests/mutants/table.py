"""Mutants as the tables beside this file give them, each at the one place where it is planted."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Misplaced(Exception):
    """A mutant's text is not found exactly once in its module."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One wrong change of a module, and the files of tests that must catch it."""

    file: str
    what: str
    before: str
    after: str
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str:
        """Give the module's text with the change; Misplaced where it has no one place."""
        times = text.count(self.before)
        if times != 1:
            msg = f"{self.file}: {self.what!r}: found {times} times, not once: {self.before!r}"
            raise Misplaced(msg)
        return text.replace(self.before, self.after)


def read_tables(folder: Path = HERE) -> Sequence[Mutant]:
    """Give the mutants of a folder's `*.toml`, in the order of file names and rows."""
    return [
        Mutant(
            file=module["file"],
            tests=tuple(f"tests/{each}" for each in module["tests"]),
            **mutant,
        )
        for path in sorted(folder.glob("*.toml"))
        for module in tomllib.loads(path.read_text(encoding="utf-8"))["module"]
        for mutant in module["mutants"]
    ]
