"""Defines the error that ends a training program when its user can mend the cause."""

from __future__ import annotations


class TrainingError(Exception):
    """Report a user's mistake in one line: the fault, its value, and a hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} (hint: {hint})")
        self.message = message
        self.hint = hint
