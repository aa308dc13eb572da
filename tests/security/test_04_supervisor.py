"""What is started as `python -m` of ours is ours, whatever folder one is in.

Attacker: who wrote the folder where a user types `launch`. With `jobs/engines/local/supervisor.py` in it he ran his own
program as the run's supervisor, with the job's secrets in its hands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from tests.fakes.gangs import Gangs

REPO = Path(__file__).parents[2]
# What `launch` is installed with; `tools` and `tests` are found in the clone that `make` runs in.
OURS = re.compile(r"(infra|jobs|trainer)\.")
ISOLATED = {"-P", "-I"}


def test_a_folder_called_as_a_package_of_ours_does_not_stand_in_for_it(tmp_path, monkeypatch):
    hijacked = tmp_path / "hijacked"
    for package in ("jobs", "infra", "trainer"):
        (tmp_path / "here" / package).mkdir(parents=True)
        for module in ("__init__", "gang"):
            text = f"open({str(hijacked)!r}, 'a').write(__name__)\n"
            (tmp_path / "here" / package / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    gangs = Gangs(tmp_path / "workspace")
    try:
        status = gangs.wait(gangs.python("", secrets={"TOKEN": "MySecretToken123"}))
    finally:
        gangs.end()
    assert (hijacked.exists(), status.state) == (False, RunState.COMPLETED)


def test_no_program_of_ours_is_started_as_a_module_of_the_working_folder():
    found = [
        f"{path.relative_to(REPO)}:{line}: {' '.join(words)}"
        for folder in ("images", "infra", "jobs", "tools", "trainer")
        for path in sorted((REPO / folder).rglob("*.py"))
        if re.search(r"""["']-m["']""", code := path.read_text(encoding="utf-8"))
        for line, words in _starts_of_ours(ast.parse(code))
        if not ISOLATED & set(words)
    ]
    for path in (REPO / "Makefile", *sorted((REPO / ".ci").iterdir())):
        found += [
            f"{path.relative_to(REPO)}: {line.strip()}"
            for line in path.read_text(encoding="utf-8").splitlines()
            if re.search(r"(?<!-P )-m (infra|jobs|trainer)\.", line)
        ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "num_starts"),
    [
        ("[sys.executable, '-m', 'jobs.engines.local.supervisor', x]", 1),
        ("(python, '-u', '-m', f'trainer.data.{name}')", 1),
        ("['python', '-m', 'pip']", 0),
        ("['git', 'commit', '-m']", 0),
    ],
)
def test_the_look_for_such_starts_sees_them(text, num_starts):
    assert len(list(_starts_of_ours(ast.parse(text)))) == num_starts


def _starts_of_ours(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Lists of words that have `-m` and then one of our modules; what is no constant is empty."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        words = [_text(each) for each in node.elts]
        for option, module in pairwise(words):
            if option == "-m" and OURS.match(module):
                yield node.lineno, words


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
