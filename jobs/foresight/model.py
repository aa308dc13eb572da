"""Compute the seconds of one training step on N GPUs from eight constants of a fabric.

docs/foresight.md explains each term. All functions are pure and need the standard library alone.
"""

from __future__ import annotations

from enum import StrEnum
from math import exp, log, log1p, log2

import msgspec

# Width, as a part of the step of one GPU, over which a hidden exchange becomes a visible one.
SOFTNESS = 0.03
# Part of a gradient that comes last at most: what is small is sent in few pieces.
LAST = 0.5
# An exchange's fixed cost in one node, as so many of what each doubling of the nodes adds.
FIXED_HOPS = 5
HIDDEN_BELOW = -30.0  # widths; the exponential of less is nothing


class Term(StrEnum):
    """Name the part of a step that limits the rate."""

    COMPUTE = "compute"
    INSIDE = "exchange inside a node"
    ACROSS = "exchange between nodes"
    SYNCHRONISATION = "synchronisation"


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the constants of one fabric."""

    s_per_mb: float  # of the ring's slowest link
    fixed_s: float  # of an exchange between two nodes, however little it moves
    inside: float  # time that a MB takes inside a node, as a part of that between nodes
    inside_fixed: float  # the same of the fixed cost
    overlap: float  # part of a one-GPU step in which an exchange is hidden
    last_mb: float  # ready with the end of a step, which hides none of it
    sync: float  # loss from two GPUs on that does not grow, as a part of a one-GPU step
    growth: float  # loss for each doubling of the nodes, as a part of a one-GPU step


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one training on a number of GPUs."""

    gpus: int
    gpus_per_node: int
    step_s: float  # of one GPU, with the overhead of the distribution
    gradient_mb: float

    @property
    def nodes(self) -> int:
        """Return the number of nodes that hold the GPUs."""
        return -(-self.gpus // self.gpus_per_node)


def step_s(load: Load, constants: Constants) -> float:
    """Compute the seconds of one step of all GPUs."""
    if load.gpus == 1:
        return load.step_s
    room = constants.overlap * load.step_s
    width = SOFTNESS * load.step_s
    exchange = exchange_s(load, constants)
    last = exchange * min(LAST, constants.last_mb / load.gradient_mb)
    visible = last + _soft_positive((exchange - last - room) / width) * width
    return load.step_s + visible + sync_s(load, constants)


def exchange_s(load: Load, constants: Constants) -> float:
    """Compute the seconds of an all-reduce by rings, hidden or not."""
    part = 2 * (load.gpus - 1) / load.gpus
    if load.nodes == 1:
        level, fixed_s = constants.inside, constants.inside_fixed * constants.fixed_s
    else:
        level = max(constants.inside, 1.0)  # a ring is as slow as its slowest link
        hops = (FIXED_HOPS + log2(load.nodes)) / (FIXED_HOPS + 1)
        fixed_s = max(constants.inside_fixed, 1.0) * constants.fixed_s * hops
    return part * (level * load.gradient_mb * constants.s_per_mb + fixed_s)


def sync_s(load: Load, constants: Constants) -> float:
    """Compute the seconds that GPUs wait for the slowest of them."""
    return load.step_s * (constants.sync + constants.growth * log2(load.nodes))


def binding(load: Load, constants: Constants) -> tuple[Term, float]:
    """Return the term that shortens the step most where it is halved, and how much faster it is then."""
    if load.gpus == 1:
        return Term.COMPUTE, 2.0
    replace = msgspec.structs.replace
    exchange = Term.INSIDE if load.nodes == 1 else Term.ACROSS
    halved = {
        Term.COMPUTE: step_s(replace(load, step_s=load.step_s / 2), constants),
        exchange: step_s(
            load,
            replace(constants, s_per_mb=constants.s_per_mb / 2, fixed_s=constants.fixed_s / 2),
        ),
        Term.SYNCHRONISATION: step_s(
            load, replace(constants, sync=constants.sync / 2, growth=constants.growth / 2)
        ),
    }
    term = min(halved, key=halved.__getitem__)
    return term, step_s(load, constants) / halved[term]


def _soft_positive(x: float) -> float:
    """Return max(0, x) with its corner rounded."""
    if x < HIDDEN_BELOW:
        return 0.0
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


def from_free(free: list[float]) -> Constants:
    """Make constants of numbers without bounds: logarithms, and the overlap's log-odds."""
    return Constants(
        s_per_mb=exp(free[0]),
        fixed_s=exp(free[1]),
        inside=exp(free[2]),
        overlap=1 / (1 + exp(-free[3])),
        sync=exp(free[4]),
        growth=exp(free[5]),
        last_mb=exp(free[6]),
        inside_fixed=exp(free[2] + free[7]),  # a slow way inside is slow for both
    )


# Middle and standard deviation of each number of `from_free` before anything was measured.
PRIOR = (
    (log(0.5e-3), 2.0),
    (log(6e-3), 1.2),
    (log(0.12), 1.4),
    (0.4, 0.4),
    (log(0.025), 0.6),
    (log(0.004), 0.9),
    (log(3.0), 1.0),
    (0.0, 0.5),
)
