"""Writes messages to a program's user, one line each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

# Names that a message lists.
FEW = 5


def say(text: str) -> None:
    """Print a message on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print a warning on stderr; training goes on."""
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()


def few(names: Sequence[str]) -> str:
    """Join the first names; say how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
