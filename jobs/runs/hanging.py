"""Finds the rank that the others wait for, from signs of each (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from jobs.contracts.spec import Launcher

COLLECTIVE = re.compile(
    r"distributed_c10d|c10d_logger|torch/distributed|horovod/|mpi4py|\ball_?reduce|\bbarrier\b"
)


class Sign(Struct, frozen=True, kw_only=True):
    """Observations of one rank while the gang stood still.

    `cpu` is in cores, `silent_s` the time since its last output. `is_runnable` says that its
    main thread runs or wants to (on a loaded machine `cpu` alone says little), `is_asleep` that it
    waits for time to pass and for nothing else.
    `is_in_collective` is read from its stack afterwards, None where it left none.
    """

    rank: int
    is_stopped: bool
    has_exited: bool
    has_closed_output: bool
    cpu: float
    silent_s: float
    is_runnable: bool = False
    is_asleep: bool = False
    is_in_collective: bool | None = None


def name_hanging(signs: Sequence[Sign], launcher: Launcher) -> tuple[int, str]:
    """Find the rank that the others wait for, and how it shows.

    In the order of how sure the sign is: a stopped process, one that left early, one that
    closed its output, one that behaves unlike all others, the one that was silent longest.
    """
    for sign in signs:
        if sign.is_stopped:
            return sign.rank, "its process is stopped (SIGSTOP)"
    for sign in signs:
        if sign.has_exited:
            return sign.rank, "it ended early with exit code 0, and the others wait for it"
    for sign in signs:
        if sign.has_closed_output:
            return sign.rank, "it closed its output, and the others wait"
    return _odd_one_out(signs, launcher) or _sleeper(signs) or _most_silent(signs)


def _odd_one_out(signs: Sequence[Sign], launcher: Launcher) -> tuple[int, str] | None:
    if len(signs) < 2:
        return None
    outside = [sign.rank for sign in signs if sign.is_in_collective is False]
    if len(outside) == 1 and all(s.is_in_collective for s in signs if s.rank != outside[0]):
        return outside[0], "it is not in the collective that the others wait in"
    busy = [sign.rank for sign in signs if sign.is_runnable or sign.cpu > 0.5]
    idle = [sign.rank for sign in signs if not sign.is_runnable and sign.cpu < 0.2]
    if len(busy) + len(idle) == len(signs):
        # Open MPI and Horovod spin while they wait; everyone else sleeps.
        if launcher in ("mpi", "horovod") and len(idle) == 1:
            return idle[0], "it stands still while the others spin in their wait for it"
        if launcher not in ("mpi", "horovod") and len(busy) == 1:
            return busy[0], "it is busy while the others wait for it"
    return None


def _sleeper(signs: Sequence[Sign]) -> tuple[int, str] | None:
    """Find the one rank that sleeps: those that wait for another wait for its bytes."""
    asleep = [sign.rank for sign in signs if sign.is_asleep]
    if len(asleep) == 1 and len(signs) > 1:
        return asleep[0], "it sleeps while the others wait for it"
    return None


def _most_silent(signs: Sequence[Sign]) -> tuple[int, str]:
    if len(signs) == 1:
        return signs[0].rank, "it has given no sign of life"
    oldest = max(signs, key=lambda sign: sign.silent_s)
    return oldest.rank, "its last sign of life is the oldest"


def is_in_collective(stack: str | None) -> bool | None:
    """Tell whether a stack dumped by faulthandler shows a wait for the other ranks."""
    if not stack:
        return None
    _, _, current = stack.partition("Current thread")
    return bool(COLLECTIVE.search(current or stack))
