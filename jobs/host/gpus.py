"""Counts this machine's NVIDIA GPUs by their device files, and tells which of them a shell shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

DEVICES = Path("/dev")
# Tells CUDA which GPUs a process sees.
VISIBLE = "CUDA_VISIBLE_DEVICES"


def count_gpus(devices: Path = DEVICES) -> int:
    """Count them, whether or not a driver works."""
    try:
        names = os.listdir(devices)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return 0
    return sum(1 for name in names if re.fullmatch(r"nvidia\d+", name))


def visible_gpus(environ: Mapping[str, str], num_gpus: int) -> tuple[str, ...]:
    """Name those of a machine's GPUs that `environ` shows, as CUDA_VISIBLE_DEVICES does: all if it is unset.

    As CUDA reads it: indices or the beginnings of UUIDs, up to the first that is no GPU.
    """
    given = environ.get(VISIBLE)
    if given is None:
        return tuple(map(str, range(num_gpus)))

    def is_gpu(name: str) -> bool:
        if re.fullmatch(r"[0-9]{1,9}", name):
            return int(name) < num_gpus
        return num_gpus > 0 and name.startswith(("GPU-", "MIG-"))

    return tuple(takewhile(is_gpu, (each.strip() for each in given.split(","))))
