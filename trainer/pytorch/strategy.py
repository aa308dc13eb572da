"""Connects the ranks of a PyTorch program: alone, with Horovod, or with DDP."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainer.common.accelerators import (
    count_gpus,
    place_on_gpu,
    refuse_unusable,
    require_one_kind,
    require_own_gpus,
)
from trainer.common.errors import TrainingError
from trainer.common.program import RanksOf
from trainer.common.training_options import DeviceName
from trainer.common.world import FROM_ENVIRONMENT, World
from trainer.pytorch.layout import DenseViews, dense_view
from trainer.pytorch.meeting import agree_on_devices, meet, name_of_gpu

StrategyName = Literal["single", "horovod", "ddp"]


class Strategy(Protocol):
    """The ranks' collectives: all ranks call each method but `shutdown`, in the same order."""

    name: StrategyName

    def init(self, world: World, device: torch.device) -> None:
        """Meet the other ranks; blocks until all are there."""
        ...

    def wrap(
        self, model: nn.Module, optimizer: Optimizer, *, num_backwards: int = 1
    ) -> tuple[nn.Module, Optimizer]:
        """Give all ranks rank 0's weights, and average gradients from now on.

        A step has `num_backwards` backward passes, whose gradients add up; the last one averages.
        The optimizer must be as fresh as it was made: its state is not sent.
        """
        ...

    def averaged(self, optimizer: Optimizer) -> AbstractContextManager[None]:
        """Wait for the gradients' average; inside they may be changed before the optimizer's step.

        All ranks see the same gradients there, so that they clip or skip alike.
        """
        ...

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensor over all ranks."""
        ...

    def start_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin to add up; what is given back waits for the sum.

        Other collectives may come in between, but no second one of these.
        """
        ...

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Give every rank's tensor, in the order of ranks; all have the same shape."""
        ...

    def gather_to_main(self, tensor: Tensor) -> list[Tensor]:
        """Give rank 0 every rank's tensor, in the order of ranks, and the others none of them."""
        ...

    def barrier(self) -> None:
        """Wait until every rank is here."""
        ...

    @property
    def waits_to_leave(self) -> bool:
        """Tell whether `shutdown` waits for what other ranks have under way, as NCCL does."""
        ...

    def shutdown(self) -> None:
        """Leave the group; silent where `init` was never reached."""
        ...


Ranks: TypeAlias = RanksOf[Strategy]


def make_strategy(name: StrategyName | None, world: World) -> Strategy:
    """Make the strategy of that name; None is single for one rank and DDP for more.

    Who names a backend or a meeting place of torch.distributed means DDP, too.
    """
    is_told = world.backend is not None or world.url not in (None, FROM_ENVIRONMENT)
    name = name or ("single" if world.size == 1 and not is_told else "ddp")
    if is_told and name != "ddp":
        message = f"--dist-backend and --dist-url are not for strategy {name}"
        raise TrainingError(message, hint="--strategy ddp, or leave them out")
    if name == "single" and world.size > 1:
        message = f"strategy single cannot train on {world.size} ranks"
        raise TrainingError(message, hint="--strategy horovod or --strategy ddp")
    return {"single": Single, "horovod": Horovod, "ddp": Ddp}[name]()


