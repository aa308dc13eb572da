"""Reads `metrics.jsonl` as curves, whoever wrote it (docs/run-directory.md)."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from jobs.host.structs import prepared
from jobs.host.untrusted import parse_json, read_small

T = TypeVar("T")
MOST_BYTES = 1 << 30
Goal = Literal["max", "min"]
Axis = Literal["epoch", "step"]

_READER: ContextVar[Callable[[Path], list[Curve]] | None] = ContextVar("reader", default=None)
# Words that Python's json writes for what JSON has no word for.
_NO_NUMBER = re.compile(rb"([:,\[]\s*)(?:NaN|-?Infinity)(?=\s*[],}])")


class _Loose(Struct, frozen=True):
    """A line as other libraries write it: a split of null, a goal in words of their own."""

    name: str
    value: float | None
    step: float | None = None
    epoch: float | None = None
    split: str | None = None
    goal: str | None = None


class Metric(_Loose, frozen=True):
    """A line of `metrics.jsonl`; the time is not needed here."""

    split: str = ""
    goal: Goal | None = None


_GOALS: dict[str | None, Goal] = {"maximize": "max", "minimize": "min"}
_LINES = msgspec.json.Decoder(prepared(Metric))


class Curve(Struct, frozen=True, kw_only=True):
    """A metric over epochs, or over steps where the program tells no epochs.

    `values` are NaN where the program had no finite number; at least one is finite. `goal` is
    that of a main figure.
    """

    split: str
    name: str
    axis: Axis = "epoch"
    at: list[float]
    values: list[float]
    goal: Goal | None = None

    @property
    def label(self) -> str:
        """Split and name, as tables and pictures call the metric."""
        return f"{self.split} {self.name}".strip()

    @property
    def last(self) -> tuple[float, float]:
        """Place and value of the last finite value."""
        found = (pair for pair in zip(reversed(self.at), reversed(self.values), strict=True))
        return next(pair for pair in found if math.isfinite(pair[1]))

    def finite(self) -> list[tuple[float, float]]:
        """List places and values where there is a finite number, as they were written."""
        pairs = zip(self.at, self.values, strict=True)
        return [pair for pair in pairs if math.isfinite(pair[1])]


def read_curves(path: Path) -> list[Curve]:
    """Read the metrics, in the order in which they first appear; none where there is no file.

    A line that is not whole (the run goes on, or its disk was full) is passed over. Within
    `read_by` its reader is asked instead.
    """
    if reader := _READER.get():
        return reader(path)
    return read_all_curves(path)


@contextmanager
def read_by(reader: Callable[[Path], list[Curve]]) -> Generator[None]:
    """Have a reader that knows files already give the curves of what is read within."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


def read_all_curves(path: Path) -> list[Curve]:
    """Read the metrics from the file's beginning; see `read_curves`."""
    curves: dict[tuple[str, str], Curve] = {}
    for metric in read_metrics(path):
        key = (metric.split, metric.name)
        curve = curves.get(key)
        if curve is None:
            axis: Axis = "step" if metric.epoch is None else "epoch"
            curve = curves[key] = Curve(
                split=metric.split,
                name=metric.name,
                axis=axis,
                at=[],
                values=[],
                goal=metric.goal,
            )
        place = metric.epoch if curve.axis == "epoch" else metric.step
        if place is not None:
            curve.at.append(place)
            curve.values.append(math.nan if metric.value is None else metric.value)
    return [each for each in curves.values() if any(map(math.isfinite, each.values))]


def read_metrics(path: Path) -> list[Metric]:
    """Read every whole line of the metrics, as they were written; none where there is no file."""
    try:
        lines = read_small(path, MOST_BYTES).splitlines()
    except OSError:
        return []
    return [metric for line in lines if (metric := _parse(line)) is not None]


def parse_metrics(block: bytes) -> list[Metric]:
    """Parse whole lines, as `read_metrics` does; at once where all are well-formed."""
    try:
        return _LINES.decode_lines(block)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        lines = block.split(b"\n")
        return [metric for line in lines if line and (metric := _parse(line)) is not None]


def parse_figures(content: bytes, kind: type[T]) -> T:
    """Parse JSON that a program wrote of its figures; raises msgspec.MsgspecError.

    NaN and infinities are null, as `value` may be, and a byte order mark is passed over.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return parse_json(content, kind)
    except msgspec.MsgspecError:
        if not _NO_NUMBER.search(content):
            raise
    return parse_json(_NO_NUMBER.sub(rb"\1null", content), kind)


def _parse(line: bytes) -> Metric | None:
    try:
        return parse_figures(line, Metric)
    except msgspec.MsgspecError:
        pass
    try:
        told = parse_figures(line, prepared(_Loose))
    except msgspec.MsgspecError:
        return None
    known: dict[str, Any] = asdict(told)
    known.update(split=told.split or "", goal=_GOALS.get(told.goal))
    return Metric(**known)
