"""Builds conditions on a property's value, each with its text for people."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any

# ISO 8601 as Azure ML writes it (PT2M), and .NET's time span as storage does (1.00:00:00).
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})")
# The widest range of addresses that a firewall may let in.
WIDEST_PREFIX = 16


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A demand on one value; a property that is not set is None."""

    text: str
    holds: Callable[[Any], bool]


def equal(wanted: str | bool) -> Condition:
    """Demand this value; words in any case, as Azure reads them."""
    if isinstance(wanted, bool):
        return Condition(text=str(wanted).lower(), holds=lambda value: value is wanted)
    return one_of(wanted)


def one_of(*wanted: str) -> Condition:
    known = {each.lower() for each in wanted}
    return Condition(
        text=" or ".join(wanted),
        holds=lambda value: isinstance(value, str) and value.lower() in known,
    )


def at_least(least: int) -> Condition:
    return Condition(
        text=f"at least {least}", holds=lambda value: _is_number(value) and value >= least
    )


def between(least: int, most: int) -> Condition:
    return Condition(
        text=f"{least} to {most}",
        holds=lambda value: _is_number(value) and least <= value <= most,
    )


def lasting_at_most(most: str) -> Condition:
    """Demand a duration above zero and up to a limit, in either notation."""
    limit_s = seconds(most)
    assert limit_s is not None

    def holds(value: Any) -> bool:
        length_s = seconds(value)
        return length_s is not None and 0 < length_s <= limit_s

    return Condition(text=f"at most {most}", holds=holds)


def matching(pattern: str) -> Condition:
    return Condition(
        text=f"text like {pattern}",
        holds=lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None,
    )


def given() -> Condition:
    return Condition(text="set", holds=bool)


def absent() -> Condition:
    return Condition(text="not set", holds=lambda value: value is None)


def empty() -> Condition:
    """Demand no value, or a list without elements."""
    return Condition(
        text="empty", holds=lambda value: value is None or (isinstance(value, Sized) and not value)
    )


def seconds(value: Any) -> int | None:
    """Parse a duration; None for anything else."""
    if not isinstance(value, str):
        return None
    found = _ISO.fullmatch(value) or _SPAN.fullmatch(value)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, rest = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def is_narrow(addresses: Any) -> bool:
    """Tell whether a firewall's entry is an IPv4 address or a range that is not too wide."""
    try:
        return ipaddress.IPv4Network(str(addresses)).prefixlen >= WIDEST_PREFIX
    except ValueError:
        return False


def _is_number(value: Any) -> bool:
    # A number crosses gRPC as a float.
    return isinstance(value, int | float) and not isinstance(value, bool)
