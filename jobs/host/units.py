"""Parses and writes durations, sizes and points in time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

_DURATION = re.compile(r"([0-9]{1,11}(?:\.[0-9]{1,11})?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ISO_DURATION = re.compile(
    r"P(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.[0-9]+)?S)?)?"
)
# Decimal units by one letter, as rates are written, and those that say what they are.
RATE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_duration(text: str) -> float | None:
    """Convert `90s`, `30m`, `1.5h` or `2d` to seconds; None for anything else."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _SECONDS[match[2]]


def parse_iso_duration(text: str) -> int | None:
    """Convert `PT2M` or `P1DT3H` to whole seconds; None for anything else."""
    match = _ISO_DURATION.fullmatch(text)
    if match is None:
        return None
    counts = (int(part or 0) for part in match.groups())
    return sum(map(int.__mul__, counts, (86400, 3600, 60, 1)))


def parse_bytes(text: str, units: Mapping[str, int]) -> int | None:
    """Convert `1.5G` or `128 MiB` to bytes; None for less than one, or a unit not in `units`."""
    number = text.rstrip("BIKMGbikmg")
    factor = units.get(text[len(number) :].lower(), 0)
    try:
        size = int(float(number) * factor)
    except (ValueError, OverflowError):
        return None
    return size if size >= 1 else None


def now() -> str:
    """Write the time as run folders keep it: ISO 8601, UTC, microseconds."""
    return utc_text(datetime.now(UTC))


def now_in_seconds() -> str:
    """Write the time as records of datasets keep it: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_text(when: datetime) -> str:
    """Write a point in time that has a zone as ISO 8601, UTC, microseconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def iso_duration(seconds: float) -> str:
    """Write a duration as ISO 8601 does, in whole seconds, rounded up."""
    total = max(1, math.ceil(seconds))
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    date = f"{days}D" if days else ""
    clock = "".join(
        f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if count
    )
    return f"P{date}{'T' if clock else ''}{clock}"
