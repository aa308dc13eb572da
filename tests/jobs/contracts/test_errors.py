"""Every error that a user can meet says what to type instead."""

import ast

import pytest

from jobs.host.project import project_root

ERRORS = {"LaunchError", "EnvironmentFailure", "Refused", "NotFound", "Problem", "Unreached"}
SOURCES = [*(project_root() / "jobs").rglob("*.py"), *(project_root() / "tools").rglob("*.py")]


def without_hint(source):
    """The lines that make an error without saying what helps."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ERRORS
        and "hint" not in {keyword.arg for keyword in node.keywords}
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(project_root())))
def test_every_error_is_made_with_a_hint(source):
    assert without_hint(source.read_text()) == []


def test_an_error_without_a_hint_would_be_found():
    assert without_hint("raise Refused('no')\nraise Refused('no', hint='yes')") == [1]
