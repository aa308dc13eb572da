"""Draw a run's curves as SVG for a notebook: a chart for each metric, light enough for every second.

`launch report` draws the pictures that are kept, by matplotlib, which takes a hundred times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from jobs.host.console import masked
from jobs.runs.charts import COLOURS, LARGEST_DRAWN, panel_names, thinned
from jobs.runs.figures import value_text
from jobs.runs.metrics import Curve
from jobs.runs.report import RunReport

MOST_CHARTS, MOST_LINES, LONGEST_NAME = 6, 4, 40
WIDTH, HEIGHT = 320, 180
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 20
# Beside the colours: told apart in print, too.
DASHES = ("", "6 3", "2 3", "8 3 2 3")

Point = tuple[float, float]


def charts_of(report: RunReport) -> str:
    """Draw the metrics that have two points or more, main figures first; names are escaped."""
    found = [
        [each for each in report.curves if each.name == name and _is_line(each)][:MOST_LINES]
        for name in panel_names([report])
    ]
    drawn = [_chart(curves) for curves in found if curves]
    return "".join(drawn[:MOST_CHARTS])


def _is_line(curve: Curve) -> bool:
    return len(curve.finite()) > 1 and abs(curve.last[1]) <= LARGEST_DRAWN


def _chart(curves: Sequence[Curve]) -> str:
    name = curves[0].name
    lines = [[each for each in thinned(curve) if not math.isnan(each[1])] for curve in curves]
    points = [each for line in lines for each in line]
    first, last = _range([place for place, _ in points])
    low, high = _range([value for _, value in points])

    def shown(point: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * _share(point[0], first, last)
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(point[1], low, high)
        return f"{x:.1f},{y:.1f}"

    styles = list(zip(COLOURS, DASHES, strict=False))
    drawn = [
        f'<polyline points="{" ".join(map(shown, line))}" fill="none" stroke="{colour}" '
        f'stroke-width="2" stroke-dasharray="{dashes}"/>'
        for line, (colour, dashes) in zip(lines, styles, strict=False)
    ]
    keys = [
        f'<tspan fill="{colour}"> {_text(curve.split)} {_text(value_text(curve.last[1], name))}</tspan>'
        for curve, (colour, _) in zip(curves, styles, strict=False)
    ]
    end = HEIGHT - BOTTOM
    marks = [
        _mark(LEFT - 4, TOP + 4, value_text(high, name)),
        _mark(LEFT - 4, end + 4, value_text(low, name)),
        _mark(LEFT, HEIGHT - 4, f"{first:.6g}"),
        _mark(WIDTH - RIGHT, HEIGHT - 4, f"{curves[0].axis} {last:.6g}"),
        f'<path d="M{LEFT} {TOP}V{end}H{WIDTH - RIGHT}" fill="none" stroke="currentColor"/>',
    ]
    title = (
        f'<text x="4" y="14"><tspan font-weight="bold">{_text(name)}</tspan>{"".join(keys)}</text>'
    )
    return (
        f'<svg role="img" aria-label="{_text(name)}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor">'
        f"{title}{''.join(marks)}{''.join(drawn)}</svg>"
    )


def _mark(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="end">{_text(text)}</text>'


def _range(values: Sequence[float]) -> Point:
    low, high = min(values), max(values)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _share(value: float, low: float, high: float) -> float:
    """Give the place between both, 0 to 1; halves, since their difference may be no float."""
    return (value / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)


def _text(text: str) -> str:
    return escape(masked(text)[:LONGEST_NAME])
