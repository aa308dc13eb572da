"""What test_steps_tf.py asks of the steps of TensorFlow's and Keras's programs.

main([])     prints what it found as JSON; works in the working folder
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import trainer.tf.find_batch
import trainer.tf.loop
import trainer.tf.resnet50
import trainer.tf.steps
import trainer.tfkeras.model
from tests.integration.programs import tf_tiny
from trainer.common.rundir import RunDir
from trainer.common.throughput import Throughput
from trainer.tf.loader import Noise
from trainer.tf.profiling import Profiler

FRAMEWORKS = {"tf": trainer.tf.resnet50, "keras": trainer.tfkeras.model}
SMALL = ("--data", "random", "--num-images", "12", "--batch-per-rank", "4", "--image-size", "32")
# Seconds that a slow source takes for a batch.
WAIT_S = 0.2
# Pictures that the memory of the device holds, which is made up.
ROOM = 5


def call(framework: str, *arguments: str) -> tuple[int, str]:
    """Run a tiny program; gives its exit code and the last line that it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = tf_tiny.main([framework, "statistics", *SMALL, *arguments])
    return code, said.getvalue().splitlines()[-1]


def graphs(framework: str) -> object:
    """How often Python runs through a step and an evaluation's, which a graph that is there does not."""
    module, counts = FRAMEWORKS[framework], {"make_step": 0, "make_score": 0}

    def counted(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            call = make(*given)

            def call_counted(element: Any) -> Any:
                counts[name] += 1
                return call(element)

            return call_counted

        return made

    with contextlib.ExitStack() as stack:
        for name in counts:
            replaced = counted(name, getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, replaced))
        code, _ = call(framework, "--epochs", "3", "--profile", "9", "--output-dir", framework)
    assert code == 0, code
    return counts


def profiled(framework: str) -> str:
    """What the profile of the training before says of its length."""
    return Path(framework, "profile", "kernels.txt").read_text().splitlines()[0]


def waits(framework: str) -> list[float]:
    """The waits that are counted in the six steps of two epochs of a source that takes WAIT_S a batch."""

    def read(noise: Noise, *given: Any) -> Any:
        reading = read_at_once(noise, *given)
        reading.dataset = reading.dataset.map(
            lambda element: tf.numpy_function(slow, [element], tf.int64)
        )
        return reading

    def slow(element: np.ndarray) -> np.ndarray:
        time.sleep(WAIT_S)
        return element

    def add_wait(throughput: Throughput, seconds: float) -> None:
        counted.append(seconds)
        add(throughput, seconds)

    read_at_once, add, counted = Noise.read, Throughput.add_wait, []
    with (
        mock.patch.object(Noise, "read", read),
        mock.patch.object(Throughput, "add_wait", add_wait),
    ):
        code, _ = call(framework, "--epochs", "2", "--output-dir", f"waits-{framework}")
    assert code == 0, code
    return counted


def unprofiled(_framework: str) -> str:
    """What is said of a profile while another one is being made."""
    said = io.StringIO()
    tf.profiler.experimental.start("another")
    profiler = Profiler(RunDir.from_environment({}), device="cpu", num_steps=1, say=print)
    profiler.plan(1)
    with contextlib.redirect_stderr(said), profiler:
        profiler.step()
    tf.profiler.experimental.stop()
    return said.getvalue().partition(": ")[2].partition(":")[0]


def bounded(
    cross_entropy: Callable[..., tf.Tensor], tried: list[int]
) -> Callable[[tf.Tensor, tf.Tensor, float], tf.Tensor]:
    """Give a loss whose kernel has no memory for more than ROOM pictures."""

    def require(number: np.ndarray) -> np.ndarray:
        tried.append(int(number))
        if number > ROOM:
            raise MemoryError
        return number

    def loss(scores: tf.Tensor, labels: tf.Tensor, smoothing: float) -> tf.Tensor:
        number = tf.numpy_function(require, [tf.shape(scores)[0]], tf.int32)
        with tf.control_dependencies([number]):
            return cross_entropy(scores, labels, smoothing)

    return loss


def searched(framework: str) -> object:
    """What is said of the largest batch on a CPU, on a device as if it were a GPU, and by a training."""
    tried: list[int] = []
    found: dict[str, Any] = {"on a CPU": call(framework, "--find-batch", "--output-dir", "cpu")}
    steps, module = trainer.tf.steps, trainer.tf.find_batch
    with (
        mock.patch.object(steps, "cross_entropy", bounded(steps.cross_entropy, tried)),
        mock.patch.object(module, "require_one_gpu"),
    ):
        found["search"] = call(framework, "--find-batch", "--output-dir", "search")
        found["tried"] = [*tried]
        found["train"] = call(framework, "--batch-per-rank", "6", "--output-dir", "train")
    cudnn = (
        "No algorithm worked! Error messages: Profiling failure: RESOURCE_EXHAUSTED: Out of memory"
    )
    for name, full in {
        "predict": tf.errors.ResourceExhaustedError(None, None, "OOM"),
        "cuDNN": tf.errors.NotFoundError(None, None, cudnn),
    }.items():
        with mock.patch.object(trainer.tf.loop, "predict", side_effect=full):
            found[name] = call(framework, "--predict", ".", "--model", "search/summary.json")
    found["summary"] = json.loads(Path("search/summary.json").read_text())
    return found


def main(_argv: Sequence[str] = ()) -> None:
    """Print what each found, of each framework."""
    checks = (graphs, profiled, unprofiled, waits, searched)
    found = {each.__name__: {name: each(name) for name in FRAMEWORKS} for each in checks}
    print(json.dumps(found))
