"""Compute a scaling report from the rates of a job at several sizes, and write it (pure)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Literal

from msgspec import Struct

from jobs.host.console import figure_text, table
from jobs.runs.steady import NOISY

Scaling = Literal["weak", "strong"]
PARTS = ("compute", "exchange", "data wait", "host")
# Parts of a step that add up to less or more than this are no account of it.
ADD_UP = 0.03
RECKONED = "exchange reckoned, not measured: what the step takes longer than at the smallest size"
CSV_COLUMNS = (
    *("scaling", "nodes", "processes_per_node", "ranks", "rate", "low", "high", "unit"),
    *("variation", "windows", "warm_up_s", "predicted", "predicted_low", "predicted_high"),
    *("ideal", "efficiency", "cost_per_million", "currency", "step_s"),
    *(f"{part.replace(' ', '_')}_share" for part in PARTS),
    *("run", "note"),
)


class Size(Struct, frozen=True, kw_only=True):
    """A size that a job is measured at; its strong one keeps the batch of all ranks."""

    nodes: int
    processes_per_node: int
    scaling: Scaling = "weak"

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.nodes * self.processes_per_node

    def __str__(self) -> str:
        """Write nodes x processes."""
        strong = ", strong" if self.scaling == "strong" else ""
        return f"{self.nodes}x{self.processes_per_node}{strong}"


class Point(Struct, frozen=True, kw_only=True):
    """What was measured at a size; without a rate `why` says what is missing.

    Rates are in `unit`s a second of all ranks, with the interval of the median's 95 %; `step_s` is
    the time of a step, `batch` its samples of all ranks, and `compute_s`, `exchange_s`,
    `data_wait_s` and `host_s` are the parts of it that the program measured itself, of a step that took
    it `told_step_s` then.
    `disturbed` names what else the machine did meanwhile. `tag` is that of a run that is about to be
    started.
    """

    size: Size
    run: str | None = None
    tag: str | None = None
    why: str | None = None
    unit: str = "sample"
    rate: float | None = None
    low: float = 0.0
    high: float = 0.0
    variation: float = 0.0
    num_windows: int = 0
    warm_up_s: float = 0.0
    step_s: float | None = None
    batch: float | None = None
    told_step_s: float | None = None
    compute_s: float | None = None
    exchange_s: float | None = None
    data_wait_s: float | None = None
    host_s: float | None = None
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    price_per_hour: float | None = None
    currency: str | None = None
    disturbed: str | None = None

    @property
    def is_noisy(self) -> bool:
        """Tell whether its windows differ by more than NOISY."""
        return self.rate is not None and self.variation > NOISY

    @property
    def cost_per_million(self) -> float | None:
        """Price of a million units; None where it is free or unknown."""
        if not self.rate or not self.price_per_hour:
            return None
        return self.price_per_hour / 3600 / self.rate * 1e6


class Shares(Struct, frozen=True, kw_only=True):
    """Parts of a step as shares of its time, by the names of PARTS; None for what nobody told."""

    of: Mapping[str, float | None]

    @property
    def total(self) -> float:
        """What the known parts add up to; 1 where the account is right."""
        return sum(each for each in self.of.values() if each is not None)


class Row(Struct, frozen=True, kw_only=True):
    """A line of the report: a point beside the ideal, which the smallest size sets."""

    point: Point
    ideal: float | None
    efficiency: float | None
    shares: Shares | None
    notes: tuple[str, ...] = ()


def rows_of(points: Sequence[Point]) -> list[Row]:
    """Compare each point with the smallest measured size of its scaling."""
    return [_row(point, _smallest(points, point.size.scaling)) for point in points]


def _smallest(points: Sequence[Point], scaling: Scaling) -> Point | None:
    """Find the point of fewest ranks; the smallest strong one is the smallest weak one, too."""
    known = [each for each in points if each.rate and each.size.scaling in ("weak", scaling)]
    return min(known, key=lambda each: each.size.ranks, default=None)


def _row(point: Point, first: Point | None) -> Row:
    if point.rate is None or first is None or first.rate is None:
        notes = tuple(notes_of(point))
        return Row(point=point, ideal=None, efficiency=None, shares=None, notes=notes)
    ideal = first.rate * point.size.ranks / first.size.ranks
    return Row(
        point=point,
        ideal=ideal,
        efficiency=point.rate / ideal,
        shares=_shares(point, first),
        notes=(*notes_of(point), *_batch_notes(point, first), *_share_notes(point, first)),
    )


def _batch_notes(point: Point, first: Point) -> list[str]:
    """Say where a program keeps the batch of all ranks, so that more of them share one step."""
    is_kept = point.batch is not None and point.batch == first.batch
    if point.size.scaling == "strong" or point.size.ranks == first.size.ranks or not is_kept:
        return []
    return [f"the batch of all ranks stays {point.batch:g}: this is strong scaling"]


def _share_notes(point: Point, first: Point) -> list[str]:
    """Say where the parts of a step are reckoned: then they add up to it, whatever they are."""
    is_known = point.step_s is None or point.exchange_s is not None
    if is_known or point.size.ranks == first.size.ranks:
        return []
    return [RECKONED]


def _rank_share(point: Point, first: Point) -> float:
    """Compare what a rank computes in a step with what it does at the smallest size."""
    if point.batch and first.batch:
        return (point.batch / point.size.ranks) / (first.batch / first.size.ranks)
    return first.size.ranks / point.size.ranks if point.size.scaling == "strong" else 1.0


def _shares(point: Point, first: Point) -> Shares | None:
    """Part a step, as the program measured it; else compute is that of the smallest size.

    Then what is no compute there is taken from it; what a step takes longer than there, beyond its
    own waits, is the exchange that nothing hides. Where a rank has fewer samples in a step than
    there, its compute is as much less.
    """
    if not point.step_s or not first.step_s:
        return None
    compute_s, exchange_s = point.compute_s, point.exchange_s
    is_told = compute_s is not None and exchange_s is not None
    if compute_s is None or exchange_s is None:
        share = _rank_share(point, first)
        compute_s = (first.step_s - (first.data_wait_s or 0.0) - (first.host_s or 0.0)) * share
        told_s = (point.data_wait_s or 0.0) + (point.host_s or 0.0)
        exchange_s = max(point.step_s - compute_s - told_s, 0.0)
    seconds: dict[str, float | None] = {
        "compute": compute_s,
        "exchange": exchange_s,
        "data wait": point.data_wait_s,
        "host": point.host_s,
    }
    step_s = (is_told and point.told_step_s) or point.step_s
    return Shares(
        of={part: None if each is None else each / step_s for part, each in seconds.items()}
    )


def csv_text(rows: Sequence[Row]) -> str:
    """Write the rows as CSV with the columns CSV_COLUMNS; what is not known is empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        point, size = row.point, row.point.size
        shares = row.shares.of if row.shares else dict.fromkeys(PARTS)
        writer.writerow(
            [
                *(size.scaling, size.nodes, size.processes_per_node, size.ranks),
                *map(_figure, (point.rate, *(_known(point, point.low, point.high)))),
                point.unit,
                *map(_figure, _known(point, point.variation, point.num_windows, point.warm_up_s)),
                *map(_figure, (point.predicted, point.predicted_low, point.predicted_high)),
                *map(_figure, (row.ideal, row.efficiency, point.cost_per_million)),
                point.currency or "",
                _figure(point.step_s),
                *map(_figure, (shares[part] for part in PARTS)),
                point.run or "",
                "; ".join(row.notes),
            ]
        )
    return text.getvalue()


