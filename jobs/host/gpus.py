"""Counts this machine's NVIDIA GPUs by their device files."""

from __future__ import annotations

import os
import re
from pathlib import Path

DEVICES = Path("/dev")


def count_gpus(devices: Path = DEVICES) -> int:
    """Count them, whether or not a driver works."""
    try:
        names = os.listdir(devices)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return 0
    return sum(1 for name in names if re.fullmatch(r"nvidia\d+", name))
