"""No test vanishes from CI: skips, files, functions and whole lists that are gone fail the run."""

from __future__ import annotations

import re

import pytest

from tests import needs
from tests.skips import ALLOWED, CAMPAIGNS, find_allowed
from tests.suites import counts, run_suite

ROOT_ONLY = "only root may mount a small tmpfs"
SKIPS = f"""
import pytest

def test_passes(): pass

@pytest.mark.skipif(True, reason={ROOT_ONLY!r})
def test_allowed(): pass

def test_without_its_tool():
    pytest.skip("strace is not installed")
"""
MODULE = "import pytest\npytest.importorskip('no_such_module')\ndef test_judge(): pass\n"
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "with workers"])


def run(folder, files, *options, ci=True):
    return run_suite(folder / "suite", files, *options, environ={"TRAINYARD_CI": str(int(ci))})


@WORKERS
def test_a_skip_that_is_not_listed_fails_in_ci_and_says_how_to_list_it(tmp_path, workers):
    done = run(tmp_path, {"test_it.py": SKIPS}, *workers)
    assert (done.returncode, counts(done)) == (1, "1 failed, 1 passed, 1 skipped")
    said = done.stdout.splitlines()
    first = said.index(
        "test_it.py::test_without_its_tool was skipped in CI: strace is not installed"
    )
    assert said[first + 1 : first + 3] == [
        "No row of tests/skips.py allows that. Mend what is missing, or, where it may be missing, add a row:",
        r"    Skip(reason='strace\\ is\\ not\\ installed', why=..., proves=...)",
    ]


@WORKERS
def test_elsewhere_it_is_told_what_was_not_tried_and_what_it_would_have_proved(tmp_path, workers):
    done = run(tmp_path, {"test_it.py": SKIPS}, *workers, ci=False)
    assert (done.returncode, counts(done)) == (0, "1 passed, 2 skipped")
    told = done.stdout.partition(" not tried ")[2].splitlines()
    row = find_allowed(ROOT_ONLY)
    assert row is not None
    assert [line for line in told if line][1:-1] == [
        f"1 x {ROOT_ONLY}",
        f"    would have proved: {row.proves}",
        "1 x strace is not installed",
        "    in CI a failure (no row of tests/skips.py); would have proved:",
        "      test_it.py::test_without_its_tool",
    ]


def test_a_whole_file_that_skips_itself_fails_in_ci(tmp_path):
    files = {"test_it.py": MODULE, "test_other.py": "def test_it(): pass"}
    done = run(tmp_path, files, "-n", "2")
    assert done.returncode != 0
    assert "test_it.py was skipped in CI: could not import 'no_such_module'" in done.stdout


def test_an_expected_failure_fails_in_ci(tmp_path):
    marks = "@pytest.mark.xfail(reason='later')\n"
    expected = f"import pytest\n{marks}def test_it(): assert False\n"
    done = run(tmp_path, {"test_it.py": expected})
    assert "was skipped in CI: expected to fail: later" in done.stdout
    assert done.returncode == 1


def test_an_empty_list_of_cases_fails(tmp_path):
    none = "import pytest\n@pytest.mark.parametrize('each', [])\ndef test_it(each): pass\n"
    done = run(tmp_path, {"test_it.py": none}, ci=False)
    assert (done.returncode, counts(done)) == (2, "1 error")
    assert "Empty parameter set in 'test_it'" in done.stdout


@pytest.mark.parametrize(
    "options",
    [("--deselect=test_it.py::test_second",), ("--ignore=test_other.py",), ("-ksecond", "-n2")],
    ids=lambda options: options[0],
)
def test_nothing_but_the_long_campaigns_is_left_out_in_ci(tmp_path, options):
    files = {
        "test_it.py": "def test_first(): pass\ndef test_second(): pass\n",
        "test_other.py": "import pytest\n@pytest.mark.faults\ndef test_long(): pass\n",
    }
    done = run(tmp_path, files, *options)
    assert (done.returncode == 0, "1 error" in counts(done)) == (False, True)
    assert re.search(
        r"left out in CI, .*test_it.py::test_|never judged: test_other.py", done.stdout
    )


def test_all_but_the_long_campaigns_passes_in_ci(tmp_path):
    files = {
        "test_it.py": "class TestIt:\n    def test_first(self): pass\n",
        "inner/test_other.py": "import pytest\n@pytest.mark.faults\ndef test_long(): pass\n",
        # What a test compares with; pytest looks for examples in it.
        "test_words.txt": "az group create --name yard\n",
    }
    done = run(tmp_path, files)
    assert (done.returncode, counts(done)) == (0, "1 passed, 1 deselected")


LONG = """
import pytest

def test_short(): pass

@pytest.mark.faults
@pytest.mark.images
def test_container(): pass

@pytest.mark.faults
def test_long(): pass

@pytest.mark.faults
def test_without_its_tool():
    pytest.skip("azcopy cannot be installed: the index is out of reach")
"""


