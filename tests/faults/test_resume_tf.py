"""F2, F3 and F10 for TensorFlow and Keras with Horovod: killed, told to leave, or fed a bad loss.

Real ranks and real SIGKILLs, of one rank or of both; in the end weights, optimizer, generators and
position are those of the uninterrupted run to the bit, and no sample was seen twice or skipped. On
a CPU that holds without TensorFlow's determinism switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.errors import EnvironmentFailure
from jobs.images import PROJECT, runtime_python
from tests.campaign import campaign
from tests.fakes.torch_ranks import Gang, Strategy, Zygote, start_gang
from tests.faults.test_resume_pytorch import Killing
from tests.faults.torch_campaign import NUM_RANKS, Program

TINY = "tests.integration.programs.tf_tiny"
MODULES = ("trainer.tf.resnet50", "trainer.tfkeras.resnet50", "horovod.tensorflow", TINY)
ATTEMPT_S = 120.0


@pytest.fixture(scope="module")
def zygote(tmp_path_factory) -> Iterator[Zygote]:
    try:
        python = runtime_python("tensorflow", PROJECT)
    except EnvironmentFailure as error:
        pytest.skip(f"{error.message}; {error.hint}")
    made = Zygote(python, tmp_path_factory.mktemp("zygote"), MODULES)
    yield made
    made.close()


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
        # The global batch stays four pictures.
        batch = ("--batch-per-rank", str(4 // size))
        every = ("--checkpoint-every", str(self.checkpoint_every))
        return start_gang(
            zygote,
            [TINY, *self.arguments, *batch, *every, *more],
            strategy=strategy,
            size=size,
            folder=folder,
            env={**watched, "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})},
        )


def tiny(framework: str, *, num_epochs: int = 3) -> TinyProgram:
    sizes = ("--data", "synthetic", "--image-size", "32", "--num-images", "256")
    return TinyProgram(
        name=framework,
        module=TINY,
        arguments=(
            *(framework, "statistics", *sizes, "--num-classes", "4"),
            *("--epochs", str(num_epochs), "--warmup-epochs", "1"),
        ),
        num_steps=64 * num_epochs,
        steps_per_epoch=64,
        checkpoint_every=7,
    )


def kill_and_compare(zygote: Zygote, framework: str, folder: Path, num_kills: int) -> None:
    program = tiny(framework)
    killing = Killing(zygote, program, "horovod", folder)
    killing.run(num_kills)
    campaign(
        f"F2 {framework}, horovod: SIGKILL of a rank or of both, then equal bits",
        tried=killing.num_kills,
        survived=killing.num_survived,
    )
    assert killing.errors == []
    # What is being written when the kill comes is lost, and what came after it.
    assert killing.most_lost < 2 * program.checkpoint_every


@pytest.mark.parametrize("framework", ["tf", "keras"])
class TestKilled:
    def test_resume_is_exact(self, zygote, tmp_path, framework):
        kill_and_compare(zygote, framework, tmp_path, 5)

    @pytest.mark.faults
    @pytest.mark.timeout(3600)
    def test_resume_is_exact_fifty_times(self, zygote, tmp_path, framework):
        kill_and_compare(zygote, framework, tmp_path, 50)
