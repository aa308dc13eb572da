"""The page of fault campaigns: what `make faults` writes into it, and when it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import judges, skips
from tests.documents import fault_counts
from tests.documents.fault_counts import BEGIN, END, Outcomes, counts_text, main


def test_counts_say_command_hardware_and_outcomes(monkeypatch):
    monkeypatch.setattr(fault_counts, "hardware", lambda: "2 cores of a machine")
    outcomes = Outcomes()
    outcomes.num_passed, outcomes.num_skipped = 70, 2
    text = counts_text(outcomes, ["F1: 3 tried, 3 survived", "F2: 5 tried, 5 survived"], 3000)
    first, *rest = text.splitlines()
    assert first.startswith("Command: `make faults`, in one go of 50 minutes. Date: 20")
    assert first.endswith(
        "Hardware: 2 cores of a machine. Tests: 70 passed, 2 skipped, none failed."
    )
    assert rest == ["", "- F1: 3 tried, 3 survived", "- F2: 5 tried, 5 survived"]


def test_the_committed_page_has_both_marks():
    page = fault_counts.PAGE.read_text(encoding="utf-8")
    assert (page.count(BEGIN), page.count(END)) == (1, 1)


@pytest.mark.parametrize(
    ("code", "words", "is_written"),
    [(0, [], True), (1, [], False), (0, ["tests/faults"], False)],
    ids=["all passed", "one failed", "a part"],
)
def test_the_page_is_written_after_a_whole_run_that_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: list[str], is_written: bool
):
    page = tmp_path / "faults.md"
    before = f"{BEGIN}\n\ncounts of before\n\n{END}\n"
    page.write_text(before, encoding="utf-8")
    monkeypatch.setattr(fault_counts, "PAGE", page)
    monkeypatch.setattr(fault_counts, "counts_text", lambda *_: "counts of now")
    monkeypatch.delenv(skips.VARIABLE, raising=False)
    asked: list[list[str]] = []
    monkeypatch.setattr(pytest, "main", lambda argv, plugins: asked.append(argv) or code)
    assert main(words) == code
    assert asked == [[*fault_counts.PYTEST, *words]]
    written = before.replace("before", "now") if is_written else before
    assert page.read_text(encoding="utf-8") == written
    # A whole run is judged: a skip that is not listed fails it.
    assert judges.is_ci() == (not words)
    monkeypatch.delenv(skips.VARIABLE, raising=False)


def test_pytest_takes_what_make_faults_gives_it():
    """Alone in its process: a plugin of pytest that was imported before ends it."""
    file = "tests/faults/test_checkpoint_disk.py"
    words = [sys.executable, "-m", "tests.documents.fault_counts", "--collect-only", "-q", file]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{file}::" in done.stdout
