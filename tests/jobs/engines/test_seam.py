"""Hold that no engine's name decides anything outside of jobs/engines, and that engines are apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from jobs.contracts.spec import EngineName
from jobs.engines import ENGINES, STORES

JOBS = Path(__file__).parents[3] / "jobs"
NAMES = set(get_args(EngineName))


def modules(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in sorted((JOBS / folder).rglob("*.py")))
    return [path for path in found if folder_of(path) != "engines"]


def folder_of(path: Path) -> str:
    return path.relative_to(JOBS).parts[0]


def decisions(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare an engine's name, or look something up by it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            asked = [node.subject]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        else:
            continue
        if any(map(names_an_engine, asked)):
            yield node.lineno


def names_an_engine(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "engine"
    return isinstance(node, ast.Constant) and node.value in NAMES


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("environment.engine == 'local'", [1]),
        ("'local' != known.engine", [1]),
        ("x.engine in ('local',)", [1]),
        ("TABLE[environment.engine]", [1]),
        ("kind == 'azureml'", [1]),
        ("cluster.size == 'local'", [1]),
        ("match environment.engine:\n    case _: pass", [1]),
        ("replace(environment, engine=engine)", []),
        ("engine is not None", []),
    ],
)
def test_a_decision_is_found(source: str, lines: list[int]) -> None:
    assert list(decisions(ast.parse(source))) == lines


def test_no_engines_name_decides_outside_of_engines() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in modules(".")}
    named = re.compile(rf"""\.engine\b|["'](?:{"|".join(NAMES)})["']""")
    found = [
        f"{path.relative_to(JOBS)}:{n}"
        for path, text in texts.items()
        if named.search(text)
        for n in decisions(ast.parse(text))
    ]
    assert found == []


def test_launching_and_plan_know_no_engine() -> None:
    engines = tuple(
        f"jobs.engines.{each.name}." for each in (JOBS / "engines").iterdir() if each.is_dir()
    )
    for path in [*modules("launching"), JOBS / "commands" / "plan.py"]:
        names = imported(ast.parse(path.read_text(encoding="utf-8")))
        assert [name for name in names if name.startswith(engines)] == [], path


def test_each_engine_of_the_contract_has_a_row() -> None:
    assert (set(ENGINES), set(STORES)) == (NAMES, NAMES)
