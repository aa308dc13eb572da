"""No text is read or written in whatever encoding the machine's language happens to have."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.images.runtimes import PROJECT
from tests.fakes.gangs import make_environment

# Opens without a mode that are no files.
NO_FILE = {"part", "session"}
# Without one of these words a file has no such call.
OPENS = re.compile(r"\b(?:open|fdopen|read_text|write_text|TemporaryFile)\b|\btext *= *True\b")


def opened_by_locale(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that leave the encoding to the locale."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute | ast.Name):
            continue
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
        keys = {each.arg for each in call.keywords}
        words = [each.value for each in call.args if isinstance(each, ast.Constant)]
        modes = [word for word in words if re.fullmatch(r"[rwaxbt+]{1,3}", str(word))]
        is_text = {
            # A path is given its encoding so, a package's metadata the name of a file that is UTF-8.
            "read_text": not call.args,
            "write_text": True,
            "fdopen": "b" not in "".join(modes),
            "TemporaryFile": "b" not in "".join(modes) and bool(modes),
            "open": (
                "b" not in modes[-1]
                if modes
                else not (call.args or keys) and getattr(owner, "id", "") not in NO_FILE
            ),
        }.get(name, any(map(is_text_mode, call.keywords)))
        if is_text and "encoding" not in keys:
            yield call.lineno


def is_text_mode(given: ast.keyword) -> bool:
    """Whether a keyword is `text=True`."""
    value = given.value.value if isinstance(given.value, ast.Constant) else None
    return given.arg == "text" and value is True


@pytest.mark.parametrize("package", ["infra", "jobs", "tools", "trainer"])
def test_every_file_of_text_is_opened_with_its_encoding(package: str) -> None:
    found = [
        f"{path.relative_to(PROJECT)}:{line}"
        for path in sorted((PROJECT / package).rglob("*.py"))
        if OPENS.search(text := path.read_text(encoding="utf-8"))
        for line in opened_by_locale(ast.parse(text))
    ]
    assert found == []


def test_names_that_the_language_c_has_no_letters_for_are_read_and_printed(tmp_path: Path) -> None:
    folder = tmp_path / "prójekt 学習"
    folder.mkdir()
    (folder / "träin.py").touch()
    job = "name: a\nimage: pytorch\nscript: träin.py\nargs: {titel: Grüße}\n"
    (folder / "job.yaml").write_text(job, encoding="utf-8")
    environment = msgspec.json.encode(make_environment(tmp_path / "ws"))
    (folder / "environment.json").write_bytes(environment)
    command = "import sys; from jobs.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "plan", "job.yaml", "--env", "environment.json"],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONPATH": str(PROJECT)},
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "python 'träin.py' --titel 'Grüße'" in done.stdout.decode()
