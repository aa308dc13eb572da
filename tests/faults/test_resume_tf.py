"""F2, F3 and F10 for TensorFlow and Keras with Horovod: killed, told to leave, or fed a bad loss.

Real ranks and real SIGKILLs, of one rank or of both; in the end weights, optimizer, generators and
position are those of the uninterrupted run to the bit, and no sample was seen twice or skipped. On
a CPU that holds without TensorFlow's determinism switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.busy import Bound, wait_until
from tests.campaign import campaign
from tests.fakes.torch_ranks import Gang, Strategy, Zygote, start_gang
from tests.faults.test_resume_pytorch import Killing
from tests.faults.torch_campaign import NUM_RANKS, Program, newest

TINY = "tests.integration.programs.tf_tiny"
ATTEMPT_S = 120.0


@pytest.fixture
def zygote(tensorflow_zygote: Zygote) -> Zygote:
    """What forks the ranks here."""
    return tensorflow_zygote


@dataclass(frozen=True, kw_only=True)
class TinyProgram(Program):
    """A small net with batch statistics and dropout in the ResNet program of a framework."""

    def start(
        self,
        zygote: Zygote,
        folder: Path,
        strategy: Strategy,
        *more: str,
        attempt: int = 0,
        size: int = NUM_RANKS,
        env: dict[str, str] | None = None,
    ) -> Gang:
        folder.mkdir(parents=True, exist_ok=True)
        watched = {"WATCH_INDEX": str(folder / "index"), "WATCH_ATTEMPT": str(attempt)}
        # The global batch stays eight pictures.
        batch = ("--batch-per-rank", str(8 // size))
        every = ("--checkpoint-every", str(self.checkpoint_every))
        return start_gang(
            zygote,
            [TINY, *self.arguments, *batch, *every, *more],
            strategy=strategy,
            size=size,
            folder=folder,
            env={**watched, "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})},
        )


def tiny(framework: str, *, num_epochs: int = 4) -> TinyProgram:
    sizes = ("--data", "synthetic", "--image-size", "32", "--num-images", "256")
    return TinyProgram(
        name=framework,
        module=TINY,
        arguments=(
            *(framework, "statistics", *sizes, "--num-classes", "4"),
            *("--epochs", str(num_epochs), "--warmup-epochs", "1"),
        ),
        num_steps=32 * num_epochs,
        steps_per_epoch=32,
        checkpoint_every=7,
    )


def kill_and_compare(zygote: Zygote, framework: str, folder: Path, num_kills: int) -> None:
    program = tiny(framework, num_epochs=1 if num_kills == 1 else 4)
    killing = Killing(zygote, program, "horovod", folder)
    killing.run(num_kills)
    campaign(
        f"F2 {framework}, horovod: SIGKILL of a rank or of both, then equal bits",
        tried=killing.num_kills,
        survived=killing.num_survived,
    )
    assert killing.errors == []
    # What is being written when the kill comes is lost, and what came after it.
    assert killing.most_lost <= 2 * program.checkpoint_every


@pytest.mark.parametrize("framework", ["tf", "keras"])
class TestKilled:
    def test_resume_is_exact(self, zygote, tmp_path, framework):
        kill_and_compare(zygote, framework, tmp_path, 1)

    @pytest.mark.faults
    @pytest.mark.timeout(3600)
    def test_resume_is_exact_fifty_times(self, zygote, tmp_path, framework):
        kill_and_compare(zygote, framework, tmp_path, 50)


def end_uninterrupted(zygote: Zygote, program: TinyProgram, folder: Path) -> None:
    gang = program.start(zygote, folder, "horovod")
    codes = gang.wait(ATTEMPT_S)
    gang.end()
    assert codes == [0] * NUM_RANKS, gang.texts()


def leave_and_compare(zygote: Zygote, framework: str, folder: Path, steps: list[int]) -> None:
    """Send SIGTERM to a rank at these steps, then let a new gang go on."""
    program = tiny(framework, num_epochs=2)
    end_uninterrupted(zygote, program, folder / "uninterrupted")
    num_survived, errors = 0, list[str]()
    for number, step in enumerate(steps):
        each = folder / str(number)
        env = {"WATCH_NOTICE": f"{number % NUM_RANKS} {step}"}
        gang = program.start(zygote, each, "horovod", env=env)
        wait_for_step(gang, each / "index", step)
        bound = Bound(10)
        codes = gang.wait(ATTEMPT_S)
        is_late = bound.is_passed()
        gang.end()
        saved = [text for text in gang.texts() if "; checkpoint of step" in text]
        if codes != [75] * NUM_RANKS or len(saved) != NUM_RANKS or is_late:
            errors.append(f"left with {codes}{' too late' * is_late}: {gang.texts()}")
            continue
        end_uninterrupted(zygote, program, each)
        if newest(each) == newest(folder / "uninterrupted"):
            num_survived += 1
        else:
            errors.append(f"other bits after a notice at step {step}")
    campaign(
        f"F3 {framework}, horovod: SIGTERM, checkpoint, exit code 75, then equal bits",
        tried=len(steps),
        survived=num_survived,
    )
    assert errors == []


def wait_for_step(gang: Gang, index: Path, step: int) -> None:
    wait_until(lambda: index.exists() and f" 0 {step} " in index.read_text(), ATTEMPT_S, gang.texts)


def spoil_and_look(zygote: Zygote, framework: str, folder: Path, steps: list[int]) -> None:
    """Spoil the loss of one rank at these steps; all ranks stop there and say where it was."""
    program = tiny(framework, num_epochs=2)
    num_survived, errors = 0, list[str]()
    for number, step in enumerate(steps):
        rank = number % NUM_RANKS
        each = folder / str(number)
        env = {"WATCH_FAULT": f"{rank} {step}"}
        gang = program.start(zygote, each, "horovod", env=env)
        codes = gang.wait(ATTEMPT_S)
        gang.end()
        where = f"the loss of rank {rank} is not finite at step {step} (epoch 1, batch {step}"
        said = [where in text and "Traceback" not in text for text in gang.texts()]
        named = f"; samples of rank {rank}: " in gang.texts()[rank]
        # One step later the sums are read; what was saved is from before the bad step.
        last = (step - 1) // program.checkpoint_every * program.checkpoint_every
        kept = newest(each)["position"]["step"] if last else 0
        if codes == [1] * NUM_RANKS and all(said) and named and kept == last:
            num_survived += 1
        else:
            errors.append(f"step {step}: {codes}, kept {kept}, {gang.texts()}")
    campaign(
        f"F10 {framework}, horovod: a loss that is no number ends both ranks in the next step",
        tried=len(steps),
        survived=num_survived,
    )
    assert errors == []


class TestLeft:
    @pytest.mark.parametrize("framework", [pytest.param("tf", marks=pytest.mark.faults), "keras"])
    def test_a_notice_leads_to_a_checkpoint_that_is_gone_on_from_exactly(
        self, zygote, tmp_path, framework
    ):
        leave_and_compare(zygote, framework, tmp_path, [10])

    @pytest.mark.parametrize("framework", ["tf", "keras"])
    @pytest.mark.faults
    @pytest.mark.timeout(1800)
    def test_ten_notices(self, zygote, tmp_path, framework):
        leave_and_compare(zygote, framework, tmp_path, [1, 2, 7, 14, 20, 31, 32, 33, 48, 60])

    @pytest.mark.parametrize("framework", ["tf", "keras"])
    def test_a_bad_loss_stops_both_ranks(self, zygote, tmp_path, framework):
        spoil_and_look(zygote, framework, tmp_path, [9])

    @pytest.mark.parametrize("framework", ["tf", "keras"])
    @pytest.mark.faults
    @pytest.mark.timeout(1800)
    def test_ten_bad_losses(self, zygote, tmp_path, framework):
        spoil_and_look(zygote, framework, tmp_path, [1, 2, 6, 7, 8, 13, 14, 15, 28, 32])


def test_two_ranks_go_on_where_one_and_four_left_off(zygote, tmp_path):
    """With equal global batches; another batch is refused by name."""
    program = tiny("tf", num_epochs=2)
    for size, step in ((1, 10), (4, 40), (2, None)):
        env = {"WATCH_NOTICE": f"0 {step}"} if step else {}
        gang = program.start(zygote, tmp_path, "horovod", size=size, env=env)
        codes = gang.wait(ATTEMPT_S)
        gang.end()
        assert codes == [75 if step else 0] * size, gang.texts()
    text = gang.texts()[0]
    assert "world size 1 there, 4 now" in text
    assert "world size 4 there, 2 now" in text
    gang = program.start(zygote, tmp_path, "horovod", "--batch-per-rank", "2")
    assert gang.wait(ATTEMPT_S) == [1, 1]
    gang.end()
    assert "is of another training: batch_size 8 there, 4 now" in gang.texts()[0]
    assert "rank 0 refused the checkpoint" in gang.texts()[1]
