"""Writes messages to a program's user, one line each."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a message on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print a warning on stderr; training goes on."""
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()
