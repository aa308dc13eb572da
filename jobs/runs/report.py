"""Reads the results of runs: final figures as rows, metrics as curves.

Reads a run directory (docs/run-directory.md) whoever wrote it: figures come from `summary.json`,
else from the last metrics. Knows nothing of pictures; jobs/runs/charts.py draws what this gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import RankError, RunStatus
from jobs.host.console import duration_text
from jobs.host.untrusted import parse_json, read_json, read_small
from jobs.runs.outcome import headline, run_time_s

HEADER = ("RUN", "NAME", "STATE", "RANKS", "EPOCHS", "ACCURACY", "LOSS", "IMAGES/S", "TIME")
MOST_METRICS_BYTES = 1 << 30
RIGHT = (3, 4, 5, 6, 7, 8)


class Metric(Struct, frozen=True):
    """A line of `metrics.jsonl`; the time is not needed here."""

    step: int
    epoch: float
    split: str
    name: str
    value: float


class Curve(Struct, frozen=True, kw_only=True):
    """A metric over the epochs."""

    split: str
    name: str
    epochs: list[float]
    values: list[float]


class Figures(Struct, frozen=True, kw_only=True):
    """The final figures; None where the run does not tell. A rate is that of all ranks."""

    epochs: float | None
    test_accuracy: float | None
    test_loss: float | None
    images_per_s: float | None


class RunReport(Struct, frozen=True, kw_only=True):
    """Status, figures and curves of one run."""

    status: RunStatus
    error: RankError | None
    figures: Figures
    curves: list[Curve]
    summary: dict[str, Any]


def read_report(status: RunStatus, error: RankError | None) -> RunReport:
    """Read what a run, over or not, has written into its run directory."""
    run_dir = Path(status.run_dir)
    curves = read_curves(run_dir / "metrics.jsonl")
    summary = _read_summary(run_dir / "summary.json")
    return RunReport(
        status=status,
        error=error,
        figures=_figures(summary, curves),
        curves=curves,
        summary=summary,
    )


def read_curves(path: Path) -> list[Curve]:
    """Read the metrics, in the order in which they first appear; none where there is no file.

    A line that is not whole (the run goes on, or its disk was full) is passed over.
    """
    try:
        lines = read_small(path, MOST_METRICS_BYTES).splitlines()
    except OSError:
        return []
    curves: dict[tuple[str, str], Curve] = {}
    for line in lines:
        try:
            metric = parse_json(line, Metric)
        except msgspec.MsgspecError:
            continue
        key = (metric.split, metric.name)
        if key not in curves:
            curves[key] = Curve(split=metric.split, name=metric.name, epochs=[], values=[])
        curves[key].epochs.append(metric.epoch)
        curves[key].values.append(metric.value)
    return list(curves.values())


def row(report: RunReport) -> tuple[str, ...]:
    """Write the run's line of the table; `-` where it does not tell."""
    status, figures = report.status, report.figures
    time_s = run_time_s(status)
    return (
        status.id,
        status.name,
        status.state.value,
        str(status.world_size),
        _text(figures.epochs, "g"),
        _text(figures.test_accuracy, ".2%"),
        _text(figures.test_loss, ".4f"),
        _text(figures.images_per_s, ",.0f"),
        "-" if time_s is None else duration_text(time_s),
    )


def remarks(reports: Sequence[RunReport]) -> list[str]:
    """Say what the table cannot: why a run did not complete, and which left no metrics."""
    found: list[str] = []
    for report in reports:
        if report.status.state.is_terminal() and report.status.exit_code != 0:
            found.append(headline(report.status, report.error))
        if not report.curves:
            found.append(f"{report.status.id} has no metrics to draw")
    return found


def as_json(report: RunReport) -> dict[str, Any]:
    """Give the run's fields as every verb does, with its figures, summary and error."""
    return {
        **msgspec.to_builtins(report.status),
        "time_s": run_time_s(report.status),
        "figures": msgspec.to_builtins(report.figures),
        "summary": report.summary,
        "error": msgspec.to_builtins(report.error),
    }


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        # It is the program's own file, and a report can do without it.
        return {}


def _figures(summary: dict[str, Any], curves: Sequence[Curve]) -> Figures:
    last = {(curve.split, curve.name): curve.values[-1] for curve in curves}
    epochs = max((curve.epochs[-1] for curve in curves), default=None)
    return Figures(
        epochs=_number(summary.get("epochs")) or epochs,
        test_accuracy=_number(summary.get("test_accuracy", last.get(("test", "accuracy")))),
        test_loss=_number(summary.get("test_loss", last.get(("test", "loss")))),
        images_per_s=_number(summary.get("images_per_s", last.get(("train", "images_per_s")))),
    )


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
