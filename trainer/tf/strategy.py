"""Connects the ranks of a TensorFlow or Keras program: alone, with Horovod, or MultiWorkerMirrored."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

# TensorFlow has no public name of its coordination service's keys.
from tensorflow.python.eager import context

from trainer.common.accelerators import (
    count_gpus,
    place_on_gpu,
    refuse_unusable,
    require_one_kind,
)
from trainer.common.errors import TrainingError
from trainer.common.program import RanksOf
from trainer.common.training_options import DeviceName
from trainer.common.world import World

StrategyName = Literal["single", "horovod", "mwms"]
# By which TensorFlow's launchers tell each process its cluster and its place in it.
CLUSTER = "TF_CONFIG"
# Types of what TensorFlow's collectives add up.
REDUCED = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64)
# TensorFlow counts the keys of its own groups of collectives up from 1.
GROUP_OF_HOSTS = 1 << 30
# How long rank 0 waits for the others as it leaves.
LEAVE_MS = 60_000


class Strategy(Protocol):
    """Exchange tensors between ranks; all ranks call each method but `shutdown`, in one order.

    `name` tells collectives apart that may be under way at once.
    """

    name: StrategyName

    def init(self, world: World, device: DeviceName) -> None:
        """Meet the other ranks; blocks until all are there."""
        ...

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Give all ranks rank 0's values."""
        ...

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, weights: Sequence[tf.Variable]
    ) -> list[tf.Tensor]:
        """Give the mean over all ranks of each weight's gradient; in a graph, too."""
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

    @property
    def waits_to_leave(self) -> bool:
        """Tell whether `shutdown` waits for what other ranks have under way."""
        ...

    def shutdown(self) -> None:
        """Leave the group; silent where `init` was never reached."""
        ...


Ranks: TypeAlias = RanksOf[Strategy]


def make_strategy(name: StrategyName | None, world: World) -> Strategy:
    """Make the strategy of that name.

    None is single for one rank; for more mwms where a launcher told the cluster, else Horovod.
    """
    if name is None and world.size > 1:
        name = "mwms" if CLUSTER in os.environ else "horovod"
    name = name or "single"
    if name == "single" and world.size > 1:
        message = f"strategy single cannot train on {world.size} ranks"
        raise TrainingError(message, hint="--strategy horovod")
    return {"single": Single, "horovod": Horovod, "mwms": MultiWorkerMirrored}[name]()


def pick_device(name: DeviceName, world: World) -> DeviceName:
    """Show TensorFlow this rank's GPU only, by LOCAL_RANK, or none; before its first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(world.num_threads)
    # Beside TF_CONFIG the launcher sets them: servers block on them while they wait for each other.
    if CLUSTER not in os.environ:
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
    gpu = gpus[place_on_gpu(world, os.environ, num_visible=len(gpus))]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, enable=True)
    return "cuda"


def copy_of_main(variables: Sequence[Any], strategy: Strategy, world: World) -> None:
    """Give Keras's variables rank 0's values, to the bit; a collective outside of a graph."""
    if not variables or world.size == 1:
        return
    own = [each.numpy() for each in variables]
    data = b"".join(each.tobytes() for each in own)
    words = np.frombuffer(data + bytes(-len(data) % 8), np.int64)  # what no `gather` widens
    told, start = strategy.gather(words)[0].tobytes(), 0
    for variable, value in zip(variables, own, strict=True):
        part = np.frombuffer(told, value.dtype, value.size, start)
        variable.assign(part.reshape(value.shape))
        start += value.nbytes


class Single:
    """One process, nobody to talk to."""

    name: StrategyName = "single"
    waits_to_leave = False

    def init(self, world: World, device: DeviceName) -> None:
        """Do nothing: there are no other ranks."""

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Do nothing: there are no other ranks."""

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, weights: Sequence[tf.Variable]
    ) -> list[tf.Tensor]:
        """Give the tape's own."""
        return tape.gradient(loss, weights)

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


