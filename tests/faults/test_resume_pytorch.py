"""F2: a PyTorch training that is killed at any moment goes on exactly where its checkpoint was.

Real ranks and real SIGKILLs, of one rank or of all; in the end weights, optimizer, generators and
position are those of the uninterrupted run to the bit, and no sample was seen twice or skipped.
Two ranks: the sums of more depend on the order in which libraries add, which they do not promise.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import seeds
from tests.busy import wait_until
from tests.campaign import campaign
from tests.fakes.torch_ranks import Gang, Strategy, Zygote
from tests.faults.torch_campaign import (
    NUM_RANKS,
    Index,
    Program,
    checkpoints,
    index_errors,
    mnist,
    newest,
    read_index,
    tiny,
)

ATTEMPT_S = 120.0
SURVIVORS_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The uninterrupted run."""

    folder: Path
    index: Index
    seconds: float


def uninterrupted(zygote: Zygote, program: Program, strategy: Strategy, folder: Path) -> Reference:
    began_s = time.monotonic()
    gang = program.start(zygote, folder, strategy)
    codes = gang.wait(ATTEMPT_S)
    gang.end()
    assert codes == [0] * NUM_RANKS, gang.texts()
    seconds = time.monotonic() - began_s
    index = read_index(folder)
    assert index_errors(index, index, program.steps_per_epoch) == []
    assert {step for step, _ in index.rows} == set(range(1, program.num_steps + 1))
    return Reference(folder=folder, index=index, seconds=seconds)


class Killing:
    """One training after the other, killed at random, until there were so many kills."""

    def __init__(self, zygote: Zygote, program: Program, strategy: Strategy, folder: Path) -> None:
        self._zygote = zygote
        self._program = program
        self._strategy: Strategy = strategy
        self._folder = folder
        self._chance = seeds.dice(f"{program.name}/{strategy}")
        self.num_kills = 0
        self.num_survived = 0
        self.most_lost = 0
        self.errors: list[str] = []

    def run(self, num_kills: int) -> None:
        folder = self._folder / "uninterrupted"
        reference = uninterrupted(self._zygote, self._program, self._strategy, folder)
        number = 0
        while self.num_kills < num_kills:
            number += 1
            self._training(self._folder / str(number), reference, num_kills)

    def _training(self, folder: Path, reference: Reference, num_kills: int) -> None:
        before, attempt = self.num_kills, 0
        while True:
            attempt += 1
            gang = self._program.start(self._zygote, folder, self._strategy, attempt=attempt)
            delay_s = self._chance.uniform(0, reference.seconds)
            victims = self._chance.choice([[0], [1], [0, 1]])
            if self.num_kills == num_kills or self._zygote.wait(gang.pids, delay_s):
                codes = gang.wait(ATTEMPT_S)
                gang.end()
                break
            self.num_kills += any(self._zygote.code(gang.pids[rank]) is None for rank in victims)
            for rank in victims:
                gang.send(rank, signal.SIGKILL)
            # The others notice, or are ended as by a supervisor.
            gang.wait(SURVIVORS_S)
            gang.end()
        errors = [] if codes == [0] * NUM_RANKS else [f"ended with {codes}: {gang.texts()}"]
        if not errors:
            index = read_index(folder)
            self.most_lost = max(self.most_lost, index.most_lost)
            errors += index_errors(index, reference.index, self._program.steps_per_epoch)
            if newest(folder) != newest(reference.folder):
                errors.append(f"{newest(folder)} instead of {newest(reference.folder)}")
        self.errors += errors
        if not errors:
            self.num_survived += self.num_kills - before
            shutil.rmtree(folder)


def kill_and_compare(
    zygote: Zygote, programs: list[Program], strategy: Strategy, folder: Path, kills: list[int]
) -> None:
    done: list[Killing] = []
    for program, num_kills in zip(programs, kills, strict=True):
        killing = Killing(zygote, program, strategy, folder / program.name)
        killing.run(num_kills)
        done.append(killing)
    campaign(
        f"F2 PyTorch, {strategy}: SIGKILL of a rank or of both, then equal bits",
        tried=sum(each.num_kills for each in done),
        survived=sum(each.num_survived for each in done),
    )
    assert [error for each in done for error in each.errors] == []
    for program, each in zip(programs, done, strict=True):
        # Written beside the training: at worst the next one is due while the last is not whole yet.
        assert each.most_lost <= 2 * program.checkpoint_every, program.name


class TestKilled:
    def test_resume_of_ddp_is_exact(self, zygote, tmp_path):
        kill_and_compare(zygote, [tiny()], "ddp", tmp_path, [1])

    def test_resume_of_horovod_is_exact(self, zygote, pictures, tmp_path):
        kill_and_compare(zygote, [mnist(pictures)], "horovod", tmp_path, [2])

    @pytest.mark.faults
    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("strategy", ["ddp", "horovod"])
    def test_resume_is_exact_fifty_times(self, zygote, pictures, tmp_path, strategy):
        kill_and_compare(zygote, [tiny(), mnist(pictures)], strategy, tmp_path, [25, 25])


class TestRefused:
    """The disk refuses a checkpoint in the middle of a training."""

    def start(self, zygote: Zygote, folder: Path, strategy: Strategy, on_error: str) -> Gang:
        gang = tiny(20).start(zygote, folder, strategy, "--on-checkpoint-error", on_error)
        wait_until(lambda: checkpoints(folder), ATTEMPT_S, gang.texts)
        (folder / "checkpoints").rename(folder / "before")
        (folder / "checkpoints").write_text("no folder any more")
        return gang

    @pytest.mark.parametrize("strategy", ["ddp", "horovod"])
    def test_all_ranks_stop_together_where_they_are_told_to(self, zygote, tmp_path, strategy):
        gang = self.start(zygote, tmp_path, strategy, "stop")
        codes = gang.wait(ATTEMPT_S)
        gang.end()
        assert codes == [1, 1], gang.texts()
        assert all("error: rank 0 could not write a checkpoint" in text for text in gang.texts())

    def test_else_training_goes_on_and_says_so(self, zygote, tmp_path):
        gang = self.start(zygote, tmp_path, "ddp", "continue")
        codes = gang.wait(ATTEMPT_S)
        gang.end()
        assert codes == [0, 0], gang.texts()
        assert "could not be written: " in gang.texts()[0]
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["checkpoints_failed"] > 0
