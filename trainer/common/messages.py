"""What a program says to its user beside its results, one line each."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Say how things stand, on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Say what is odd, on stderr; training goes on."""
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()
