"""Refuses a Horovod that cannot use this machine's GPUs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from jobs.contracts.errors import Refused

# What a Horovod with NCCL calls; the one without carries only the question whether it has it.
NCCL_SYMBOL = b"ncclAllReduce"
# What hides the GPUs from a job's ranks, as words of `launch run`.
ON_THE_CPU = ("--set", "env.CUDA_VISIBLE_DEVICES=-1")


def horovod_lacks_nccl(interpreter: Path) -> bool:
    """Tell whether the runtime's Horovod cannot reduce on GPUs; False without a Horovod."""
    libraries = list(interpreter.parent.parent.glob("lib/python*/site-packages/horovod/*/mpi_lib*"))
    return bool(libraries) and not any(NCCL_SYMBOL in each.read_bytes() for each in libraries)


def refuse_horovod_without_nccl(
    launcher: str, image: str, env: Mapping[str, str], interpreter: Path, *, num_gpus: int
) -> None:
    """Raise Refused where ranks would find GPUs that their Horovod cannot reduce on.

    Such a job would run, with every tensor on its way through the CPU; nobody means that. `env` is
    all that the ranks get, the job's own over what they inherit.
    """
    is_hidden = env.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if launcher not in ("horovod", "mpi") or not num_gpus or is_hidden:
        return
    if not horovod_lacks_nccl(interpreter):
        return
    message = f"this machine has {num_gpus} GPUs, and the Horovod of `{image}` has no NCCL"
    hint = f"launcher: torch (DDP uses NCCL), or on the CPU: {shlex.join(ON_THE_CPU)}"
    raise Refused(message, hint=hint)
