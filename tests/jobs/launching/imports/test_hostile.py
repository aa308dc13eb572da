"""A campaign of projects with one planted secret each: nothing that is written or printed has it."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.jobs.launching.imports.hostile import documents
from tests.secret_shapes import find_secrets


@pytest.mark.parametrize("seed", range(4))
def test_no_planted_secret_is_written_or_printed(launching: Any, seed: int) -> None:
    project, made = launching.folder / "project", launching.folder / "made"
    for number, planted in enumerate(documents(seed, 50)):
        project.mkdir()
        for name, text in planted.files.items():
            (project / name).write_text(text, encoding="utf-8")
        words = ["--json"] if number % 2 else []
        typed = launching.type_bare("import", "project", "--into", "made", *words)
        assert typed.code in (0, 2, 3), typed.err
        shown = [typed.out, typed.err]
        shown += [
            f"{each}\n{each.read_text(encoding='utf-8')}"
            for each in made.rglob("*")
            if each.is_file()
        ]
        told = "\n".join(shown)
        assert planted.secret not in told, (planted.place, number)
        assert find_secrets(told) == [], (planted.place, number)
        for folder in (project, made):
            shutil.rmtree(folder, ignore_errors=True)
