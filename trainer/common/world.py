"""Reads this process's rank and the number of ranks; the only reader of those variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from trainer.common.errors import TrainingError

Backend = Literal["gloo", "nccl"]
# Where the variables say it: torch.distributed's own word for that.
FROM_ENVIRONMENT = "env://"
# Where no launcher of ours says how long a run may stand still.
COLLECTIVE_TIMEOUT_S = 30 * 60


@dataclass(frozen=True, kw_only=True)
class RankArguments:
    """Ranks as a command line gives them, in the words of torch.distributed's examples.

    For launchers that start a program with arguments of its own on each node, as Batch AI did.
    """

    dist_backend: Backend | None = None
    dist_url: str | None = None
    rank: int | None = None
    world_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class World:
    """A process's rank and sizes in its job; a program started by hand is a world of one.

    `backend` is what the command line asked for. `url` is where torch.distributed's ranks meet:
    env:// for MASTER_ADDR and MASTER_PORT, None where nobody said it. `store` is what env:// comes
    to where rank 0 has to serve the store itself, None where the launcher does. A rank that waits for
    `collective_timeout_s` in a collective gives up.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    num_threads: int = 1
    backend: Backend | None = None
    url: str | None = None
    store: str | None = None
    collective_timeout_s: int = COLLECTIVE_TIMEOUT_S

    @property
    def is_main(self) -> bool:
        """True for the rank that writes files and prints."""
        return self.rank == 0

    def num_workers(self, device: str) -> int:
        """Give how many threads or processes decode: a GPU's rank has its share of cores, another computes on them."""
        if device == "cpu":
            return self.num_threads
        # Where the launcher has given the rank cores of its own, they are not parted again.
        return max(self.num_threads, _share_of_cores(self.local_size))

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        arguments: RankArguments | None = None,
    ) -> World:
        """Read what every launcher is mapped to; raises TrainingError where it contradicts itself.

        `arguments` come before the variables, unless a launcher made this rank one of several.
        `num_threads` is OMP_NUM_THREADS, else this rank's equal share of the process's cores.
        """
        environ = os.environ if environ is None else environ
        arguments = arguments or RankArguments()
        rank, size = _place(environ, arguments)
        # Who says a rank's place on its command line (Batch AI) starts one process a machine.
        num_here = size if arguments.world_size is None else 1
        local_size = _integer(environ, "LOCAL_WORLD_SIZE", num_here)
        url = _meeting_place(environ, arguments, size)
        return cls(
            rank=rank,
            size=size,
            local_rank=_integer(environ, "LOCAL_RANK", rank % max(local_size, 1)),
            local_size=local_size,
            node_rank=_integer(environ, "NODE_RANK", rank // max(local_size, 1)),
            num_threads=_integer(environ, "OMP_NUM_THREADS", _share_of_cores(local_size)),
            backend=arguments.dist_backend,
            url=url,
            store=_own_store(environ) if url == FROM_ENVIRONMENT else None,
            collective_timeout_s=_integer(
                environ, "TRAINYARD_COLLECTIVE_TIMEOUT_S", COLLECTIVE_TIMEOUT_S
            ),
        )


def _place(environ: Mapping[str, str], arguments: RankArguments) -> tuple[int, int]:
    size = _integer(environ, "WORLD_SIZE", 1)
    rank = _integer(environ, "RANK", 0)
    has_rank = bool(environ.get("RANK"))
    if size > 1:
        _require_agreement("--world-size", arguments.world_size, "WORLD_SIZE", size)
        if has_rank:
            _require_agreement("--rank", arguments.rank, "RANK", rank)
    size = size if arguments.world_size is None else arguments.world_size
    rank = rank if arguments.rank is None else arguments.rank
    if arguments == RankArguments():
        names, hint = ("RANK", "WORLD_SIZE"), "set both, or neither to train on one process"
    else:
        names, hint = ("--rank", "--world-size"), "count ranks from 0, and give both"
    if size > 1 and not has_rank and arguments.rank is None:
        message = f"{names[1]} is {size} but {names[0]} is not set"
        raise TrainingError(message, hint="start it with `launch run`, torchrun or mpirun")
    if not 0 <= rank < size:
        message = f"{names[0]} {rank} is not below {names[1]} {size}"
        raise TrainingError(message, hint=hint)
    return rank, size


def _require_agreement(flag: str, given: int | None, name: str, value: int) -> None:
    if given not in (None, value):
        message = f"{flag} is {given}, but the launcher says {name} {value}"
        raise TrainingError(message, hint=f"leave {flag} out")


def _meeting_place(environ: Mapping[str, str], arguments: RankArguments, size: int) -> str | None:
    has_variables = bool(environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"))
    url = arguments.dist_url
    hint = "--dist-url tcp://HOST:PORT or file:///SHARED/FILE"
    if url in (None, FROM_ENVIRONMENT):
        if has_variables:
            return FROM_ENVIRONMENT
        if url is not None or (size > 1 and arguments != RankArguments()):
            message = "neither --dist-url nor MASTER_ADDR and MASTER_PORT say where ranks meet"
            raise TrainingError(message, hint=hint)
        return None
    if not (_is_tcp(url) or _is_file(url)):
        message = f"--dist-url `{url}` is none that ranks can meet at"
        raise TrainingError(message, hint=hint)
    return url


def _own_store(environ: Mapping[str, str]) -> str | None:
    """Give the address where rank 0 serves the store; None if torchrun or our gang serves it."""
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None
    host, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _is_tcp(url: str) -> bool:
    parts = urlsplit(url)
    try:
        return parts.scheme == "tcp" and bool(parts.hostname) and bool(parts.port)
    except ValueError:  # a port that is no number
        return False


def _is_file(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "file" and not parts.netloc and parts.path[:1] == "/" != parts.path


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
