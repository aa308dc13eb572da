"""Parse the quantities of options: whole numbers, amounts, sizes and rates."""

from __future__ import annotations

from collections.abc import Callable

import typer

MOST_MONEY = 1e9


def whole_number(at_least: int) -> Callable[[str | int], int]:
    """Make the parser of a whole number that is not below a bound."""

    def parse(given: str | int) -> int:
        text = str(given)  # typer parses defaults, too
        # Up to 18 digits: what is kept in 64 bits wherever it goes.
        digits = text.removeprefix("-")
        number = int(text) if digits.isdecimal() and len(digits) <= 18 else None
        if number is None or number < at_least:
            message = f"`{text[:60]}` has to be a whole number, {at_least} or more"
            raise typer.BadParameter(message)
        return number

    return parse


def num_bytes(given: str | int) -> int:
    """Parse a number of bytes: 128MiB, 100 MB, 4096."""
    from jobs.host.units import SIZE_UNITS, parse_bytes

    text = str(given)  # typer parses defaults, too
    size = parse_bytes(text, SIZE_UNITS)
    if size is None:
        message = f"invalid size `{text}`: type a number and a unit, e.g. 128MiB"
        raise typer.BadParameter(message)
    return size


def bytes_per_s(text: str) -> int:
    """Parse a rate: 500k, 20M, 1.5G."""
    from jobs.host.units import RATE_UNITS, parse_bytes

    rate = parse_bytes(text, RATE_UNITS)
    if rate is None:
        message = f"invalid rate `{text}`: type bytes per second, e.g. 500k or 20M"
        raise typer.BadParameter(message)
    return rate


def amount(given: str | float) -> float:
    """Parse an amount of money: 200, 12.50."""
    text = str(given)  # typer parses defaults, too
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_MONEY:
        message = f"`{text[:60]}` is not a positive amount, e.g. 12.50"
        raise typer.BadParameter(message)
    return value


def time_limit(given: str | float) -> float:
    """Parse a duration that is not 0: 90s, 30m, 12h, 30d."""
    duration_s = seconds(given)
    if duration_s <= 0:
        message = f"`{given}` is no time; type e.g. 6h"
        raise typer.BadParameter(message)
    return duration_s


def seconds(given: str | float) -> float:
    """Parse a duration: 90s, 30m, 12h, 30d."""
    from jobs.host.units import parse_duration

    if not isinstance(given, str):  # the default
        return given
    duration_s = parse_duration(given)
    if duration_s is None:
        message = f"invalid duration `{given}`: type a number and a unit, e.g. 30d"
        raise typer.BadParameter(message)
    return duration_s