def pick_device(name: DeviceName, world: World) -> torch.device:
    """Give this rank its GPU by LOCAL_RANK, or the CPU where there is none.

    Raises TrainingError for a GPU that is there and cannot be used, or would be another rank's, too.
    """
    if name != "cpu" and not torch.cuda.is_available():
        refuse_unusable("PyTorch", why_no_cuda(), os.environ, num_gpus=count_gpus())
        if name == "cuda":
            message = "--device cuda, but PyTorch sees no GPU here"
            raise TrainingError(message, hint="--device cpu")
        name = "cpu"
    if name == "cpu":
        return torch.device("cpu")
    number = place_on_gpu(world, os.environ, num_visible=torch.cuda.device_count())
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def why_no_cuda() -> str:
    """Give PyTorch's own words for why it can use no GPU."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return "it sees none"


class Single:
    """One process, nobody to talk to."""

    name: StrategyName = "single"
    waits_to_leave = False

    def init(self, world: World, device: torch.device) -> None:
        """Do nothing: there are no other ranks."""

    def wrap(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        num_backwards: int = 1,  # noqa: ARG002
    ) -> tuple[nn.Module, Optimizer]:
        """Give both back as they are."""
        return model, optimizer

    def averaged(self, optimizer: Optimizer) -> AbstractContextManager[None]:  # noqa: ARG002
        """Wait for nothing: there is nothing to average."""
        return nullcontext()

    def sum(self, tensor: Tensor) -> Tensor:
        """Give the tensor back."""
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Give the value back: there is nothing to wait for."""
        return lambda: tensor

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Give the one tensor there is."""
        return [tensor]

    def gather_to_main(self, tensor: Tensor) -> list[Tensor]:
        """Give the one tensor there is."""
        return [tensor]

    def barrier(self) -> None:
        """Do nothing: there are no other ranks."""

    def shutdown(self) -> None:
        """Do nothing: there are no other ranks."""


class Horovod:
    """Horovod, over Gloo or MPI as it was started; over NCCL on GPUs."""

    name: StrategyName = "horovod"
    waits_to_leave = False

    def __init__(self) -> None:
        self._hvd: Any = None

    def init(self, world: World, device: torch.device) -> None:
        """Meet the other ranks; refuses a group that is not the one World says."""
        try:
            import horovod.torch as hvd
        except ImportError as error:
            message = f"Horovod cannot be loaded here: {error}"
            raise TrainingError(message, hint="--strategy ddp, or an image with Horovod") from None
        if device.type == "cuda" and not hvd.nccl_built():
            message = "this Horovod was built without NCCL, which it needs on a GPU"
            raise TrainingError(message, hint="--strategy ddp, or --device cpu")
        hvd.init()
        if (hvd.rank(), hvd.size()) != (world.rank, world.size):
            message = (
                f"Horovod says rank {hvd.rank()} of {hvd.size()}, "
                f"the launcher says rank {world.rank} of {world.size}"
            )
            raise TrainingError(message, hint="start it with `launcher: horovod` or `mpi`")
        self._hvd = hvd
        is_gpu = torch.tensor(int(device.type == "cuda"), dtype=torch.uint8)
        is_gpu_0 = hvd.broadcast(is_gpu, root_rank=0, name="device").item()
        require_one_kind(world.rank, is_gpu=device.type == "cuda", is_gpu_0=bool(is_gpu_0))
        if device.type == "cuda":
            own = torch.tensor(list(name_of_gpu(device).encode()), dtype=torch.uint8)
            require_own_gpus([bytes(each.tolist()).decode() for each in self.gather(own)])

    def wrap(
        self, model: nn.Module, optimizer: Optimizer, *, num_backwards: int = 1
    ) -> tuple[nn.Module, Optimizer]:
        """Broadcast the weights and average gradients as they become ready.

        Raises TrainingError for complex numbers, which Horovod does not send.
        """
        if any(value.is_complex() for value in model.state_dict().values()):
            message = "Horovod sends no complex numbers, and the network holds some"
            raise TrainingError(message, hint="--strategy ddp")
        # Horovod refuses what is not contiguous, such as weights that lie channels last.
        weights = {name: dense_view(value) for name, value in model.state_dict().items()}
        self._hvd.broadcast_parameters(weights, root_rank=0)
        # broadcast_optimizer_state would send pickles; a fresh optimizer has no state to send.
        wrapped = self._hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=DenseViews,
            backward_passes_per_step=num_backwards,
        )
        return model, wrapped

    @contextmanager
    def averaged(self, optimizer: Optimizer) -> Generator[None]:
        """Wait for the average here; the step inside does not average again."""
        averaging: Any = optimizer
        averaging.synchronize()
        with averaging.skip_synchronize():
            yield

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up by allreduce; under a name, since gradients may be under way."""
        return self._hvd.allreduce(tensor, op=self._hvd.Sum, name="sum")

    def start_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin an allreduce, under a name that the gradients do not have."""
        handle = self._hvd.allreduce_async(tensor, op=self._hvd.Sum, name="started")
        return lambda: self._hvd.synchronize(handle)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Gather along a new first dimension."""
        return list(self._hvd.allgather(tensor.unsqueeze(0)))

    def gather_to_main(self, tensor: Tensor) -> list[Tensor]:
        """Gather everywhere by Horovod's allgather, and let go of it on the other ranks.

        Each of them receives all bytes, and holds them until then: Horovod has no gather to one rank.
        """
        parts = self.gather(tensor)
        return parts if self._hvd.rank() == 0 else []

    def barrier(self) -> None:
        """Wait in a collective of its own."""
        self._hvd.barrier()

    def shutdown(self) -> None:
        """Tell the other ranks that this one leaves."""
        if self._hvd is not None:
            self._hvd.shutdown()
            self._hvd = None


