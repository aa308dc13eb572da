"""What a check found, beside what it should have: a row of docs/benchmarks/gpu.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.gpu.programs import Where


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at: what was seen, and what it had to be."""

    what: str
    seen: str
    wanted: str
    is_met: bool


# Looks at one thing; an exception is a finding that is not met.
Check = Callable[[Where], Sequence[Finding]]


def within(what: str, seen: float, most: float, *, unit: str = "") -> Finding:
    """A figure that must not be above `most`; one that is no number is not met."""
    return Finding(
        what=what, seen=f"{seen:.2g}{unit}", wanted=f"<= {most:g}{unit}", is_met=seen <= most
    )


def at_least(what: str, seen: float, least: float, *, beside: str = "") -> Finding:
    """A ratio that must not be below `least`; `beside` says what it is made of."""
    return Finding(
        what=what,
        seen=f"{seen:.2f}{f' ({beside})' if beside else ''}",
        wanted=f">= {least:.2f}",
        is_met=seen >= least,
    )
