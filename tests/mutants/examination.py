"""Runs test files once in a tree, in a process forked off a warm one, and says how they ended."""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

# An endless loop ends at this time of the processor: the clock's would be over on a loaded machine, too.
CPU_S = 120
# With them comes most of what the examined tests load; what is ours of it is loaded anew.
HEAVY = (
    "PIL.Image",
    "hypothesis",
    "infra.cloud.platform",
    "infra.policy.pack",
    "numpy",
    "rich",
    "yaml",
)
# A change that only breaks the module's text shows nothing about its tests, nor does a test's time limit.
NONSENSE = (ImportError, NameError, SyntaxError)
TIMED_OUT = "Failed: Timeout ("


class Verdict(StrEnum):
    """What tests say of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One run of tests: pytest's exit code, and the first failure."""

    exit_code: int
    failed: str = ""
    phase: str = ""
    error: str = ""
    is_nonsense: bool = False

    @property
    def verdict(self) -> Verdict:
        """CAUGHT only where a test itself failed: no collection, fixture, typing error or time-out counts."""
        if self.exit_code == pytest.ExitCode.OK:
            return Verdict.SURVIVED
        if self.exit_code != pytest.ExitCode.TESTS_FAILED or self.is_nonsense:
            return Verdict.BROKEN
        return Verdict.CAUGHT if self.phase == "call" else Verdict.BROKEN


class Witness:
    """The plugin that keeps the first failure of a run."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}

    def pytest_exception_interact(
        self,
        node: pytest.Item | pytest.Collector,
        call: pytest.CallInfo[Any],
        report: pytest.TestReport | pytest.CollectReport,
    ) -> None:
        """Keep what failed, in which phase and by what."""
        if self.first or call.excinfo is None:
            return
        error = call.excinfo.exconly(tryshort=True).partition("\n")[0]
        self.first = {
            "failed": node.nodeid,
            "phase": getattr(report, "when", ""),
            "error": error,
            "is_nonsense": call.excinfo.errisinstance(NONSENSE) or error.startswith(TIMED_OUT),
        }


def warm_up(heavy: Sequence[str] = HEAVY) -> None:
    """Load pytest, its plugins and what is heavy, so that a fork begins at once.

    A run of pytest loads its plugins as pytest itself would: later ones do not warn of them.
    """
    with tempfile.TemporaryDirectory() as empty, redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "--no-header", "-c", os.devnull, "--rootdir", empty, empty])
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, code
    for each in heavy:
        importlib.import_module(each)


def start(tree: Path, root: Path, tests: Sequence[str], answer: Path) -> int:
    """Begin a run of `tests` in `tree`, a copy of `root`, and give its process id at once.

    What it prints is in `answer` with the suffix `.log`; `answer` itself is there at its end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        _run(tree, root, tests, answer)
    except BaseException:  # noqa: BLE001 (the edge of this process; its log has the last word)
        traceback.print_exc()
    finally:
        os._exit(0)


def _run(tree: Path, root: Path, tests: Sequence[str], answer: Path) -> None:
    output = os.open(log_of(answer), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    _move_to(tree, root)
    # Not the one of all trees, whose older folders each run of pytest deletes at its end.
    temporary = tree.with_name(f"{tree.name}t")
    temporary.mkdir(exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = os.fspath(temporary)
    witness = Witness()
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[witness])
    foreign = _loaded_from(root)
    assert not foreign, f"loaded from the checkout, not from its copy: {foreign}"
    answer.write_text(json.dumps({"exit_code": int(code), **witness.first}), encoding="utf-8")


def read_answer(answer: Path, status: int = 0) -> Answer:
    """Read how a run ended; one that left no answer is broken. `status` is what `os.wait` gave."""
    if os.WIFSIGNALED(status):
        ended_by = signal.Signals(os.WTERMSIG(status)).name
        return Answer(exit_code=-1, error=f"its process was ended by {ended_by}")
    if not answer.exists():
        lines = log_of(answer).read_text(encoding="utf-8", errors="replace").splitlines()
        return Answer(exit_code=-1, error=lines[-1] if lines else "ended without a word")
    return Answer(**json.loads(answer.read_text(encoding="utf-8")))


def log_of(answer: Path) -> Path:
    """Where a run's output is."""
    return answer.with_suffix(".log")


def _move_to(tree: Path, root: Path) -> None:
    """Have this process, and what it starts, import from the copy: also the editable install."""
    for name in _loaded_from(root):
        del sys.modules[name]
    os.chdir(tree)
    os.environ["PYTHONPATH"] = os.fspath(tree)
    here = {"", os.fspath(root)}
    sys.path[:] = [os.fspath(tree), *(each for each in sys.path if each not in here)]
    sys.path_importer_cache.clear()


def _loaded_from(root: Path) -> list[str]:
    installed = os.fspath(root / ".venv")
    return [
        name
        for name, module in sys.modules.items()
        if (file := getattr(module, "__file__", None))
        and file.startswith(os.fspath(root) + os.sep)
        and not file.startswith(installed)
        and name != "__main__"
    ]
