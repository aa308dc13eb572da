"""Tells by its files what a runtime can do with GPUs."""

from __future__ import annotations

from pathlib import Path

# What a Horovod with NCCL calls; the one without carries only the question whether it has it.
NCCL_SYMBOL = b"ncclAllReduce"
PACKAGES = "lib/python*/site-packages"


def horovod_lacks_nccl(interpreter: Path) -> bool:
    """Tell whether the runtime's Horovod cannot reduce on GPUs; False without a Horovod."""
    libraries = list(interpreter.parent.parent.glob(f"{PACKAGES}/horovod/*/mpi_lib*"))
    return bool(libraries) and not any(NCCL_SYMBOL in each.read_bytes() for each in libraries)


def has_torch(interpreter: Path) -> bool:
    """Tell whether the runtime has PyTorch, whose DDP brings an NCCL of its own."""
    return any(interpreter.parent.parent.glob(f"{PACKAGES}/torch"))