@pytest.mark.parametrize(
    ("options", "ended", "said"),
    [
        ((), "1 failed, 1 passed, 2 deselected", "test_without_its_tool was skipped in CI: azcopy"),
        (
            ("-kshort or long or container",),
            "3 deselected, 1 error",
            "left out in CI, which runs what is mar",
        ),
    ],
    ids=["an unlisted skip", "one left out"],
)
def test_campaigns_are_judged_as_all_else(tmp_path, options, ended, said):
    done = run(tmp_path, {"test_it.py": LONG}, "-m", CAMPAIGNS, *options)
    assert (done.returncode != 0, counts(done)) == (True, ended)
    assert said in done.stdout


HIDDEN = """
def test_it(): pass
test_it.__test__ = False
def test_other(): pass
X = '\\ndef test_x'
"""
METHOD = """
class TestIt:
    def test_it(self): pass
    test_it.__test__ = False
    def test_other(self): pass
"""
# The last one is there either way.
CONDITIONS = """
def test_other(): pass
if not test_other:
    def test_if(): pass
try:
    import no_such_module
    def test_try(): pass
except ImportError:
    def test_either(): pass
else:
    def test_either(): pass
"""
UNDER_IF = """
class TestIt:
    def test_other(self): pass
    if not test_other:
        def test_it(self): pass
"""


@pytest.mark.parametrize(
    ("name", "text", "lost"),
    [
        ("test_it.py", HIDDEN, "test_it"),
        ("test_it.py", METHOD, "test_it"),
        ("test_it.py", CONDITIONS, "test_if, test_try"),
        ("test_it.py", UNDER_IF, "test_it"),
        # A name that pytest passes over.
        ("inner/build/test_it.py", "def test_it(): pass", "build"),
    ],
    ids=["function", "method", "conditions", "method under a condition", "folder"],
)
def test_a_test_that_is_written_and_not_collected_fails_in_ci(tmp_path, name, text, lost):
    done = run(tmp_path, {"test_other.py": "def test_other(): pass", name: text})
    assert (done.returncode, counts(done)) == (2, "1 error")
    assert f"not collected, so never judged: {lost}\n" in done.stdout


def test_a_runtime_that_is_missing_is_a_failure_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(pytest.fail.Exception) as caught:
        needs.runtime("pytorch")
    assert str(caught.value) == (
        "the environment of the tests: image `pytorch` is not installed on this machine; "
        "hint: launch image install pytorch"
    )


def test_each_row_says_why() -> None:
    assert all(each.why and each.proves for each in ALLOWED)


@pytest.mark.parametrize(
    ("reason", "is_allowed"),
    [
        ("no network namespaces here: unshare: unshare failed: Operation not permitted", True),
        ("needs root, to give folders to another user", True),
        ("a small file system needs root", True),
        (
            "strace may not trace here: strace: test_ptrace_get_syscall_info: PTRACE_TRACEME: Operation not permitted"
            "\nstrace: ptrace(PTRACE_TRACEME, ...): Operation not permitted\nstrace: Process 9 detached",
            True,
        ),
        ("strace may not trace here: strace: Can't fopen '/x/log': Permission denied", False),
        ("strace may not trace here: ", False),
        (
            "no memory control group to be had here: [Errno 30] Read-only file system: "
            "'/sys/fs/cgroup/memory/trainyard-test-x'",
            True,
        ),
        (
            "no memory control group to be had here: [Errno 17] File exists: "
            "'/sys/fs/cgroup/memory/trainyard-test-x'",
            False,
        ),
        ("podman's containers are tried as root only: a storage of its own needs it", True),
        ("podman is not installed (apt-get install podman)", False),
        ("podman runs no container here: Error: unknown flag: --networks", False),
        ("podman runs no container here: Error: --pid=x: invalid argument", False),
        (
            "podman runs no container here: Error: crun: mount `proc`: Permission denied: OCI permission denied",
            True,
        ),
        (
            "podman runs no container here: warning: mount x: Operation not permitted\nError: crun: no such file `python3`",
            False,
        ),
        ("podman runs no container here: Error: option --ipc=own is not supported", False),
        ("buildah cannot keep images here: Error: mount overlay:/x: operation not permitted", True),
        (
            "buildah cannot keep images here: Error: storage.conf: key `graphrot` is not supported",
            False,
        ),
        (
            "no tmpfs can be mounted here: mount: /x: permission denied.\n       dmesg(1) may have more information",
            True,
        ),
        (
            "no tmpfs can be mounted here: mount: /x: mount point does not exist, not permitted or so",
            False,
        ),
        ("checkov cannot be installed: the index is out of reach; needs root", False),
        ("a judge that nobody fetched needs root", False),
    ],
)
def test_a_row_allows_no_more_than_a_whole_reason(reason: str, is_allowed: bool) -> None:
    assert (find_allowed(reason) is not None) == is_allowed
