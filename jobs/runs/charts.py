"""Draws the curves of runs as one picture, PNG or SVG; the only module that loads matplotlib."""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import RunState
from jobs.host.cache import cache_root
from jobs.host.files import write_file
from jobs.runs.report import Curve, RunReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Okabe and Ito's colours, which people who are colour-blind tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PREFERRED = ("loss", "accuracy")
PANEL_INCHES = (5.3, 3.8)
# Beyond it a line's points only make the file larger.
MAX_POINTS = 2000


def draw_report(reports: Sequence[RunReport], path: Path) -> None:
    """Write the picture of the runs' curves, whole or not at all; one run must have some.

    Raises LaunchError for a file name that is neither .png nor .svg, EnvironmentFailure where
    it cannot be written.
    """
    check_format(path)
    # matplotlib would keep its font cache in a folder that is not ours.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_root(os.environ) / "matplotlib"))
    from matplotlib import rc_context, rcParams, rcParamsDefault

    picture = BytesIO()
    with rc_context():
        # A person's own matplotlibrc must not change how a report looks.
        rcParams.update(rcParamsDefault)
        figure = _figure([report for report in reports if report.curves])
        figure.savefig(picture, format=path.suffix[1:].lower())
    try:
        write_file(path, picture.getvalue())
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror or error}"
        raise EnvironmentFailure(message, hint="--output FILE writes to another place") from None


def check_format(path: Path) -> None:
    """Raise LaunchError where the name does not end as a picture's."""
    if path.suffix.lower() not in FORMATS:
        message = f"`{path.name}` is neither a .png nor a .svg file"
        raise LaunchError(message, hint="--output report.png")


def panel_names(reports: Sequence[RunReport]) -> list[str]:
    """Choose the metrics that get a panel: loss and accuracy, else the first two that there are."""
    names = list(dict.fromkeys(curve.name for report in reports for curve in report.curves))
    return [name for name in PREFERRED if name in names] or names[:2]


def _figure(reports: Sequence[RunReport]) -> Figure:
    from matplotlib.figure import Figure

    names = panel_names(reports)
    width, height = PANEL_INCHES
    figure = Figure((len(names) * width, height), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        _draw_panel(panel, name, reports)
    figure.suptitle("\n".join(headings(reports)))
    if len(reports) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left")
    return figure


def headings(reports: Sequence[RunReport]) -> tuple[str, str]:
    """Title and subtitle of the picture."""
    if len(reports) > 1:
        names = ", ".join(dict.fromkeys(report.status.name for report in reports))
        return f"{names}: {len(reports)} runs", "solid: test, dotted: train"
    report = reports[0]
    strategy = report.summary.get("strategy")
    ranks = f"{report.status.world_size} rank{'s' if report.status.world_size > 1 else ''}"
    parts = [report.status.id, report.status.state.value, ranks]
    parts += [strategy] if isinstance(strategy, str) else []
    rate = report.figures.images_per_s
    parts += [f"{rate:,.0f} images/s"] if rate is not None else []
    return report.status.name, "  ·  ".join(parts)


def _draw_panel(panel: Axes, name: str, reports: Sequence[RunReport]) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for number, report in enumerate(reports):
        for curve in report.curves:
            if curve.name == name:
                _draw_curve(panel, curve, number, report, alone=len(reports) == 1)
    low, high = panel.dataLim.intervaly
    if name == "accuracy":
        panel.yaxis.set_major_formatter(
            PercentFormatter(1.0, decimals=0 if high - low > 0.04 else 1)
        )
    elif low > 0 and high / low > 20:
        # A loss falls by powers: on a linear axis everything after the first epoch is one line.
        panel.set_yscale("log")
    panel.set_title(name.replace("_", " ").capitalize(), loc="left")
    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    if len(reports) == 1:
        panel.legend()


def _draw_curve(panel: Axes, curve: Curve, number: int, report: RunReport, *, alone: bool) -> None:
    step = -(-len(curve.values) // MAX_POINTS)
    is_test = curve.split != "train"
    panel.plot(
        curve.epochs[::step],
        curve.values[::step],
        label=curve.split if alone else report_label(report) if is_test else "_",
        color=COLOURS[(int(is_test) if alone else number) % len(COLOURS)],
        # Runs with equal seeds lie on each other: the ones below show as a wider rim.
        linewidth=2.0 if alone else max(1.4, 4.2 - 1.2 * number),
        linestyle="-" if is_test or alone else ":",
        marker="." if len(curve.values) <= 40 else None,
    )
    if is_test and alone and curve.name == "accuracy":
        last = f"{curve.values[-1]:.1%}"
        place = (curve.epochs[-1], curve.values[-1])
        panel.annotate(last, place, (0, 6), textcoords="offset points", ha="right", weight="bold")


def report_label(report: RunReport) -> str:
    """Label the run in the legend: its job, size and final accuracy."""
    status, accuracy = report.status, report.figures.test_accuracy
    text = f"{status.name} {status.id}, {status.world_size} x {report.summary.get('strategy', '?')}"
    if accuracy is not None:
        text += f", {accuracy:.1%}"
    return text if status.state is RunState.COMPLETED else f"{text}, {status.state.value}"
