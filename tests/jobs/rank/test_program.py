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
# What Python has had since 3.10 or later, in words of its What's New. No type checker tells it any more:
# the stubs that they bring begin with 3.10.
NEWER_NAMES = frozenset(
    [
        "pairwise",
        "batched",
        "aiter",
        "anext",
        "StrEnum",
        "ReprEnum",
        "UTC",
        "tomllib",
        "TaskGroup",
        "ExceptionGroup",
        "BaseExceptionGroup",
        "add_note",
        "bit_count",
        "hardlink_to",
        "aclosing",
        "file_digest",
        "NoneType",
        "EllipsisType",
        "UnionType",
        "ParamSpec",
        "TypeAlias",
        "TypeGuard",
        "Self",
        "Never",
        "LiteralString",
        "assert_never",
        "assert_type",
        "reveal_type",
        "Unpack",
        "NotRequired",
        "get_annotations",
        "stdlib_module_names",
        "orig_argv",
        "EncodingWarning",
        "text_encoding",
        "cbrt",
        "exp2",
        "getLevelNamesMapping",
        "is_junction",
        "from_uri",
        "full_match",
        "itermonthdays3",
        "process_cpu_count",
        "sumprod",
        "eventfd",
        "splice",
        "setns",
    ]
)
NEWER_OPTIONS = {
    "zip": {"strict"},
    "map": {"strict"},
    "dataclass": {"slots", "kw_only", "match_args", "weakref_slot"},
    "field": {"kw_only"},
    "bisect": {"key"},
    "bisect_left": {"key"},
    "bisect_right": {"key"},
    "insort": {"key"},
    "mkdtemp": {"delete"},
    "TemporaryDirectory": {"ignore_cleanup_errors", "delete"},
    "NamedTemporaryFile": {"delete_on_close"},
    "Popen": {"process_group"},
    "run": {"process_group"},
    "rmtree": {"onexc", "dir_fd"},
    "extractall": {"filter"},
    "create_connection": {"all_errors"},
}
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


def newer_than_3_9(source: str) -> list[str]:
    """What of the standard library a Python 3.9 has not, by name or by option."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = {each.name.partition(".")[0] for each in node.names}
            names |= {getattr(node, "module", None) or ""}
        elif isinstance(node, ast.Attribute):
            names = {node.attr}
        elif isinstance(node, ast.Name):
            names = {node.id}
        else:
            names = set[str]()
        found += sorted(names & NEWER_NAMES)
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = {each.arg for each in node.keywords} & NEWER_OPTIONS.get(called, set())
            found += sorted(f"{called}({each}=)" for each in given if each)
            is_union = len(node.args) > 1 and isinstance(node.args[1], ast.BinOp)
            if called in {"isinstance", "issubclass"} and is_union:
                found.append(f"{called}(x, a | b)")
    return found


@pytest.mark.parametrize(
    ("source", "newer"),
    [
        ("from itertools import pairwise", ["pairwise"]),
        ("import tomllib", ["tomllib"]),
        ("datetime.now(datetime.UTC)", ["UTC"]),
        ("zip(a, b, strict=True)", ["zip(strict=)"]),
        ("@dataclass(frozen=True, slots=True)\nclass A: ...", ["dataclass(slots=)"]),
        ("isinstance(x, int | str)", ["isinstance(x, a | b)"]),
        ("isinstance(x, (int, str)); zip(a, b); dataclass(frozen=True)", []),
    ],
)
def test_what_is_newer_than_3_9_is_known(source: str, newer: list[str]) -> None:
    assert newer_than_3_9(source) == newer


@pytest.mark.parametrize("path", sorted(RANK.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_python_3_9_has_what_each_module_of_the_room_calls(path: Path) -> None:
    assert newer_than_3_9(path.read_text(encoding="utf-8")) == []
