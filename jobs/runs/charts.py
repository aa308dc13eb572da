"""Draws the curves of runs as one picture, PNG or SVG."""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import RunState
from jobs.host.cache import cache_root
from jobs.host.console import shortened
from jobs.host.files import write_file
from jobs.runs.figures import Figure as MainFigure
from jobs.runs.figures import figure_text, is_share, value_text
from jobs.runs.metrics import Curve
from jobs.runs.report import RunReport
from jobs.runs.report_text import differs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = (".png", ".svg")
# People who are colour-blind tell them apart, and each stands out from its ground by 3:1 (WCAG 1.4.11): on
# white, and on the pages' dark. Chosen by what tests/jobs/ui/test_colours.py measures; the first are Okabe and Ito's.
COLOURS = ("#0072B2", "#D55E00", "#9900FF", "#771100", "#BB7777", "#221199", "#111111")
COLOURS_ON_DARK = ("#56B4E9", "#E69F00", "#AA33FF", "#EE1166", "#AAFF88", "#CC3399", "#F0F0F0")
# Of the splits that are no `train`, which is dotted.
STYLES = ("-", "--", "-.")
PANEL_INCHES = (5.3, 3.8)
MAX_PANELS, PANELS_A_ROW = 9, 3
# Beyond it a line's points only make the file larger.
MAX_POINTS = 2000
LONGEST_LABEL = 90
# Near the largest float, matplotlib's margins are infinite.
LARGEST_DRAWN = 1e300


def draw_report(reports: Sequence[RunReport], path: Path) -> None:
    """Write the picture of the runs' curves, whole or not at all; one run must have some.

    Raises LaunchError for a file name that is neither .png nor .svg, EnvironmentFailure where
    it cannot be written.
    """
    check_format(path)
    write_picture(lambda: _figure([each for each in reports if each.curves]), path)


def write_picture(draw: Callable[[], Figure], path: Path) -> None:
    """Write a figure, whole or not at all; raises EnvironmentFailure where it cannot be written."""
    # matplotlib would keep its font cache in a folder that is not ours.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_root(os.environ) / "matplotlib"))
    from matplotlib import rc_context, rcParams, rcParamsDefault

    picture = BytesIO()
    with rc_context():
        # A person's own matplotlibrc must not change how a report looks.
        rcParams.update(rcParamsDefault)
        draw().savefig(picture, format=path.suffix[1:].lower())
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
    """List the metrics, one a panel: main figures first, then losses, rates last."""
    mains = [each.figures.main.name for each in reports if each.figures.main]
    names = [curve.name for report in reports for curve in report.curves]
    rates = [name for name in names if "_per_" in name]
    losses = [name for name in names if name == "loss"]
    others = [name for name in names if name not in rates]
    return list(dict.fromkeys([*mains, *losses, *others, *rates]))


def left_out(reports: Sequence[RunReport]) -> list[str]:
    """List the metrics for which the picture has no panel."""
    return panel_names(reports)[MAX_PANELS:]


def _figure(reports: Sequence[RunReport]) -> Figure:
    from matplotlib.figure import Figure

    names = panel_names(reports)[:MAX_PANELS]
    splits = _splits(reports)
    num_columns = min(len(names), PANELS_A_ROW)
    num_rows = -(-len(names) // num_columns)
    width, height = PANEL_INCHES
    size = (max(num_columns * width, width * 1.3), num_rows * height)
    figure = Figure(size, dpi=150, layout="constrained")
    panels = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for panel, name in zip(panels, names, strict=False):
        _draw_panel(panel, name, reports, splits)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    figure.suptitle("\n".join(map(_plain, headings(reports))))
    if len(reports) > 1:
        figure.legend(handles=_legend(reports), loc="outside lower left")
    return figure


def _legend(reports: Sequence[RunReport]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=_colour(number), linewidth=2.0, label=_plain(report_label(report)))
        for number, report in enumerate(reports)
    ]


def headings(reports: Sequence[RunReport]) -> tuple[str, str]:
    """Write title and subtitle of the picture."""
    if len(reports) > 1:
        names = ", ".join(dict.fromkeys(report.status.name for report in reports))
        words = {"-": "solid", "--": "dashed", "-.": "dash-dotted", ":": "dotted"}
        styles = _splits(reports).items()
        told = [f"{words[style]}: {split}" for split, style in styles if split]
        return f"{names}: {len(reports)} runs", ", ".join(told)
    report = reports[0]
    strategy = report.summary.get("strategy")
    ranks = f"{report.status.world_size} rank{'s' if report.status.world_size > 1 else ''}"
    parts = [report.status.id, report.status.state.value, ranks]
    parts += [strategy] if isinstance(strategy, str) else []
    main, rate = report.figures.main, report.figures.images_per_s
    parts += [f"{main.label} {figure_text(main)}"] if main else []
    parts += [f"{rate:,.0f} images/s"] if rate is not None else []
    return report.status.name, "  ·  ".join(parts)


