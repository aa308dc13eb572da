"""The run of mutants: what a test catches, what survives, and what shows nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.table import ROOT

MODULE = """\
LIMIT = 3


def fits(count):
    return count <= LIMIT


def double(count):
    return 2 * count
"""
TESTS = """\
import pytest

from limits import LIMIT, double, fits

assert LIMIT > 0


@pytest.fixture
def limit():
    assert LIMIT < 100
    return LIMIT


def test_no_more_than_the_limit_fits(limit):
    assert not fits(limit + 1)


def test_double():
    assert double(4) == 8
"""
TABLE = """\
[[module]]
file = "limits.py"
tests = ["test_limits.py"]
mutants = [
  { what = "one more fits", before = "count <= LIMIT", after = "count <= LIMIT + 1" },
  { what = "one less fits", before = "count <= LIMIT", after = "count < LIMIT" },
  { what = "no limit at import", before = "LIMIT = 3", after = "LIMIT = 0" },
  { what = "a limit that no fixture takes", before = "LIMIT = 3", after = "LIMIT = 100" },
  { what = "a word that nobody knows", before = "2 * count", after = "twice * count" },
  { what = "a test that runs out of time", before = "2 * count", after = '__import__("pytest").fail("Timeout (>1.0s)")' },
  { what = "an end by force", before = "2 * count", after = '__import__("os").kill(__import__("os").getpid(), 9)' },
  { what = "no double", before = "2 * count", after = "3 * count" },
]
"""
PROGRAM = """\
import sys
from pathlib import Path
from tests.mutants.__main__ import main
sys.exit(main(sys.argv[2:], root=Path(sys.argv[1]), tables=Path(sys.argv[1]), heavy=()))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "limits.py").write_text(MODULE)
    (tmp_path / "tests" / "test_limits.py").write_text(TESTS)
    (tmp_path / "table.toml").write_text(TABLE)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def examine(project: Path, *words: str) -> tuple[int, list[str]]:
    """Run in a process of its own, as `make mutants` does; the code, and lines without seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, project, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    said = re.sub(r" +[0-9.]+ s  ", "  ", done.stdout)
    # The last figure of the table are seconds, too.
    return done.returncode, re.sub(r" +[0-9]+\Z", "", said.rstrip()).splitlines()


def test_survivors_are_told_and_only_a_failing_test_catches(project: Path) -> None:
    code, lines = examine(project)
    told = sorted(each for each in lines if "limits.py: " in each and not each.startswith(" "))
    assert (code, told) == (
        1,
        [
            "BROKEN  limits.py: a limit that no fixture takes; no test failed by it: setup: "
            "assert 100 < 100",
            "BROKEN  limits.py: a test that runs out of time; no test failed by it: call: "
            "Failed: Timeout (>1.0s)",
            "BROKEN  limits.py: a word that nobody knows; no test failed by it: call: "
            "NameError: name 'twice' is not defined",
            "BROKEN  limits.py: an end by force; no test failed by it: pytest ended with -1: "
            "its process was ended by SIGKILL",
            "BROKEN  limits.py: no limit at import; no test failed by it: collect: assert 0 > 0",
            "SURVIVED  limits.py: one less fits; tests/test_limits.py passed",
            "caught  limits.py: no double; by tests/test_limits.py::test_double",
            "caught  limits.py: one more fits; "
            "by tests/test_limits.py::test_no_more_than_the_limit_fits",
        ],
    )
    assert lines[-2:] == [
        "planted  caught  survived  broken  seconds",
        "      8       2         1       5",
    ]
    assert (project / "limits.py").read_text() == MODULE


def test_nothing_is_planted_where_the_tests_fail_by_themselves(project: Path) -> None:
    (project / "tests" / "test_limits.py").write_text(TESTS.replace("== 8", "== 9"))
    code, lines = examine(project)
    assert code == 1
    assert "fails without a mutant: tests/test_limits.py: assert 8 == 9" in lines
    assert lines[-1] == "      0       0         0       0"


def test_a_mutant_that_has_no_place_is_an_error_with_its_place(project: Path) -> None:
    (project / "limits.py").write_text(MODULE.replace("2 * count", "count + count"))
    assert examine(project, "limits") == (
        2,
        [
            "limits.py: 'a word that nobody knows': found 0 times, not once: '2 * count'",
            "hint: mend the mutant in tests/mutants, or plant another one there",
        ],
    )
