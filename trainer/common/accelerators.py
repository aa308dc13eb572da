"""Tells what this machine computes with: GPUs that a framework can use, processors that know a precision."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.training_options import PrecisionName
from trainer.common.world import World

DEVICES = Path("/dev")
PROCESSORS = Path("/proc/cpuinfo")
# What Linux calls their instructions, on x86 and on Arm; every processor has those for fp32.
# Not avx512_fp16: oneDNN does not compute the gradients of convolutions by it, and takes 170 times as
# long as in fp32 (torch 2.15 on an Intel Xeon that has no amx_fp16).
_INSTRUCTIONS = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "fp16": {"amx_fp16", "asimdhp"},
}
# Tells CUDA which GPUs a process sees; a launcher that gives each rank its own sets it.
VISIBLE = "CUDA_VISIBLE_DEVICES"
# The same, where it was Trainyard's supervisor that set it, for all ranks of a node alike.
OF_NODE = "TRAINYARD_NODE_GPUS"
# Where it is not the batch that a GPU's memory does not hold.
PREDICTED = "the network and the files that it predicts at once"
OTHERS_HINT = "`nvidia-smi` tells whether another process has memory of this GPU"
NONE_VISIBLE = ("", "-1", "none", "NoDevFiles")


@dataclass(frozen=True, kw_only=True)
class RankDevice:
    """Hold what a rank tells the others of its device, and what it was told of GPUs.

    `gpu` is the name that this GPU has and no other, on whichever machine; None is the CPU.
    """

    gpu: str | None
    host: str
    local_size: int
    environ: dict[str, str]


def count_gpus(devices: Path = DEVICES) -> int:
    """Count this machine's NVIDIA GPUs by their device files, whether or not they can be used."""
    try:
        return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir(devices))  # noqa: PTH208
    except OSError:
        return 0


def has_instructions(precision: PrecisionName, processors: Path = PROCESSORS) -> bool:
    """Tell whether the processors train in a precision by themselves; True where nobody says."""
    if precision == "fp32":
        return True
    try:
        known = set(processors.read_text(encoding="utf-8").split())
    except OSError:
        return True
    return bool(known & _INSTRUCTIONS[precision])


def warn_of_emulation(precision: PrecisionName, device: str, processors: Path = PROCESSORS) -> None:
    """Warn where a CPU is to compute in a precision that it has no instructions for.

    A step of MNIST's CNN took 8 times as long in bf16 as in fp32 on an AMD EPYC with AVX2.
    """
    if device == "cpu" and not has_instructions(precision, processors):
        warn(
            f"this CPU has no instructions for {precision}; fp32 is likely to be several times faster"
        )


def refuse_unusable(framework: str, why: str, environ: Mapping[str, str], *, num_gpus: int) -> None:
    """Raise TrainingError where there are GPUs, not hidden, and the framework can use none.

    A training on the CPU of a GPU node would take hundreds of times as long, and cost as much.
    """
    if num_gpus and environ.get(VISIBLE) not in NONE_VISIBLE:
        there = "1 GPU is" if num_gpus == 1 else f"{num_gpus} GPUs are"
        message = f"{there} here, and {framework} can use none: {why}"
        hint = "`nvidia-smi` tells whether the driver works; --device cpu trains without them"
        raise TrainingError(message, hint=hint)


def require_one_kind(rank: int, *, is_gpu: bool, is_gpu_0: bool) -> None:
    """Raise TrainingError where a rank computes on another kind of device than rank 0."""
    if is_gpu != is_gpu_0:
        mine, of_rank_0 = ("GPU", "CPU") if is_gpu else ("CPU", "GPU")
        message = f"rank {rank} computes on the {mine}, rank 0 on the {of_rank_0}"
        raise TrainingError(message, hint="--device cpu, or nodes whose GPUs all work")


def place_on_gpu(world: World, environ: Mapping[str, str], *, num_visible: int) -> int:
    """Give the number of this rank's GPU among the visible ones.

    Raises TrainingError where ranks of this node would share one and were not told to.
    """
    if world.local_size > num_visible and not is_told(environ, num_ranks=world.local_size):
        message = f"{world.local_size} ranks of this node would share {num_visible} of its GPUs"
        hint = f"`processes_per_node: gpu`, or {VISIBLE} with fewer GPUs than ranks; NCCL takes one rank a GPU"
        raise TrainingError(message, hint=hint)
    return world.local_rank % num_visible


def require_devices(devices: Sequence[RankDevice], *, backend: str) -> None:
    """Raise TrainingError where ranks are on two kinds of device, or on one GPU unasked or over NCCL.

    Ranks that were started one by one do not know how many their machine has, and all take GPU 0.
    """
    firsts: dict[str, int] = {}
    nums_here = Counter(device.gpu for device in devices)
    for rank, device in enumerate(devices):
        gpu = device.gpu
        require_one_kind(rank, is_gpu=gpu is not None, is_gpu_0=devices[0].gpu is not None)
        if gpu is None or firsts.setdefault(gpu, rank) == rank:
            continue
        who, where = f"ranks {firsts[gpu]} and {rank}", f"GPU {gpu} of {device.host}"
        if not is_told(device.environ, num_ranks=max(nums_here[gpu], device.local_size)):
            message = f"{who} would share {where}"
            raise TrainingError(
                message, hint=f"set {VISIBLE} to one GPU for each rank of a machine"
            )
        if backend == "nccl":
            message = f"{who} share {where}, and NCCL takes one rank a GPU"
            raise TrainingError(message, hint="--dist-backend gloo, or a GPU for each rank")


def require_own_gpus(gpus: Sequence[str]) -> None:
    """Raise TrainingError where two ranks share a GPU, whose names are in the order of ranks."""
    firsts: dict[str, int] = {}
    for rank, gpu in enumerate(gpus):
        if firsts.setdefault(gpu, rank) != rank:
            message = (
                f"ranks {firsts[gpu]} and {rank} share GPU {gpu}, and NCCL takes one rank a GPU"
            )
            raise TrainingError(
                message, hint="a GPU for each rank, or --strategy ddp --dist-backend gloo"
            )


def is_told(environ: Mapping[str, str], *, num_ranks: int) -> bool:
    """Tell whether somebody has set CUDA_VISIBLE_DEVICES to fewer GPUs than this node has ranks.

    That is a launcher that shows each rank its own, as number 0, or a user who wants them to share.
    Where as many are named as there are ranks, and fewer can be used, one is lost.
    """
    given = environ.get(VISIBLE)
    if given is None or given == environ.get(OF_NODE):
        return False
    return len(given.split(",")) < num_ranks
