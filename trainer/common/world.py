"""Says which rank this process is and how many there are; the only reader of those variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.common.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class World:
    """This process's place in its job. A program started by hand is a world of one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    num_threads: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes files and talks."""
        return self.rank == 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> World:
        """Read what every launcher is mapped to; raises TrainingError where it contradicts itself.

        `num_threads` is OMP_NUM_THREADS, else this rank's equal share of the process's cores.
        """
        environ = os.environ if environ is None else environ
        size = _integer(environ, "WORLD_SIZE", 1)
        rank = _integer(environ, "RANK", 0)
        if size > 1 and "RANK" not in environ:
            message = f"WORLD_SIZE is {size} but RANK is not set"
            raise TrainingError(message, hint="start it with `launch run`, torchrun or mpirun")
        if not 0 <= rank < size:
            message = f"RANK {rank} is not below WORLD_SIZE {size}"
            raise TrainingError(message, hint="set both, or neither to train on one process")
        local_size = _integer(environ, "LOCAL_WORLD_SIZE", size)
        return cls(
            rank=rank,
            size=size,
            local_rank=_integer(environ, "LOCAL_RANK", rank % max(local_size, 1)),
            local_size=local_size,
            node_rank=_integer(environ, "NODE_RANK", 0),
            num_threads=_integer(environ, "OMP_NUM_THREADS", _share_of_cores(local_size)),
        )


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        message = f"{name} is `{text}`, not a whole number"
        raise TrainingError(message, hint=f"unset {name} or set a number") from None


def _share_of_cores(local_size: int) -> int:
    # macOS and Windows cannot say which cores a process is bound to.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, cores // max(local_size, 1))
