"""Parse the quantities of options: whole numbers, sizes and rates."""

from __future__ import annotations

from collections.abc import Callable

import typer

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


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
    text = str(given)  # typer parses defaults, too
    number = text.rstrip("BIKMGbikmg")
    found = _UNITS.get(text[len(number) :].lower())
    try:
        size = int(float(number) * found) if found else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        message = f"`{text}` is no size: a number and a unit, as in 128MiB"
        raise typer.BadParameter(message)
    return size


def bytes_per_s(text: str) -> int:
    """Parse a rate: 500k, 20M, 1.5G."""
    number, factor = text, 1
    units = {"k": 1000, "m": 1000**2, "g": 1000**3}
    if text[-1:].lower() in units:
        number, factor = text[:-1], units[text[-1].lower()]
    try:
        rate = int(float(number) * factor)
    except (ValueError, OverflowError):
        rate = 0
    if rate < 1:
        message = f"`{text}` is no rate: bytes a second, as in 500k or 20M"
        raise typer.BadParameter(message)
    return rate
