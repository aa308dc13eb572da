"""Counts of the fault campaigns: a test gives its own, pytest prints all of them at the end.

campaign("F1 crash points of a save", tried=312, survived=312)
"""

from __future__ import annotations

_LINES: list[str] = []


def campaign(name: str, *, tried: int, survived: int) -> None:
    """Note how many faults were tried and how many did no harm; call it before asserting it."""
    _LINES.append(f"{name}: {tried:,} tried, {survived:,} survived")


def mutants(name: str, *, planted: int, caught: int) -> None:
    """Note how many wrong things were planted and how many of them a check found."""
    _LINES.append(f"{name}: {planted:,} mutants planted, {caught:,} caught")


def lines() -> list[str]:
    """Give what was noted in this process and taken over from others."""
    return sorted(_LINES)


def take_over(others: list[str]) -> None:
    """Add what another process, a worker of pytest-xdist, has noted."""
    _LINES.extend(others)
