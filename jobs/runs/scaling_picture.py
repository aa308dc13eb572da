"""Draw a scaling report: measured, predicted and ideal rates over ranks, and the parts of a step."""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runs.charts import COLOURS, write_picture
from jobs.runs.scaling import PARTS, Row, Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (11.0, 4.2)
MARKERS: dict[Scaling, str] = {"weak": "o", "strong": "s"}


def draw_scaling(title: str, rows: Sequence[Row], path: Path) -> None:
    """Write the picture, PNG or SVG; one row must have a rate. Raises EnvironmentFailure."""
    write_picture(lambda: _figure(title, [row for row in rows if row.point.rate]), path)


def _figure(title: str, rows: Sequence[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(SIZE_INCHES, dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_rates(left, rows)
    _draw_parts(right, rows)
    figure.suptitle(title.replace("$", r"\$"))
    return figure


def _draw_rates(axes: Axes, rows: Sequence[Row]) -> None:
    unit = rows[0].point.unit
    for scaling, marker in MARKERS.items():
        own = sorted(
            (row for row in rows if row.point.size.scaling == scaling),
            key=lambda row: row.point.size.ranks,
        )
        if not own:
            continue
        if scaling == "strong":  # its smallest size is the smallest weak one
            own.insert(0, min(rows, key=lambda row: row.point.size.ranks))
        points = [row.point for row in own]
        ranks = [each.size.ranks for each in points]
        rates = [each.rate or 0.0 for each in points]
        errors = [
            [rate - each.low for rate, each in zip(rates, points, strict=True)],
            [each.high - rate for rate, each in zip(rates, points, strict=True)],
        ]
        colour = COLOURS[list(MARKERS).index(scaling)]
        label = f"measured, {scaling} scaling"
        axes.errorbar(
            ranks, rates, yerr=errors, color=colour, marker=marker, capsize=3, label=label
        )
        _draw_predicted(axes, own, colour, scaling)
    ideal = sorted({(row.point.size.ranks, row.ideal) for row in rows if row.ideal})
    axes.plot(*zip(*ideal, strict=True), color="0.5", linestyle=":", label="ideal")
    axes.set_xlabel("ranks")
    axes.set_ylabel(f"{unit}s/s of all ranks")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(sorted({row.point.size.ranks for row in rows}))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _draw_predicted(axes: Axes, rows: Sequence[Row], colour: str, scaling: Scaling) -> None:
    first, *others = (row.point for row in rows)
    told = [each for each in others if each.predicted]
    if not told:
        return
    # A prediction goes out from what was measured before it.
    rate = first.rate or 0.0
    ranks = [first.size.ranks, *(each.size.ranks for each in told)]
    middle = [rate, *(each.predicted or 0.0 for each in told)]
    low = [rate, *(each.predicted_low or 0.0 for each in told)]
    high = [rate, *(each.predicted_high or 0.0 for each in told)]
    label = f"predicted, {scaling}, with its 90 % band"
    axes.plot(ranks, middle, color=colour, linestyle="--", marker="x", label=label)
    axes.fill_between(ranks, low, high, color=colour, alpha=0.15)


def _draw_parts(axes: Axes, rows: Sequence[Row]) -> None:
    parted = [row for row in rows if row.shares]
    if not parted:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "the program tells no steps", ha="center", va="center")
        return
    names = [str(row.point.size) for row in parted]
    bottom = [0.0] * len(parted)
    for part, colour in zip(PARTS, COLOURS, strict=False):
        heights = [
            1000 * (row.point.step_s or 0.0) * (row.shares.of[part] or 0.0)
            for row in parted
            if row.shares
        ]
        if any(heights):
            axes.bar(names, heights, bottom=bottom, color=colour, label=part, width=0.6)
        bottom = [under + height for under, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("ms of a step")
    axes.set_xlabel("nodes x processes")
    axes.legend(frameon=False)
