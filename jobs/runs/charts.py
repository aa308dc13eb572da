"""Draws the curves of runs as one picture, PNG or SVG; the only module that loads matplotlib."""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import RunState
from jobs.host.cache import cache_root
from jobs.runs.report import Curve, RunReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Okabe and Ito's colours, which people who are colour-blind tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PREFERRED = ("loss", "accuracy")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, FAINT = "#222222", "#8A8A8A"
# Inches.
PANEL_WIDTH, PANEL_HEIGHT, GAP = 4.7, 3.3, 0.8
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 0.75, 0.35, 1.15, 0.6
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

    drawn = [report for report in reports if report.curves]
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with rc_context():
            # A person's own matplotlibrc must not change how a report looks.
            rcParams.update(rcParamsDefault)
            _figure(drawn).savefig(partial)
        partial.replace(path)
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror or error}"
        raise EnvironmentFailure(message, hint="--output FILE names another place") from None
    finally:
        partial.unlink(missing_ok=True)


def check_format(path: Path) -> None:
    """Raise LaunchError where the name does not end as a picture's."""
    if path.suffix.lower() not in FORMATS:
        message = f"`{path.name}` is neither a .png nor a .svg file"
        raise LaunchError(message, hint="--output report.png")


def panel_names(reports: Sequence[RunReport]) -> list[str]:
    """Which metrics get a panel: loss and accuracy, else the first two that there are."""
    names = list(dict.fromkeys(curve.name for report in reports for curve in report.curves))
    return [name for name in PREFERRED if name in names] or names[:2]


def _figure(reports: Sequence[RunReport]) -> Figure:
    """Lay out in inches, so that titles and panels keep their size however many there are."""
    from matplotlib.figure import Figure

    names = panel_names(reports)
    legend = 0.0 if len(reports) == 1 else 0.1 + 0.24 * len(reports)
    width = MARGIN_LEFT + len(names) * PANEL_WIDTH + (len(names) - 1) * GAP + MARGIN_RIGHT
    height = MARGIN_TOP + PANEL_HEIGHT + MARGIN_BOTTOM + legend
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    figure.subplots_adjust(
        left=MARGIN_LEFT / width,
        right=1 - MARGIN_RIGHT / width,
        top=1 - MARGIN_TOP / height,
        bottom=(MARGIN_BOTTOM + legend) / height,
        wspace=GAP / PANEL_WIDTH,
    )
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        _draw_panel(panel, name, reports)
    title, subtitle = headings(reports)
    left = MARGIN_LEFT / width
    figure.text(left, 1 - 0.40 / height, title, fontsize=15, fontweight="bold", color=INK)
    figure.text(left, 1 - 0.66 / height, subtitle, fontsize=9.5, color=FAINT)
    if legend:
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            lines,
            labels,
            loc="lower left",
            bbox_to_anchor=(left - 0.01, 0.05 / height),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )
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
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, PercentFormatter

    curves = [
        (number, report, curve)
        for number, report in enumerate(reports)
        for curve in report.curves
        if curve.name == name
    ]
    for number, report, curve in curves:
        _draw_curve(panel, curve, number, report, alone=len(reports) == 1)
    values = [value for _, _, curve in curves for value in curve.values if value > 0]
    if name == "accuracy":
        decimals = 0 if values and max(values) - min(values) > 0.04 else 1
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals))
        panel.margins(y=0.12)
    elif values and max(values) / min(values) > 20:
        # A loss falls by powers: on a linear axis everything after the first epoch is one line.
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(_plain))
        panel.yaxis.set_minor_locator(LogLocator(subs=()))
    panel.set_title(name.replace("_", " ").capitalize(), loc="left", fontsize=11, color=INK)
    panel.set_xlabel("epoch", fontsize=9.5, color=INK)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlim(left=0)
    panel.grid(visible=True, color="#E6E6E6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(colors=INK, labelsize=9, length=0, which="both")
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color("#B0B0B0")
    if len(reports) == 1 and len(curves) > 1:
        panel.legend(frameon=False, fontsize=9.5, labelcolor=INK)


def _plain(value: float, _position: int) -> str:
    return f"{value:g}"


def _draw_curve(panel: Axes, curve: Curve, number: int, report: RunReport, *, alone: bool) -> None:
    step = -(-len(curve.values) // MAX_POINTS)
    epochs, values = curve.epochs[::step], curve.values[::step]
    is_test = curve.split != "train"
    colour = COLOURS[(1 if is_test else 0) if alone else number % len(COLOURS)]
    label = curve.split if alone else report_label(report) if is_test else "_"
    # Runs with equal seeds lie on each other: the ones below show as a wider rim.
    width = 2.0 if alone else max(1.4, 4.2 - 1.2 * number)
    has_markers = is_test and len(values) <= 40
    panel.plot(
        epochs,
        values,
        label=label,
        color=colour,
        linewidth=width if is_test else 0.65 * width,
        linestyle="-" if is_test or alone else ":",
        alpha=1.0 if is_test else 0.75,
        marker=MARKERS[number % len(MARKERS)] if has_markers else None,
        markersize=2.5 + width,
        zorder=(3 if is_test else 2) + number / 1000,
    )
    if is_test and alone and curve.name == "accuracy":
        panel.annotate(
            f"{values[-1]:.1%}",
            (epochs[-1], values[-1]),
            xytext=(4, 7),
            textcoords="offset points",
            ha="right",
            fontsize=10,
            fontweight="bold",
            color=colour,
        )


def report_label(report: RunReport) -> str:
    """The run in the legend: what it was and what it came to."""
    status, accuracy = report.status, report.figures.test_accuracy
    text = f"{status.name} {status.id}, {status.world_size} x {report.summary.get('strategy', '?')}"
    if accuracy is not None:
        text += f", {accuracy:.1%}"
    return text if status.state is RunState.COMPLETED else f"{text}, {status.state.value}"
