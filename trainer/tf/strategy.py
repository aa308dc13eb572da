"""Connects the ranks of a TensorFlow or Keras program: alone, or with Horovod."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from trainer.common.accelerators import count_gpus, place_on_gpu, refuse_unusable
from trainer.common.errors import TrainingError
from trainer.common.program import RanksOf
from trainer.common.training_options import DeviceName
from trainer.common.world import World

StrategyName = Literal["single", "horovod"]


class Strategy(Protocol):
    """The ranks' collectives: all ranks call each method but `tape` and `shutdown`, in order.

    `name` tells collectives apart that may be under way at once.
    """

    name: StrategyName

    def init(self, world: World, device: DeviceName) -> None:
        """Meet the other ranks; blocks until all are there."""
        ...

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Give all ranks rank 0's values."""
        ...

    def tape(self, tape: tf.GradientTape) -> tf.GradientTape:
        """Give a tape whose gradients are the mean over all ranks."""
        ...

    def average(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Give the mean of each gradient over all ranks; in a graph, too."""
        ...

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Add up the tensor over all ranks; in a graph, too."""
        ...

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Give every rank's array, in the order of ranks; all have the same shape."""
        ...

    def barrier(self) -> None:
        """Wait until every rank is here."""
        ...

    def shutdown(self) -> None:
        """Leave the group, waiting for nobody; silent where `init` was never reached."""
        ...


Ranks: TypeAlias = RanksOf[Strategy]


def make_strategy(name: StrategyName | None, world: World) -> Strategy:
    """Make the strategy of that name; None is single for one rank and Horovod for more."""
    name = name or ("single" if world.size == 1 else "horovod")
    if name == "single" and world.size > 1:
        message = f"strategy single cannot train on {world.size} ranks"
        raise TrainingError(message, hint="--strategy horovod")
    return {"single": Single, "horovod": Horovod}[name]()


def pick_device(name: DeviceName, world: World) -> DeviceName:
    """Show TensorFlow this rank's GPU only, by LOCAL_RANK, or none; before its first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(world.num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(world.num_threads)
    gpus = [] if name == "cpu" else tf.config.list_physical_devices("GPU")
    if name != "cpu" and not gpus:
        why = "it could not load CUDA or cuDNN, or has none; its lines above say which"
        refuse_unusable("TensorFlow", why, os.environ, num_gpus=count_gpus())
    if name == "cuda" and not gpus:
        message = "--device cuda, but TensorFlow sees no GPU here"
        raise TrainingError(message, hint="--device cpu")
    if not gpus:
        tf.config.set_visible_devices([], "GPU")
        return "cpu"
    gpu = gpus[place_on_gpu(world, os.environ, num_visible=len(gpus), num_gpus=count_gpus())]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, enable=True)
    return "cuda"


class Single:
    """One process, nobody to talk to."""

    name: StrategyName = "single"

    def init(self, world: World, device: DeviceName) -> None:
        """Do nothing: there are no other ranks."""

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Do nothing: there are no other ranks."""

    def tape(self, tape: tf.GradientTape) -> tf.GradientTape:
        """Give the tape back."""
        return tape

    def average(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Give the gradients back."""
        return list(gradients)

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:  # noqa: ARG002
        """Give the tensor back."""
        return tensor

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Give the one array there is."""
        return [array]

    def barrier(self) -> None:
        """Do nothing: there are no other ranks."""

    def shutdown(self) -> None:
        """Do nothing: there are no other ranks."""


class Horovod:
    """Horovod, over Gloo or MPI as it was started; over NCCL on GPUs."""

    name: StrategyName = "horovod"

    def __init__(self) -> None:
        self._hvd: Any = None

    def init(self, world: World, device: DeviceName) -> None:
        """Meet the other ranks; refuses a group that is not the one World says."""
        try:
            import horovod.tensorflow as hvd
        except ImportError as error:
            message = f"Horovod cannot be loaded here: {error}"
            raise TrainingError(message, hint="an image with Horovod") from None
        if device == "cuda" and not hvd.nccl_built():
            message = "this Horovod was built without NCCL, which it needs on a GPU"
            raise TrainingError(message, hint="--device cpu")
        hvd.init()
        if (hvd.rank(), hvd.size()) != (world.rank, world.size):
            message = (
                f"Horovod says rank {hvd.rank()} of {hvd.size()}, "
                f"the launcher says rank {world.rank} of {world.size}"
            )
            raise TrainingError(message, hint="start it with `launcher: horovod` or `mpi`")
        self._hvd = hvd

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Broadcast one by one: names are those of the variables' places."""
        for number, variable in enumerate(variables):
            value = self._hvd.broadcast(variable, root_rank=0, name=f"broadcast.{number}")
            variable.assign(value)

    def tape(self, tape: tf.GradientTape) -> tf.GradientTape:
        """Wrap the tape: each gradient is averaged as soon as it is ready."""
        return self._hvd.DistributedGradientTape(tape)

    def average(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Average each gradient as soon as it is ready."""
        return [
            self._hvd.allreduce(gradient, op=self._hvd.Average, name=f"gradient.{number}")
            for number, gradient in enumerate(gradients)
        ]

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Add up by allreduce."""
        return self._hvd.allreduce(tensor, op=self._hvd.Sum, name=name)

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Gather along a new first dimension."""
        return list(self._hvd.allgather(tf.constant(array[None]), name="gather").numpy())

    def barrier(self) -> None:
        """Wait in an allreduce of its own."""
        self.sum(tf.zeros(()), "barrier")

    def shutdown(self) -> None:
        """Tell the other ranks that this one leaves."""
        if self._hvd is not None:
            self._hvd.shutdown()
            self._hvd = None
