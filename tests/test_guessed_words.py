"""A test that leans on words or turns of Azure ML that nobody has quoted says so by its name.

CONTRIBUTING.md names the ending. What is guessed stands apart in the stand-in's words
(tests/fakes/azureml/words.py) and beside the signs of jobs/engines/azure_ml/states.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fakes.azureml import runner
from tests.fakes.azureml.words import Guessed, Quoted

TESTS = Path(__file__).parent
ENDING = "as_the_stand_in_says"
# What a test may quote of the guessed messages.
WORDS = {
    *("JobNodeLost", "exited with status code", "DataAccessError", "exceeded its maximum"),
    *("task ended unsuccessfully", "task could not be set up", "task was stopped by a policy"),
}
NAMES = {each.name for each in Guessed}
# What may befall a job, by a guess of how: `what` of a JobTrouble.
TURNS = {"node failure", "log rotated", "log truncated", "preempted, restarted"}


def test_each_guessed_message_has_a_word_and_each_word_is_of_one():
    assert [word for word in WORDS if not any(word in each for each in Guessed)] == []
    assert [each for each in Guessed if not any(word in each for word in WORDS)] == []


def test_the_runner_says_nothing_that_is_neither_quoted_nor_guessed():
    texts = {
        name for name, value in vars(runner).items() if name.isupper() and isinstance(value, str)
    }
    assert texts == {"MICROSOFTS"}
    ends = [
        each.args[2]
        for each in ast.walk(ast.parse(Path(runner.__file__).read_text(encoding="utf-8")))
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "Ended" and each.args[2:]
    ]
    assert len(ends) > 5
    assert [
        ast.unparse(each) for each in ends if isinstance(each, ast.Constant | ast.JoinedStr)
    ] == []


def test_what_is_called_quoted_is_quoted():
    golden = TESTS / "golden" / "azure_messages"
    quoted = [
        row["message"] for path in golden.iterdir() for row in yaml.safe_load(path.read_text())
    ]
    # Up to the first number or name.
    said = {each.name: re.split(r"[0-9{]", each)[0] for each in Quoted}
    assert all(len(text) > 20 for text in said.values())
    assert [name for name, text in said.items() if not any(text in each for each in quoted)] == []


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
