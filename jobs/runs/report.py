"""Reads the results of runs: final figures, and metrics as curves.

Reads a run directory (docs/run-directory.md) whoever wrote it. Knows nothing of tables and
pictures: jobs/runs/report_text.py and jobs/runs/charts.py show what this gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import RankError, RunStatus
from jobs.host.untrusted import read_small
from jobs.runs.figures import Figure, figures_of, goal_of
from jobs.runs.metrics import Axis, Curve, parse_figures, read_curves
from jobs.runs.outcome import run_time_s

# Splits as keys of `summary.json` begin with them: `val_loss`.
_SPLITS = ("test_", "val_", "valid_", "validation_", "eval_", "dev_", "train_")


class Figures(Struct, frozen=True, kw_only=True):
    """Hold a run's final figures, rates over all ranks; None for those that the run did not write.

    `data_wait_s` is the mean over the steps of rank 0's wait for its batch.
    """

    epochs: float | None
    test_accuracy: float | None
    test_loss: float | None
    images_per_s: float | None
    data_wait_s: float | None = None
    main: Figure | None


class RunReport(Struct, frozen=True, kw_only=True):
    """Status, figures and curves of one run.

    `metrics` sum up the curves, the main figure first. `differs` is what tells the run from those
    that it is compared with: a job file's keys and their values.
    """

    status: RunStatus
    error: RankError | None
    figures: Figures
    metrics: list[Figure]
    curves: list[Curve]
    summary: dict[str, Any]
    differs: dict[str, str] = {}


def read_report(status: RunStatus, error: RankError | None) -> RunReport:
    """Read the files that a run, over or not, has written into its run directory."""
    run_dir = Path(status.run_dir)
    curves = read_curves(run_dir / "metrics.jsonl")
    summary = read_summary(run_dir / "summary.json")
    metrics = figures_of(curves or _summed_up(summary))
    return RunReport(
        status=status,
        error=error,
        figures=_figures(summary, curves, metrics),
        metrics=metrics,
        curves=curves,
        summary=summary,
    )


def as_json(report: RunReport) -> dict[str, Any]:
    """Give the run's fields as every verb does, with its figures, summary and error."""
    return {
        **msgspec.to_builtins(report.status),
        "time_s": run_time_s(report.status),
        "figures": msgspec.to_builtins(report.figures),
        "metrics": msgspec.to_builtins(report.metrics),
        "differs": report.differs,
        "summary": report.summary,
        "error": msgspec.to_builtins(report.error),
    }


def read_summary(path: Path) -> dict[str, Any]:
    """Read a program's closing figures; none where it wrote none that can be read."""
    try:
        return parse_figures(read_small(path), dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        # It is the program's own file, and a report can do without it.
        return {}


def _summed_up(summary: dict[str, Any]) -> list[Curve]:
    """Make curves of one point of the figures of a program that writes no metrics."""
    epoch = number_of(summary.get("epochs"))
    axis: Axis = "step" if epoch is None else "epoch"
    found: list[Curve] = []
    for key, each in summary.items():
        split, _, name = key.partition("_") if key.startswith(_SPLITS) else ("", "", key)
        value = number_of(each)
        if value is None or not math.isfinite(value):
            continue
        curve = Curve(split=split, name=name, axis=axis, at=[epoch or 0.0], values=[value])
        # What else stands there are sizes and settings.
        if split or goal_of(curve):
            found.append(curve)
    return found


def _figures(
    summary: dict[str, Any], curves: Sequence[Curve], metrics: Sequence[Figure]
) -> Figures:
    last = {(each.split, each.name): each.last for each in metrics}
    epochs = max((each.at[-1] for each in curves if each.axis == "epoch"), default=None)
    return Figures(
        epochs=number_of(summary.get("epochs")) or epochs,
        test_accuracy=number_of(summary.get("test_accuracy", last.get(("test", "accuracy")))),
        test_loss=number_of(summary.get("test_loss", last.get(("test", "loss")))),
        images_per_s=number_of(summary.get("images_per_s", last.get(("train", "images_per_s")))),
        data_wait_s=number_of(summary.get("data_wait_s", _mean_wait_s(curves))),
        main=metrics[0] if metrics else None,
    )


def _mean_wait_s(curves: Sequence[Curve]) -> float | None:
    """Average what the program logged of its waits; each point is the mean of equally many steps."""
    name = ("train", "data_wait_s")
    logged = [each.finite() for each in curves if (each.split, each.name) == name]
    waits = [value for points in logged for _, value in points]
    return sum(waits) / len(waits) if waits else None


def number_of(value: Any) -> float | None:
    """Convert a number of JSON; None for anything else."""
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None
    except OverflowError:
        return None
