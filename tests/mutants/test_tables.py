"""The tables of mutants: each is planted at one place, and each module that only decides has one."""

from __future__ import annotations

import ast
from functools import lru_cache

import pytest

from tests.mutants.pure import only_decides, pure_modules
from tests.mutants.table import ROOT, Misplaced, Mutant, read_tables

MUTANTS = read_tables()
DECISIONS = "    if a > b or a is None:\n        return a < b\n" * 3
JUDGE = f"def judge(a, b):\n{DECISIONS}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: f"{each.file}-{each.what}")
def test_each_mutant_is_another_program_at_one_place(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert dump(mutant.planted_in(text)) != dump_of_module(text)
    assert [each for each in mutant.tests if not (ROOT / each.partition("::")[0]).is_file()] == []


def dump(source: str) -> str:
    return ast.dump(ast.parse(source))


# Mutants of a module stand behind each other.
dump_of_module = lru_cache(maxsize=1)(dump)


def test_each_module_that_only_decides_brings_its_own_mutants() -> None:
    without = set(pure_modules(ROOT)) - {each.file for each in MUTANTS}
    assert without == set(), "plant one mutant of each or more in tests/mutants/*.toml"


@pytest.mark.parametrize(
    ("text", "times"), [("a = 1\n", 0), ("x = 1\nx = 1\n", 2)], ids=["gone", "twice"]
)
def test_a_mutant_without_its_one_place_is_told_with_its_module(text: str, times: int) -> None:
    mutant = Mutant(file="a.py", what="x is 2", before="x = 1", after="x = 2", tests=())
    with pytest.raises(Misplaced) as told:
        mutant.planted_in(text)
    assert str(told.value) == f"a.py: 'x is 2': found {times} times, not once: 'x = 1'"


@pytest.mark.parametrize(
    ("source", "is_pure"),
    [
        (JUDGE, True),
        (f"import re\nfrom pathlib import Path\n{JUDGE}", True),
        ("def hand_on(a):\n    return a if a else None\n", False),
        (f"import os\n{JUDGE}", False),
        (f"{JUDGE}    import socket\n", False),
        (f"from urllib.parse import quote\n{JUDGE}", False),
        (f"from jobs.host import parallel\n{JUDGE}", False),
        (f"{JUDGE}    a.write_text(b)\n", False),
        (f"async {JUDGE}", False),
    ],
)
def test_what_only_decides_reaches_neither_disk_nor_machine(source: str, is_pure: bool) -> None:
    assert only_decides(source) is is_pure
