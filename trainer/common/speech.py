"""What a program says to its user beside its results: on stderr, one line each."""

from __future__ import annotations

import sys


def warn(text: str) -> None:
    """Say what is odd; training goes on."""
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()
