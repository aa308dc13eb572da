"""Words what a run has come to: its main figures, and the places of what it made (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from jobs.contracts.spec import RunState, RunStatus
from jobs.runs.figures import Figure, figure_text

# Figures that are told at a run's end, of the split that the main figure is of.
NUM_FIGURES = 3


def main_figures(figures: Sequence[Figure]) -> list[tuple[str, str]]:
    """Word the main figure, which is the first, and the next ones of its split."""
    of_split = [each for each in figures if each.split == figures[0].split]
    return [(each.label, figure_text(each)) for each in of_split[:NUM_FIGURES]]


def output_places(
    status: RunStatus, places: Mapping[str, str], outputs: Sequence[str]
) -> list[tuple[str, str]]:
    """Name the places of a completed run's outputs, as of its model."""
    folder = places.get("outputs")
    if folder is None or status.state is not RunState.COMPLETED:
        return []
    if not outputs:
        return [("outputs", folder)]
    return [(name, f"{folder.rstrip('/')}/{name}") for name in outputs]


def fetch_command(status: RunStatus, stack: Sequence[str]) -> tuple[str, str]:
    """Give the command that copies a run's outputs; `stack` are the words that name the stack."""
    return "fetch with", shlex.join(["launch", "fetch", status.id, *stack])
