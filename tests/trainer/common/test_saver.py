"""The saver: off the training thread, one at a time, and no failure goes unsaid."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.busy import HANG_S
from trainer.common.checkpoint import CheckpointFolder
from trainer.common.errors import TrainingError
from trainer.common.saver import OnSaveError, SaveFailure, Saver


def open_saver(
    root: Path, said: list[str], *, on_error: OnSaveError = "continue", keep_last: int = 2
) -> Saver:
    folder = CheckpointFolder(root, keep_last=keep_last)
    return Saver(folder, on_error=on_error, warn=said.append)


def steps(root: Path) -> list[int]:
    folder = CheckpointFolder(root)
    return [folder.read(name).step for name in folder.names()]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path):
    said: list[str] = []
    saver = open_saver(tmp_path, said)
    may_write, begun = threading.Event(), threading.Event()

    def files() -> dict[str, bytes]:
        begun.set()
        assert may_write.wait(HANG_S)
        return {"state.json": b"{}"}

    saver.save(1, files, {})
    assert begun.wait(HANG_S)
    assert (saver.num_saved, steps(tmp_path)) == (0, [])
    may_write.set()
    saver.wait()
    assert (saver.num_saved, saver.saved_step, steps(tmp_path), said) == (1, 1, [1], [])


def test_the_next_save_waits_for_the_one_before(tmp_path):
    saver = open_saver(tmp_path, [])
    running: list[int] = []
    most: list[int] = []

    def files() -> dict[str, bytes]:
        running.append(1)
        most.append(len(running))
        running.pop()
        return {}

    for step in range(1, 6):
        saver.save(step, files, {})
        assert step - 1 <= saver.num_saved <= step
    saver.wait()
    assert (most, saver.num_saved, steps(tmp_path)) == ([1] * 5, 5, [5, 4])


@pytest.mark.parametrize("on_error", ["continue", "stop"])
def test_checkpoint_that_cannot_be_written_is_told(tmp_path, on_error):
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    saver = open_saver(tmp_path / "file", said, on_error=on_error)
    saver.save(7, dict, {})
    saver.wait()
    saver.wait()
    assert (saver.num_saved, saver.num_failed, saver.saved_step) == (0, 1, None)
    assert saver.failure == (SaveFailure.DISK if on_error == "stop" else SaveFailure.NONE)
    rest = "" if on_error == "stop" else "; training goes on"
    message = "the checkpoint of step 7 could not be written: [Errno 17] File exists: "
    assert said == [f"{message}'{tmp_path / 'file'}'{rest}"]


def test_state_that_is_refused_stops_the_training_and_pushes_nothing_out(tmp_path):
    said: list[str] = []
    saver = open_saver(tmp_path, said, keep_last=1)
    saver.save(1, dict, {})

    def refuse() -> dict[str, bytes]:
        message = "weights are not finite"
        raise TrainingError(message)

    saver.save(2, refuse, {})
    saver.wait()
    assert (saver.failure, saver.num_failed, steps(tmp_path)) == (SaveFailure.STATE, 1, [1])
    assert said == ["no checkpoint of step 2 is written: weights are not finite"]


def test_our_own_mistake_is_raised_where_the_training_waits(tmp_path):
    saver = open_saver(tmp_path, [])
    saver.save(1, lambda: {}["missing"], {})
    with pytest.raises(KeyError, match="missing"):
        saver.wait()
    saver = open_saver(tmp_path, [])
    saver.save(2, dict, {"accuracy": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        saver.save(3, dict, {})
    assert list(tmp_path.iterdir()) == []


def test_old_checkpoint_that_cannot_be_removed_is_told_and_is_no_failed_save(tmp_path):
    said: list[str] = []
    saver = open_saver(tmp_path, said, keep_last=1)
    saver.save(1, dict, {})
    saver.wait()
    (next(tmp_path.iterdir()) / "folder").mkdir()
    saver.save(2, dict, {})
    saver.wait()
    assert (saver.num_saved, saver.num_failed, steps(tmp_path)) == (2, 0, [2])
    assert len(said) == 1
    assert "could not be removed" in said[0]