# Lines of NCCL's errors that tell nothing.
EMPTY_ERRORS = ("", "Last error")


class Ddp:
    """PyTorch's DistributedDataParallel, over NCCL on GPUs and Gloo elsewhere."""

    name: StrategyName = "ddp"

    def init(self, world: World, device: torch.device) -> None:
        """Meet the other ranks where World says."""
        backend = world.backend or ("nccl" if device.type == "cuda" else "gloo")
        if backend == "nccl" and device.type != "cuda":
            message = "--dist-backend nccl is for GPUs, and this rank computes on the CPU"
            raise TrainingError(message, hint="--dist-backend gloo, or --device cuda")
        try:
            store = meet(world)
            # Before the first collective: over two backends it would never end.
            agree_on_devices(store, device, world, backend=backend)
            distributed.init_process_group(
                backend,
                store=store,
                rank=world.rank,
                world_size=world.size,
                timeout=timedelta(seconds=world.collective_timeout_s),
                # NCCL would guess the GPU from the rank, which is wrong on the second node.
                device_id=device if backend == "nccl" else None,
            )
        except distributed.DistBackendError as error:
            told = [
                each for each in str(error).splitlines() if each.strip(" :") not in EMPTY_ERRORS
            ]
            why = told[-1] if told else "it does not say why"
            message = f"rank {world.rank} met the others, but {backend} failed: {why}"
            hint = "GLOO_SOCKET_IFNAME in `env:` names the network's interface"
            if backend == "nccl":
                hint = "NCCL_DEBUG=INFO in `env:` tells more"
            raise TrainingError(message, hint=hint) from None
        except RuntimeError as error:  # DistError, or what a store in a file raises
            message = f"rank {world.rank} did not meet the others: {str(error).splitlines()[0]}"
            hint = "all ranks need the same meeting place, and a world size that is their number"
            raise TrainingError(message, hint=hint) from None

    def wrap(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        num_backwards: int = 1,  # noqa: ARG002
    ) -> tuple[nn.Module, Optimizer]:
        """Wrap the model; DDP broadcasts its weights when it is made.

        Batch statistics stay each rank's own, as with Horovod; `average_buffers` joins them.
        """
        wrapped = DistributedDataParallel(model)
        # By this name in every PyTorch; the constructor's was renamed in 2.13.
        wrapped.broadcast_buffers = False
        return wrapped, optimizer

    def averaged(self, optimizer: Optimizer) -> AbstractContextManager[None]:  # noqa: ARG002
        """Wait for nothing: gradients are averaged once the backward pass is over."""
        return nullcontext()

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up by allreduce, on a copy."""
        total = tensor.clone()
        distributed.all_reduce(total)
        return total

    def start_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin an allreduce, on a copy."""
        total = tensor.clone()
        work: Any = distributed.all_reduce(total, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return total

        return wait

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Gather into one tensor per rank."""
        parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, tensor)
        return parts

    def gather_to_main(self, tensor: Tensor) -> list[Tensor]:
        """Gather into one tensor per rank, on rank 0 alone."""
        is_main = distributed.get_rank() == 0
        number = distributed.get_world_size() if is_main else 0
        parts = [torch.empty_like(tensor) for _ in range(number)]
        distributed.gather(tensor, parts if is_main else None, dst=0)
        return parts

    def barrier(self) -> None:
        """Wait in a collective of its own."""
        distributed.barrier()

    @property
    def waits_to_leave(self) -> bool:
        """True over NCCL, by which all ranks leave together (https://github.com/NVIDIA/nccl/issues/863).

        One that leaves the others in a collective may wait as long as that may take (collective_timeout_s).
        """
        return distributed.is_initialized() and distributed.get_backend() == "nccl"

    def shutdown(self) -> None:
        """Leave the process group."""
        if distributed.is_initialized():
            distributed.destroy_process_group()