def report_table(rows: Sequence[Row], currency: str | None) -> str:
    """Lay the rows out for a terminal."""
    return table(_header(currency), [_cells(row) for row in rows], right=range(1, 9))


def markdown(title: str, about: Sequence[str], rows: Sequence[Row], picture: str) -> str:
    """Write the report as Markdown; `about` says how it came about, a line each."""
    currency = next((row.point.currency for row in rows if row.point.currency), None)
    header = _header(currency)
    lines = [f"# {title}", "", *(f"- {each}" for each in about), "", f"![Scaling]({picture})", ""]
    lines += [_line(header), _line(["---"] * len(header)), *(_line(_cells(row)) for row in rows)]
    if any(row.shares for row in rows):
        head = ["size", *PARTS, "together"]
        lines += ["", "Parts of a step:", "", _line(head), _line(["---"] * len(head))]
        lines += [_line([str(row.point.size), *share_cells(row)]) for row in rows if row.shares]
    remarks = [f"- {row.point.size}: {each}" for row in rows for each in row.notes]
    return "\n".join([*lines, *([""] if remarks else []), *remarks]) + "\n"


def share_cells(row: Row) -> list[str]:
    """Write the parts of a row's step, and what they add up to."""
    if row.shares is None:
        return [""] * (len(PARTS) + 1)
    cells = [
        "not told" if each is None else f"{each:.0%}"
        for each in (row.shares.of[part] for part in PARTS)
    ]
    total = row.shares.total
    return [*cells, f"{total:.0%}" + ("" if abs(total - 1) <= ADD_UP else " (no account of it)")]


def notes_of(point: Point) -> list[str]:
    """Say of a point what limits its worth."""
    notes = [point.why] if point.why else []
    if point.is_noisy:
        cause = f": {point.disturbed}" if point.disturbed else ""
        notes.append(f"noisy, its windows vary by {point.variation:.1%}{cause}")
    return notes


def _header(currency: str | None) -> list[str]:
    cost = f"{currency} A MILLION" if currency else "COST A MILLION"
    return [
        "SIZE",
        "RANKS",
        "RATE",
        "LOW",
        "HIGH",
        "PREDICTED",
        "IDEAL",
        "EFFICIENCY",
        cost,
        "NOTE",
    ]


def _cells(row: Row) -> list[str]:
    point = row.point
    figures = [_shown(each) for each in (point.rate, *_known(point, point.low, point.high))]
    efficiency = "" if row.efficiency is None else f"{row.efficiency:.0%}"
    cost = "" if point.cost_per_million is None else figure_text(point.cost_per_million)
    note = "noisy" if point.is_noisy else "not measured" if point.rate is None else ""
    predicted, ideal = _shown(point.predicted), _shown(row.ideal)
    size = str(point.size)
    return [size, str(point.size.ranks), *figures, predicted, ideal, efficiency, cost, note]


def _known(point: Point, *figures: float) -> list[float | None]:
    return [None if point.rate is None else each for each in figures]


def _shown(value: float | None) -> str:
    return "" if value is None else figure_text(value)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"
