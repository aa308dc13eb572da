"""The GPUs of this machine, and whether a runtime's Horovod can use them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from jobs.errors import Refused
from jobs.spec import JobSpec

DEVICES = Path("/dev")
# What a Horovod with NCCL calls; the one without carries only the question whether it has it.
NCCL_SYMBOL = b"ncclAllReduce"


def count_gpus(devices: Path = DEVICES) -> int:
    """GPUs of this machine, by their device files."""
    try:
        names = os.listdir(devices)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return 0
    return sum(1 for name in names if re.fullmatch(r"nvidia\d+", name))


def refuse_horovod_without_nccl(
    spec: JobSpec, interpreter: Path, *, num_gpus: int, inherited: Mapping[str, str]
) -> None:
    """Raise Refused where ranks would find GPUs that their Horovod cannot reduce on.

    Such a job would run, with every tensor on its way through the CPU; nobody means that.
    `inherited` is what the ranks get of the shell's environment.
    """
    hidden = {**inherited, **spec.env}.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if spec.launcher not in ("horovod", "mpi") or not num_gpus or hidden:
        return
    libraries = list(interpreter.parent.parent.glob("lib/python*/site-packages/horovod/*/mpi_lib*"))
    if not libraries or any(NCCL_SYMBOL in library.read_bytes() for library in libraries):
        return
    message = f"this machine has {num_gpus} GPUs, and the Horovod of `{spec.image}` has no NCCL"
    hint = "launcher: torch (DDP uses NCCL), or on the CPU: --set env.CUDA_VISIBLE_DEVICES=-1"
    raise Refused(message, hint=hint)
