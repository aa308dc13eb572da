"""F1, F9: a writer killed at any system call, of a save or of a removal, loses no checkpoint."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.campaign import campaign
from tests.faults.programs.checkpoint_writer import files
from tests.faults.tracing import (
    Call,
    calls_between_marks,
    ends_of_rows,
    require_strace,
    run_with_fault,
)
from trainer.common.checkpoint import BrokenCheckpoint, CheckpointFolder

WRITER = Path(__file__).parent / "programs" / "checkpoint_writer.py"
# Calls that change what is on the disk; between two others nothing is there to be lost.
CHANGING = {"mkdir", "write", "fsync", "unlink", "rmdir"}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is there before, what is saved, and what is there when nothing goes wrong."""

    before: Sequence[int]
    step: int
    after: Sequence[int]
    keep_last: int = 3
    keep_every: int | None = None

    @property
    def after_a_crash(self) -> set[int]:
        """Steps that must be loadable whatever happened: what is kept before and after alike."""
        return set(self.before) & set(self.after)


SCENARIOS = {
    "first save": Scenario(before=[], step=10, after=[10]),
    "later save": Scenario(before=[10, 20], step=30, after=[10, 20, 30]),
    "removal": Scenario(
        before=[10, 20, 30, 40, 50], step=60, after=[20, 40, 50, 60], keep_last=2, keep_every=20
    ),
}


def prepare(folder: Path, scenario: Scenario) -> Path:
    """Make what is there before; also what an earlier killed writer left."""
    root = folder / "run" / "checkpoints"
    made = CheckpointFolder(root, keep_last=100)
    for step in scenario.before:
        written = made.write(step, files(step), {"step": step})
    for number in range(2 if scenario.before else 0):
        leftover = root / f"step-{number:09d}-00000000"
        shutil.copytree(written, leftover)
        (leftover / "manifest.json").unlink()
    return root


def command(root: Path, scenario: Scenario) -> list[str | Path]:
    steps = [str(scenario.keep_last), str(scenario.keep_every or 0), str(scenario.step)]
    return [sys.executable, "-I", "-S", WRITER, root, *steps]


def loadable(root: Path) -> list[int]:
    """Steps of all checkpoints that can be read, each compared with what was written."""
    folder = CheckpointFolder(root)
    read = [folder.read(name) for name in folder.names()]
    assert [(each.files, each.about) for each in read] == [
        (files(each.step), {"step": each.step}) for each in read
    ]
    return [each.step for each in read]


def calls_of(tmp_path: Path, scenario: Scenario) -> list[Call]:
    for name in ("warm", "reference"):  # the first run writes the compiled modules
        root = prepare(tmp_path / name, scenario)
        calls = calls_between_marks(command(root, scenario), tmp_path / "log")
        assert sorted(loadable(root)) == scenario.after
    return calls


def refuse(text: str) -> None:
    if "was never finished" in text:  # what a cut save leaves is no broken checkpoint
        return
    raise AssertionError(text)


def crash(folder: Path, scenario: Scenario, call: Call) -> None:
    """Kill the writer at the call; what must be there is, and the next save puts all right."""
    root = prepare(folder, scenario)
    done = run_with_fault(command(root, scenario), call, "signal=KILL")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "begun\n"), (call, done)
    found = set(loadable(root))
    assert scenario.after_a_crash <= found <= {*scenario.before, scenario.step}, call
    if scenario.before:
        assert len(found) >= min(scenario.keep_last, len(scenario.before)), call
        newest = CheckpointFolder(root).newest(refuse)
        assert newest is not None
        assert newest.step in {max(scenario.before), scenario.step}
    step = scenario.step + 10
    folder_after = CheckpointFolder(root, keep_last=1)
    folder_after.write(step, files(step), {"step": step})
    folder_after.remove_old(refuse)
    assert loadable(root) == [step]
    assert len(list(root.iterdir())) == 1


def crash_everywhere(tmp_path: Path, name: str, calls: Sequence[Call]) -> None:
    scenario = SCENARIOS[name]
    survived, lost = 0, []
    for number, call in enumerate(calls):
        try:
            crash(tmp_path / str(number), scenario, call)
            survived += 1
        except (AssertionError, BrokenCheckpoint) as error:
            lost.append(error)
        shutil.rmtree(tmp_path / str(number))
    kind = "F9" if name == "removal" else "F1"
    campaign(f"{kind} kill at each call of a {name}", tried=len(calls), survived=survived)
    assert not lost, lost[0]


@pytest.mark.parametrize("name", SCENARIOS)
def test_writer_killed_at_a_call_that_changes_the_disk_loses_nothing(
    tmp_path: Path, name: str
) -> None:
    require_strace(tmp_path)
    calls = [call for call in calls_of(tmp_path, SCENARIOS[name]) if call.name in CHANGING]
    crash_everywhere(tmp_path, name, ends_of_rows(calls))


@pytest.mark.faults
@pytest.mark.parametrize("name", SCENARIOS)
def test_writer_killed_at_any_call_loses_nothing(tmp_path: Path, name: str) -> None:
    require_strace(tmp_path)
    crash_everywhere(tmp_path, name, calls_of(tmp_path, SCENARIOS[name]))


def test_files_reach_the_disk_before_the_manifest_and_the_manifest_before_any_removal(
    tmp_path: Path,
) -> None:
    require_strace(tmp_path)
    calls = calls_of(tmp_path, SCENARIOS["removal"])
    name = re.escape(f"step-{SCENARIOS['removal'].step:09d}-")
    ours = re.compile(rf"/checkpoints(?:/({name})[0-9a-f]{{8}}(?:/([\w.]+))?)?>")
    order: list[tuple[str, str]] = []
    for call in calls:
        found = ours.search(call.arguments)
        if call.name in {"fsync", "write"} and found:
            place = found[2] or ("folder" if found[1] else "checkpoints")
            if (call.name, place) not in order[-1:]:
                order.append((call.name, place))
        elif call.name in {"unlink", "rmdir"} and ("removal", "") not in order[-1:]:
            order.append(("removal", ""))
    assert order == [
        ("removal", ""),  # what an earlier writer left unfinished
        ("write", "model.safetensors"),
        ("fsync", "model.safetensors"),
        ("fsync", "ranks.safetensors"),  # empty
        ("write", "state.json"),
        ("fsync", "state.json"),
        ("fsync", "folder"),
        ("write", "manifest.json"),
        ("fsync", "manifest.json"),
        ("fsync", "folder"),
        ("fsync", "checkpoints"),
        ("removal", ""),
    ]


def test_folder_that_had_to_be_made_is_synced_to_the_disk(tmp_path: Path) -> None:
    require_strace(tmp_path)
    calls = calls_of(tmp_path, SCENARIOS["first save"])
    synced = [call.arguments for call in calls if call.name == "fsync"]
    assert any(each.endswith("/reference>") for each in synced)
    assert any(each.endswith("/run>") for each in synced)
