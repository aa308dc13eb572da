"""Tells whether a runtime's Horovod can use GPUs."""

from __future__ import annotations

from pathlib import Path

# What a Horovod with NCCL calls; the one without carries only the question whether it has it.
NCCL_SYMBOL = b"ncclAllReduce"


def horovod_lacks_nccl(interpreter: Path) -> bool:
    """Tell whether the runtime's Horovod cannot reduce on GPUs; False without a Horovod."""
    libraries = list(interpreter.parent.parent.glob("lib/python*/site-packages/horovod/*/mpi_lib*"))
    return bool(libraries) and not any(NCCL_SYMBOL in each.read_bytes() for each in libraries)