class WideEnough:
    """A compression of Horovod's that has bfloat16, which it has no operations of, sent as fp32."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType]:
        """Give what is sent, and the type that it is of."""
        wide = tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
        return wide, tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, kind: tf.DType) -> tf.Tensor:
        """Give what came in its own type."""
        return tensor if tensor.dtype == kind else tf.cast(tensor, kind)


class Horovod:
    """Horovod, over Gloo or MPI as it was started; over NCCL on GPUs."""

    name: StrategyName = "horovod"
    waits_to_leave = False

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
        with tf.device("/CPU:0"):
            is_gpu = tf.constant(int(device == "cuda"), tf.uint8)
            is_gpu_0 = hvd.broadcast(is_gpu, root_rank=0, name="device").numpy()
        require_one_kind(world.rank, is_gpu=device == "cuda", is_gpu_0=bool(is_gpu_0))

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Broadcast one by one: names are those of the variables' places."""
        for number, variable in enumerate(variables):
            own, kind = WideEnough.compress(variable.read_value())
            value = self._hvd.broadcast(own, root_rank=0, name=f"broadcast.{number}")
            variable.assign(WideEnough.decompress(value, kind))

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, weights: Sequence[tf.Variable]
    ) -> list[tf.Tensor]:
        """Average each gradient as soon as it is ready."""
        tape = self._hvd.DistributedGradientTape(tape, compression=WideEnough)
        return tape.gradient(loss, weights)

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


