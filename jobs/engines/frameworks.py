"""Make the variables that every engine sets for frameworks: timeouts and torchrun's (pure)."""

from __future__ import annotations

import math

from jobs.contracts.spec import Limits

GRACE_S = 60
LONGEST_PATIENCE_S = 14 * 86400  # in milliseconds just less than 31 bits, which gloo counts in


def patience_s(limits: Limits) -> int:
    """Give the time that frameworks are to wait for a rank that stands still.

    Longer than the limit after which we end a hang ourselves: otherwise the waiting ranks would give
    up first and look like the guilty ones, and Horovod's warnings about a stall would pass for signs
    of life.
    """
    if limits.hang_s is None:
        return LONGEST_PATIENCE_S
    return min(math.ceil(limits.hang_s) + GRACE_S, LONGEST_PATIENCE_S)


def stall_environment(limits: Limits) -> dict[str, str]:
    """Make the variables by which Horovod's ranks give up waiting where no supervisor of ours ends them.

    https://horovod.readthedocs.io/en/stable/stall_inspector.html
    """
    patience = patience_s(limits)
    warned = {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(patience)}
    if limits.hang_s is None:
        return warned
    return {**warned, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(patience + GRACE_S)}


def torch_environment(limits: Limits, *, has_store: bool) -> dict[str, str]:
    """Make the variables that torchrun gives all its workers; rank/main.py adds each one's own.

    Lightning, Accelerate and others go by it. Whether `has_store`: the ranks' store is served beside
    them, not by rank 0. Left out are the files and signals of torchrun's own agent. torch has no
    variable for the time that a collective may take: trainers and users' scripts read ours.
    """
    return {
        "TRAINYARD_COLLECTIVE_TIMEOUT_S": str(patience_s(limits)),
        "ROLE_NAME": "default",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": str(has_store),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
