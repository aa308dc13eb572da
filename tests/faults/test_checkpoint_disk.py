"""F8: a full disk, or one with errors, costs at most the checkpoint that is being written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.campaign import campaign
from tests.faults.programs.checkpoint_writer import files
from tests.faults.test_checkpoint_crashes import refuse
from tests.faults.tracing import (
    Call,
    calls_between_marks,
    ends_of_rows,
    require_strace,
    run_with_fault,
)
from tests.folders import read_folder
from tests.mounts import fill
from trainer.common.checkpoint import BrokenCheckpoint, CheckpointFolder
from trainer.common.saver import OnSaveError, SaveFailure, Saver

WRITER = Path(__file__).parent / "programs" / "checkpoint_writer.py"
DISK_BYTES = 8 << 20
GRAIN_BYTES = 64 << 10
# What a checkpoint of LARGE takes on the disk, in whole pages.
LARGE = {"model.safetensors": b"m" * (1 << 20), "optimizer.safetensors": b"o" * (2 << 20)}
# Errors of the disk are tried at these calls, each with those that the kernel may give there.
ERRORS = {
    "mkdir": ("ENOSPC", "EIO", "EROFS"),
    "openat": ("ENOSPC", "EIO", "EMFILE"),
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "fsync": ("ENOSPC", "EIO"),
    "close": ("EIO",),
    "unlink": ("EIO", "EROFS"),
    "rmdir": ("EIO",),
    "getdents64": ("EIO",),
    "newfstatat": ("EIO",),
    "read": ("EIO",),
}


def newest_step(root: Path) -> int:
    found = CheckpointFolder(root).newest(refuse)
    assert found is not None
    return found.step


def save(saver: Saver, step: int) -> None:
    saver.save(step, lambda: LARGE, {"step": step})
    saver.wait()


@pytest.mark.parametrize("on_error", ["continue", "stop"])
def test_disk_that_fills_anywhere_in_a_save_costs_that_checkpoint_only(
    small_disk: Path, on_error: OnSaveError
) -> None:
    root = small_disk / "checkpoints"
    tried, survived, refused = 0, 0, 0
    CheckpointFolder(root).write(1, {"state.json": b"{}"}, {})
    before = read_folder(root)
    size = sum(map(len, LARGE.values()))
    for leave in range(0, size + 2 * GRAIN_BYTES, GRAIN_BYTES):
        ballast = fill(small_disk, leave=leave)
        said: list[str] = []
        saver = Saver(CheckpointFolder(root), on_error=on_error, warn=said.append)
        save(saver, 2)
        tried += 1
        if saver.num_saved:
            assert (saver.num_failed, saver.failure, said) == (0, SaveFailure.NONE, [])
            assert newest_step(root) == 2
            shutil.rmtree(max(root.iterdir()))
        else:
            refused += 1
            rest = "" if on_error == "stop" else "; training goes on"
            assert said == [
                "the checkpoint of step 2 could not be written: "
                f"[Errno 28] No space left on device{rest}"
            ] or (leave == 0 and "No space left on device" in said[0])
            assert (saver.num_failed, saver.failure) == (
                1,
                SaveFailure.DISK if on_error == "stop" else SaveFailure.NONE,
            )
            assert read_folder(root) == before
            assert newest_step(root) == 1
        ballast.unlink()
        survived += 1
    campaign(f"F8 disk full at each 64 KiB, {on_error}", tried=tried, survived=survived)
    assert (refused, tried) == (size // GRAIN_BYTES + 1, size // GRAIN_BYTES + 2)


def test_saves_go_on_when_there_is_space_again(small_disk: Path) -> None:
    root = small_disk / "checkpoints"
    said: list[str] = []
    saver = Saver(CheckpointFolder(root, keep_last=1), on_error="continue", warn=said.append)
    save(saver, 1)
    ballast = fill(small_disk, leave=GRAIN_BYTES)
    save(saver, 2)
    save(saver, 3)
    ballast.unlink()
    save(saver, 4)
    assert (saver.num_saved, saver.num_failed, len(said)) == (2, 2, 2)
    assert [path.name[:14] for path in root.iterdir()] == ["step-000000004"]


def test_space_that_an_unfinished_save_holds_is_used_for_the_next(small_disk: Path) -> None:
    root = small_disk / "checkpoints"
    folder = CheckpointFolder(root)
    (folder.write(900, LARGE, {}) / "manifest.json").unlink()
    ballast = fill(small_disk, leave=GRAIN_BYTES)
    folder.write(10, LARGE, {})
    assert newest_step(root) == 10
    ballast.unlink()


# --- errors of the disk ------------------------------------------------------------------------


def prepare(folder: Path) -> Path:
    root = folder / "checkpoints"
    made = CheckpointFolder(root)
    for step in (10, 20):
        made.write(step, files(step), {"step": step})
    return root


def command(root: Path) -> list[str | Path]:
    return [sys.executable, "-I", "-S", WRITER, root, "1", "0", "30"]


def err(folder: Path, call: Call, error: str) -> None:
    """Let the call fail; what the writer says must be true, and nothing whole be lost."""
    root = prepare(folder)
    done = run_with_fault(command(root), call, f"error={error}")
    assert (done.returncode, done.stderr) == (0, ""), (call, error, done)
    told = json.loads(done.stdout.splitlines()[1])
    read = CheckpointFolder(root)
    loadable = [read.read(name) for name in read.names()]
    assert [(each.step, each.files) for each in loadable] == [
        (each.step, files(each.step)) for each in loadable
    ]
    steps = {each.step for each in loadable}
    if told["written"]:
        assert 30 in steps, (call, error, told)
    else:
        assert told["said"], (call, error)
        assert {10, 20} <= steps, (call, error, told)
        assert newest_step(root) in {20, 30}


def err_everywhere(tmp_path: Path, points: Sequence[tuple[Call, str]]) -> None:
    wrong: list[Exception] = []
    for number, (call, error) in enumerate(points):
        try:
            err(tmp_path / str(number), call, error)
        except (AssertionError, BrokenCheckpoint) as problem:
            wrong.append(problem)
        shutil.rmtree(tmp_path / str(number))
    survived = len(points) - len(wrong)
    campaign("F8 disk error at a call of a save", tried=len(points), survived=survived)
    assert wrong == []


def points(tmp_path: Path) -> list[tuple[Call, str]]:
    for name in ("warm", "reference"):  # the first run writes the compiled modules
        calls = calls_between_marks(command(prepare(tmp_path / name)), tmp_path / "log")
    return [(call, error) for call in calls for error in ERRORS.get(call.name, ())]


def test_disk_error_in_a_save_is_told_and_costs_no_other_checkpoint(tmp_path: Path) -> None:
    require_strace(tmp_path)
    names = {"mkdir", "write", "fsync", "unlink", "rmdir"}
    calls = [call for call, error in points(tmp_path) if call.name in names and error == "EIO"]
    err_everywhere(tmp_path, [(call, "EIO") for call in ends_of_rows(calls)])


@pytest.mark.faults
def test_no_disk_error_at_any_call_costs_another_checkpoint(tmp_path: Path) -> None:
    require_strace(tmp_path)
    err_everywhere(tmp_path, points(tmp_path))