class MultiWorkerMirrored:
    """Use MultiWorkerMirroredStrategy's collectives, one replica a rank, by NCCL on GPUs.

    Each rank keeps variables of its own, which equal gradients keep equal, as with Horovod: its
    network, optimizer and checkpoints are the same objects under every strategy.
    """

    name: StrategyName = "mwms"

    def __init__(self) -> None:
        self._strategy: tf.distribute.MultiWorkerMirroredStrategy | None = None
        self._rank, self._size = 0, 1
        self._graphs: dict[tuple[Any, ...], Callable[..., list[tf.Tensor]]] = {}

    def init(self, world: World, device: DeviceName) -> None:
        """Meet the other ranks; refuses a cluster that is not the one World says."""
        require_cluster(world, os.environ)
        self._rank, self._size = world.rank, world.size
        heard = signal.getsignal(signal.SIGTERM)
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        # Its coordination service takes the signal for itself, and tells nobody here.
        signal.signal(signal.SIGTERM, heard)
        # The strategy's own collectives are of the devices, and a CPU and a GPU have none together.
        with tf.device(f"/job:worker/task:{world.rank}/device:CPU:0"):
            try:
                is_gpu_0 = tf.raw_ops.CollectiveReduceV2(
                    input=tf.constant(world.is_main and device == "cuda", tf.float32),
                    group_size=world.size,
                    group_key=GROUP_OF_HOSTS,
                    instance_key=1,
                    ordering_token=[],
                    merge_op="Add",
                    final_op="Id",
                    communication_hint="ring",
                ).numpy()
            except tf.errors.OpError as error:  # as where another rank was refused, and has left
                why = str(error.message).partition("\n")[0]
                message = f"rank {world.rank} lost another one as they met: {why}"
                raise TrainingError(message, hint="the rank that ended first says why") from None
        require_one_kind(world.rank, is_gpu=device == "cuda", is_gpu_0=bool(is_gpu_0))

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Add up rank 0's values and the others' zeros, in int64 what collectives have no type of."""
        own = [
            variable.read_value() if self._rank == 0 else tf.zeros_like(variable)
            for variable in variables
        ]
        sent = [each if each.dtype in REDUCED else tf.cast(each, tf.int64) for each in own]
        for variable, value in zip(variables, self._reduce("SUM", sent), strict=True):
            variable.assign(tf.cast(value, variable.dtype))

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, weights: Sequence[tf.Variable]
    ) -> list[tf.Tensor]:
        """Average all gradients in a few collectives of many each; None is that of an unused weight."""
        own = tape.gradient(loss, weights)
        there = [each for each in own if each is not None]
        means = iter(self._reduce("MEAN", there) if there else [])
        return [each if each is None else next(means) for each in own]

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:  # noqa: ARG002
        """Add up by allreduce."""
        return self._reduce("SUM", [tf.convert_to_tensor(tensor)])[0]

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Add up arrays that hold a rank's own in its place, and zeros in the others'."""
        wide = array.astype(np.int64) if array.dtype.kind in "ui" else array
        places = np.zeros((self._size, *array.shape), wide.dtype)
        places[self._rank] = wide
        return list(self.sum(tf.constant(places), "gather").numpy().astype(array.dtype))

    def barrier(self) -> None:
        """Wait in an allreduce of its own."""
        self.sum(tf.zeros(()), "barrier").numpy()

    @property
    def waits_to_leave(self) -> bool:
        """Tell whether this rank has met the others, and leaves when they do."""
        return self._strategy is not None

    def shutdown(self) -> None:
        """Leave when no rank waits for another; rank 0, whose service all ask, leaves last.

        A rank that ends right after its part of the last collective cuts off a slower one's.
        """
        strategy, self._strategy = self._strategy, None
        if strategy is None or self._size == 1:
            return
        service, others = context.context(), range(1, self._size)
        with contextlib.suppress(tf.errors.OpError):  # one has ended: there is nobody to wait for
            if self._rank == 0:
                for rank in others:
                    service.get_config_key_value(f"trainyard/done/{rank}", LEAVE_MS)
                service.set_config_key_value("trainyard/all_done", "1")
                for rank in others:
                    service.get_config_key_value(f"trainyard/left/{rank}", LEAVE_MS)
            else:
                service.set_config_key_value(f"trainyard/done/{self._rank}", "1")
                service.get_config_key_value("trainyard/all_done")
                service.set_config_key_value(f"trainyard/left/{self._rank}", "1")

    def _reduce(self, how: Literal["SUM", "MEAN"], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        if not tf.executing_eagerly():
            return self._reduce_in_graph(how, [*tensors])
        # A collective outside of a graph is slow, and TensorFlow warns of each, and of a graph that
        # is made again and again for other shapes.
        key = (how, *((each.dtype, tuple(each.shape)) for each in tensors))
        if key not in self._graphs:
            reduce = functools.partial(self._reduce_in_graph, how)
            self._graphs[key] = tf.function(reduce, autograph=False)
        return self._graphs[key]([*tensors])

    def _reduce_in_graph(
        self, how: Literal["SUM", "MEAN"], tensors: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        assert self._strategy is not None, "before init"
        how_in_tf = getattr(tf.distribute.ReduceOp, how)

        def reduce(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            # A tensor of a graph has a device only where it was made under the replica's.
            placed = [tf.identity(tensor) for tensor in tensors]
            context, found = tf.distribute.get_replica_context(), [*placed]
            # A collective takes many tensors of one type.
            for kind in dict.fromkeys(each.dtype for each in placed):
                places = [place for place, each in enumerate(placed) if each.dtype == kind]
                reduced = context.all_reduce(how_in_tf, [placed[place] for place in places])
                for place, each in zip(places, reduced, strict=True):
                    found[place] = each
            return found

        return self._strategy.run(reduce, args=(tensors,))


def require_cluster(world: World, environ: Mapping[str, str]) -> None:
    """Raise TrainingError where TF_CONFIG is missing, or names another place than World does."""
    hint = "start it with `launcher: tensorflow`"
    try:
        told = json.loads(environ[CLUSTER])
        workers, task = told["cluster"]["worker"], told["task"]
        found = (task["type"], task["index"], len(workers), len(told["cluster"]))
    except KeyError as missing:
        message = f"--strategy mwms needs {CLUSTER} with a cluster of workers: no {missing}"
        raise TrainingError(message, hint=hint) from None
    except (ValueError, TypeError) as error:
        message = f"{CLUSTER} says no cluster and task: {error}"
        raise TrainingError(message, hint=hint) from None
    if found != ("worker", world.rank, world.size, 1):
        message = (
            f"{CLUSTER} says {found[0]} {found[1]} of {found[2]} workers, "
            f"the launcher says rank {world.rank} of {world.size}"
        )
        raise TrainingError(message, hint=f"{hint}, without a chief or parameter servers")
