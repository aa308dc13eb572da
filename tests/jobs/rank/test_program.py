"""The file that starts a rank: compiled for a Python like ours, and there for any other one."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from jobs.rank import program
from jobs.rank.program import RANK_MODULES, rank_program

RANK = Path(program.__file__).parent
LOADED = "import sys; sys.path.insert(0, {path!r}); import jobs.rank.main; print(jobs.rank.main.__file__)"


@pytest.mark.parametrize(("is_ours", "ending"), [(True, "pyc"), (False, "py")])
def test_a_rank_starts_from_what_its_python_can_read(
    tmp_path: Path, is_ours: bool, ending: str
) -> None:
    path = tmp_path / "rank.pyz"
    content = rank_program()
    path.write_bytes(content if is_ours else of_another_version(content))
    program = LOADED.format(path=str(path))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{path}/jobs/rank/main.{ending}"


def of_another_version(content: bytes) -> bytes:
    """The same file, as a Python of another version would have compiled it."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            each = old.read(info)
            is_compiled = info.filename.endswith(".pyc")
            new.writestr(info, b"\0\0\r\n" + each[len(MAGIC_NUMBER) :] if is_compiled else each)
    return made.getvalue()


def test_the_file_holds_what_ranks_need_and_no_more() -> None:
    with zipfile.ZipFile(io.BytesIO(rank_program())) as archive:
        names = {Path(name).stem for name in archive.namelist()}
    assert names == {"__main__", "__init__", *RANK_MODULES}


@pytest.mark.parametrize("path", sorted(RANK.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_python_3_9_reads_each_module_of_the_room(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    first = next(each for each in tree.body if isinstance(each, ast.ImportFrom))
    # Without it an annotation `str | None` would be computed, which 3.9 cannot.
    assert (first.module, first.names[0].name) == ("__future__", "annotations")