def report_label(report: RunReport) -> str:
    """Label a run in the legend: how it differs from the others, its main figure, its id."""
    status, main = report.status, report.figures.main
    parts = [shortened(differs_text(report) or status.name, LONGEST_LABEL)]
    parts += [f"{main.label} {value_text(main.last, main.name)}"] if main else []
    parts += [status.state.value] if status.state is not RunState.COMPLETED else []
    return "  ·  ".join([*parts, status.id])


def _splits(reports: Sequence[RunReport]) -> dict[str, str]:
    """Give each split its style of line: that of the main figure is solid, training is dotted."""
    mains = [each.figures.main.split for each in reports if each.figures.main]
    splits = [curve.split for report in reports for curve in report.curves]
    others = [each for each in dict.fromkeys([*mains, *splits]) if each not in ("train", "")]
    styles = {split: STYLES[number % len(STYLES)] for number, split in enumerate(others)}
    of_training = ":" if others else "-"
    return styles | {each: of_training for each in ("train", "") if each in splits}


def _draw_panel(
    panel: Axes, name: str, reports: Sequence[RunReport], splits: Mapping[str, str]
) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    curves = [
        (number, curve)
        for number, report in enumerate(reports)
        for curve in report.curves
        if curve.name == name
    ]
    is_alone = len(reports) == 1
    for number, curve in curves:
        _draw_curve(panel, curve, number, splits, is_alone=is_alone)
    low, high = panel.dataLim.intervaly
    if is_share(name, [value for _, curve in curves for value in curve.values]):
        decimals = 0 if high - low > 0.04 else 1
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals))
    elif low > 0 and high / low > 20:
        # A loss falls by powers: on a linear axis everything after the first epoch is one line.
        panel.set_yscale("log")
    panel.set_title(_plain(name), loc="left")
    panel.set_xlabel(" or ".join(dict.fromkeys(curve.axis for _, curve in curves)))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlim(left=0)
    panel.margins(y=0.12)
    panel.grid(alpha=0.3)
    if is_alone:
        panel.legend()
        main = reports[0].figures.main
        if main is not None and main.name == name:
            _mark_last(panel, main)


def _draw_curve(
    panel: Axes, curve: Curve, number: int, splits: Mapping[str, str], *, is_alone: bool
) -> None:
    points = thinned(curve)
    panel.plot(
        [place for place, _ in points],
        [value for _, value in points],
        label=_plain(curve.split or curve.name),
        color=_colour(list(splits).index(curve.split) if is_alone else number),
        # Runs with equal seeds lie on each other: the ones below show as a wider rim.
        linewidth=2.0 if is_alone else max(1.4, 4.2 - 1.2 * number),
        linestyle="-" if is_alone else splits[curve.split],
        marker="." if len(points) <= 40 else None,
    )


def _mark_last(panel: Axes, main: MainFigure) -> None:
    """Write the main figure's last value at the end of its line."""
    if abs(main.last) > LARGEST_DRAWN:
        return
    panel.annotate(
        value_text(main.last, main.name),
        (main.last_at, main.last),
        (0, 6),
        textcoords="offset points",
        ha="right",
        weight="bold",
    )


def thinned(curve: Curve) -> list[tuple[float, float]]:
    """Choose the points that are drawn: of many neighbours the lowest and the highest.

    What is no number that can be drawn is NaN, which leaves a gap.
    """
    points = [
        (place, value if abs(value) <= LARGEST_DRAWN else math.nan)
        for place, value in zip(curve.at, curve.values, strict=True)
        if abs(place) <= LARGEST_DRAWN
    ]
    size = -(-len(points) // (MAX_POINTS // 2))
    if size <= 2:
        return points
    chosen: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        group = range(start, min(start + size, len(points)))
        finite = [at for at in group if not math.isnan(points[at][1])] or [start]
        ends = {
            min(finite, key=lambda at: points[at][1]),
            max(finite, key=lambda at: points[at][1]),
        }
        if group[-1] == len(points) - 1:
            ends.add(group[-1])
        chosen += [points[at] for at in sorted(ends)]
    return chosen


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _plain(text: str) -> str:
    """Write what matplotlib would take for a formula or a hidden label as it is."""
    text = "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
