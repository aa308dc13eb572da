"""The guard's account of time: its own work on a step, without waits for others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.trainer.common.test_keeper import keeper
from trainer.common.errors import TrainingError
from trainer.common.guard import ReadSums, StepGuard
from trainer.common.position import Position, TakenStep
from trainer.common.preemption import Notice, Preempted
from trainer.common.world import World

SUMS = [2.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0]


class Alone(StepGuard):
    """A rank whose report takes 1 s, and whose peers answer after 10 s."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.notice = Notice()
        kept = keeper(folder, World())
        super().__init__(World(), self.notice, kept, on_loss=self.note, hint="none")
        self.losses: list[float] = []
        self.clock = clock
        self.sums = SUMS

    def note(self, taken: TakenStep, loss: float, accuracy: float | None) -> None:
        assert accuracy is None
        self.losses.append(loss)
        self.clock[0] += 2.0

    def step(self, number: int) -> None:
        taken = TakenStep(step=number, epoch=1, batch=number)
        # No checkpoint is due at an odd step.
        self._after_step(Position(step=2 * number + 1, batch=1), taken, self.begin)

    def begin(self) -> ReadSums:
        self.clock[0] += 1.0
        return self.read

    def read(self) -> list[float]:
        self.clock[0] += 10.0
        return self.sums


def test_the_hosts_part_of_a_step_holds_no_wait_for_other_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    guard = Alone(tmp_path, clock)
    told: list[float] = []
    for number in range(3):
        guard.step(number)
        told.append(guard.take_host_s())
    assert told == [1.0, 3.0, 3.0]
    assert guard.losses == [0.25, 0.25]
    assert guard.take_host_s() == 0.0


def test_the_steps_of_ranks_that_leave_are_told_to_the_last(tmp_path: Path) -> None:
    guard = Alone(tmp_path, [0.0])
    guard.step(0)
    guard.sums = [2.0, 8.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    with pytest.raises(Preempted):
        guard.step(1)
    assert guard.losses == [0.25, 0.25]


@pytest.mark.parametrize("is_own", [True, False])
def test_where_a_rank_cannot_go_on_all_keep_a_checkpoint_and_end_as_failed(
    tmp_path: Path, *, is_own: bool
) -> None:
    guard = Alone(tmp_path, [0.0])
    if is_own:
        guard.notice.fail(TrainingError("nine pictures are corrupt", hint="get them again"))
        guard.notice.fail(TrainingError("ten are"))
    assert guard._flags() == (0.0, float(is_own), 0.0)
    guard.step(0)
    guard.sums = [2.0, 8.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    with pytest.raises(TrainingError) as caught:
        guard.step(1)
    assert guard.losses == [0.25, 0.25]
    why = "nine pictures are corrupt" if is_own else "another rank cannot go on"
    hint = "get them again" if is_own else "that rank's last line says why"
    assert str(caught.value) == f"{why}; checkpoint of step 3 is kept (hint: {hint})"
    (kept,) = (tmp_path / "checkpoints").iterdir()
    assert kept.name.startswith("step-000000003-")
