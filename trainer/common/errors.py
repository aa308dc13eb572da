"""Defines the error that ends a training program when its user can mend the cause."""

from __future__ import annotations


class TrainingError(Exception):
    """Report a user's mistake in one line: the fault, its value, and a hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} (hint: {hint})")
        self.hint = hint


def out_of_memory(option: str, number: int, *, hint: str) -> TrainingError:
    """Give the error for a training whose `option` is too large for the GPU."""
    flag = f"--{option.replace('_', '-')}"
    message = f"the GPU's memory does not hold a step of {flag} {number}"
    return TrainingError(message, hint=hint or f"a smaller {flag}")
