"""Read from a job's command how long its training is: epochs and steps, as scripts call them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Unit = Literal["step", "epoch", "sample"]
_OPTION = re.compile(r"--(?:(?:num|max|total)-)?(?:train-)?(?:(?P<epoch>epochs)|(?P<step>steps))")
_MOST_DIGITS = 15


def lengths_of(command: Sequence[str]) -> dict[Unit, float]:
    """Find how far a command says that its training goes, by unit; steps, which end it, first."""
    found: dict[Unit, float] = {}
    for at, word in enumerate(command):
        if unit := _unit(word):
            _, equals, value = word.partition("=")
            value = value if equals else "".join(command[at + 1 : at + 2])
            if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS and int(value):
                found[unit] = float(value)
    return dict(sorted(found.items(), key=lambda each: each[0] != "step"))


def without_epochs(command: Sequence[str]) -> list[str]:
    """Leave the number of epochs out of a command."""
    kept: list[str] = []
    is_value = False
    for word in command:
        is_epochs = _unit(word) == "epoch"
        if not is_epochs and not is_value:
            kept.append(word)
        is_value = is_epochs and "=" not in word
    return kept


def _unit(word: str) -> Unit | None:
    found = _OPTION.fullmatch(word.partition("=")[0].replace("_", "-"))
    if found is None:
        return None
    return "epoch" if found["epoch"] else "step"
