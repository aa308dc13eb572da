"""Counts the cores and GPUs of this machine that a process may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Numbers of usable cores and NVIDIA GPUs."""

    num_cpus: int
    num_gpus: int

    def share(self, num_nodes: int) -> Machine:
        """Divide the machine by a number of nodes; at least one core each, GPUs in whole numbers."""
        return Machine(
            num_cpus=max(1, self.num_cpus // num_nodes), num_gpus=self.num_gpus // num_nodes
        )


def inspect_machine(devices: Path = Path("/dev")) -> Machine:
    """Count cores (of this process's affinity) and GPUs (the driver's device files)."""
    gpus = [path for path in devices.glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    return Machine(num_cpus=len(os.sched_getaffinity(0)), num_gpus=len(gpus))
