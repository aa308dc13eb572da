"""A test that leans on words or turns of Azure ML that nobody has quoted says so by its name.

CONTRIBUTING.md names the ending. What is guessed is told in the runner of the stand-in
(tests/fakes/azureml/runner.py) and beside the signs of jobs/engines/azure_ml/states.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.azureml import runner

TESTS = Path(__file__).parent
ENDING = "as_the_stand_in_says"
# What a test may quote of each guessed message.
WORDS = {
    "JobNodeLost": runner.NODE_LOST,
    "exited with status code": runner.EXIT_CODE,
    "DataAccessError": runner.NO_DATA,
    "exceeded its maximum": runner.TIME_LIMIT,
    "task ended unsuccessfully": runner.WITHOUT_CODE,
    "task could not be set up": runner.WITHOUT_PULL,
    "task was stopped by a policy": runner.WITHOUT_LIMIT,
}
NAMES = {
    *("NODE_LOST", "EXIT_CODE", "NO_DATA", "TIME_LIMIT"),
    *("WITHOUT_CODE", "WITHOUT_PULL", "WITHOUT_LIMIT"),
}
# What may befall a job, by a guess of how: `what` of a JobTrouble.
TURNS = {"node failure", "log rotated", "log truncated", "preempted, restarted"}


def test_each_word_is_of_its_message_and_no_message_is_left_out():
    assert [word for word, message in WORDS.items() if word not in message] == []
    assert {getattr(runner, name) for name in NAMES} == set(WORDS.values())


def test_who_leans_on_a_guess_says_so_by_its_name():
    found = {f"{path.relative_to(TESTS)}::{name}" for path in files() for name in leaning(path)}
    assert len(found) > 5
    assert sorted(each for each in found if not each.endswith(ENDING)) == []


def test_the_ending_stands_at_the_end():
    named = {
        name
        for path in TESTS.rglob("*.py")
        for name in re.findall(r"def (test_\w*as_the_stand_in\w*)", path.read_text("utf-8"))
    }
    assert len(named) > 10
    assert sorted(name for name in named if not name.endswith(ENDING)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_a(): assert 'x JobNodeLost: y'", ["test_a"]),
        ("LOST = 'JobNodeLost'\ndef test_a(): f(LOST)\ndef test_b(): f('LOST')", ["test_a"]),
        ("import pytest\n@pytest.mark.parametrize('a', ['log rotated'])\ndef test_a(a): pass", ["test_a"]),
        ("def test_a(): f('preempted')", []),
        ('"""Guessed: as the stand-in says."""\ndef test_a(): f("JobNodeLost")', []),
    ],
    ids=["quoted", "named", "drawn", "none", "a file full of them"],
)  # fmt: skip
def test_a_leaning_test_is_found(tmp_path, text, expected):
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert list(leaning(path)) == expected


def files() -> Iterator[Path]:
    yield from (path for path in sorted(TESTS.rglob("test_*.py")) if path != Path(__file__))


def leaning(path: Path) -> Iterator[str]:
    """The tests of a file that lean on a guess, unless its docstring says it of all of them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if "as the stand-in says" in (ast.get_docstring(tree) or ""):
        return
    named = {
        target.id
        for line in tree.body
        if isinstance(line, ast.Assign) and is_guess(line, set())
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    tests = (
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    )
    yield from (each.name for each in tests if is_guess(each, NAMES | named))


def is_guess(tree: ast.AST, names: set[str]) -> bool:
    """Whether a part of a file has guessed words, or one of these names."""
    texts = [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    used = {getattr(each, "id", getattr(each, "attr", None)) for each in ast.walk(tree)}
    has_words = any(text in TURNS or any(word in text for word in WORDS) for text in texts)
    return has_words or not names.isdisjoint(used)
