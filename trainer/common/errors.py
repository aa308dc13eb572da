"""The one error a training program ends with when its user can mend the cause."""

from __future__ import annotations


class TrainingError(Exception):
    """What is wrong, which value, and a hint; the message says all of it in one line."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} (hint: {hint})")
        self.hint = hint
