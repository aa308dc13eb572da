"""Keeps the curves of runs thinned: reads their metrics in blocks, on from where it last ended."""

from __future__ import annotations

import math
import os
import stat
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.runs.charts import LARGEST_DRAWN
from jobs.runs.metrics import Axis, Curve, Goal, Metric, parse_metrics, read_all_curves

# Bytes that are read at once; a longer line is passed over.
BLOCK = 256 << 10
# Buckets of a curve, of which the lowest and the highest point are kept: at twice as many, two
# become one.
MOST_BUCKETS = 512
# Curves of a run, and bytes of a name: what has more is not drawn.
MOST_CURVES, LONGEST_NAME = 1000, 500
# Buckets of all runs (32 bytes each) beyond which those that nobody looks at are forgotten.
MOST_KEPT = 400_000
# A curve takes as much memory as so many buckets before it has any.
CURVE_BUCKETS = 32
# So much is read before an answer; of a file with more, samples from all over it are shown first.
LOOK_S, LARGE = 0.25, 4 << 20
NUM_SAMPLES, SAMPLE = 128, 16 << 10


class Thinned:
    """A metric's points: of as many neighbours as fit, the lowest and the highest."""

    def __init__(self, first: Metric) -> None:
        self.split, self.name = first.split, first.name
        self.goal: Goal | None = first.goal
        self.axis: Axis = "step" if first.epoch is None else "epoch"
        self.num_points = 0
        # Places and values of the buckets that are full: low_at, low, high_at, high. Where there is
        # no number, the low one is infinite.
        self._full = tuple(array("d") for _ in range(4))
        self._size, self._num_within = 1, 0
        self._low_at, self._low, self._high_at, self._high = 0.0, math.inf, 0.0, -math.inf
        self._last = (0.0, math.nan)

    @property
    def num_buckets(self) -> int:
        """Number of buckets in memory."""
        return len(self._full[0])

    def add(self, place: float, value: float) -> None:
        """Take the next point; NaN is a gap."""
        self.num_points += 1
        if not self._num_within:
            self._low_at = self._high_at = place
            self._low, self._high = math.inf, -math.inf
        if value < self._low:
            self._low_at, self._low = place, value
        if value > self._high:
            self._high_at, self._high = place, value
        if value - value == 0:  # a number, without a call
            self._last = (place, value)
        self._num_within += 1
        if self._num_within == self._size:
            self._end_bucket()

    def _end_bucket(self) -> None:
        bucket = (self._low_at, self._low, self._high_at, self._high)
        for column, each in zip(self._full, bucket, strict=True):
            column.append(each)
        self._num_within = 0
        if self.num_buckets == 2 * MOST_BUCKETS:
            self._full = _halved(self._full)
            self._size *= 2

    def points(self) -> list[tuple[float, float]]:
        """List what is left, in order; the last number stands at the end."""
        if not self.num_points:
            return []
        buckets = list(zip(*self._full, strict=True))
        if self._num_within:
            buckets.append((self._low_at, self._low, self._high_at, self._high))
        found: list[tuple[float, float]] = []
        for low_at, low, high_at, high in buckets:
            if low == math.inf:
                found.append((low_at, math.nan))
            elif (low_at, low) == (high_at, high):
                found.append((low_at, low))
            else:
                found += sorted(((low_at, low), (high_at, high)))
        # Whoever asks for the last value finds it at the end, wherever its place is.
        numbers = (each for each in reversed(found) if math.isfinite(each[1]))
        if math.isfinite(self._last[1]) and next(numbers, None) != self._last:
            found.append(self._last)
        return found


def _halved(columns: Sequence[array[float]]) -> tuple[array[float], ...]:
    """Make one bucket of each two: the lower low and the higher high, the first of equal ones."""
    made = tuple(array("d") for _ in range(4))
    rows = zip(*columns, strict=True)
    for first, second in zip(rows, rows, strict=True):
        low = second[:2] if second[1] < first[1] else first[:2]
        high = second[2:] if second[3] > first[3] else first[2:]
        for column, each in zip(made, (*low, *high), strict=True):
            column.append(each)
    return made


class RunCurves:
    """The curves of one file of metrics, as far as it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Requests read on in threads of their own, and look at the points meanwhile.
        self._lock = threading.RLock()
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode, self._offset, self._bytes = inode, 0, 0
        self.curves: dict[tuple[str, str], Thinned] = {}
        # Points of samples with their place in the file, until it was read so far.
        self._samples: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
        self._is_sampled = False

    @property
    def share(self) -> float:
        """How much of the file was read: 1 where all was."""
        return self._offset / self._bytes if self._bytes else 1.0

    @property
    def num_left(self) -> int:
        """Bytes that were not read."""
        return self._bytes - self._offset

    @property
    def num_buckets(self) -> int:
        """Number of buckets that need as much memory as its curves and samples, about."""
        with self._lock:
            kept = sum(each.num_buckets + CURVE_BUCKETS for each in self.curves.values())
            return kept + sum(map(len, self._samples.values())) + 1

    def read_on(self, seconds: float) -> None:
        """Read what is new, for so long at most; samples of the rest first, where that is much."""
        until_s = time.monotonic() + seconds
        with self._lock, self._opened() as file:
            if file is None:
                self._begin(0)
                return
            if self.num_left > LARGE and not self._is_sampled:
                self._sample(file)
                return
            while self.num_left > 0 and time.monotonic() < until_s and self._read_block(file):
                pass
            if not self.num_left:
                self._samples.clear()

    def look(self) -> None:
        """See how long the file is now."""
        with self._lock, self._opened():
            pass

    @contextmanager
    def _opened(self) -> Generator[int | None]:
        """Open the file, and see how long it is; begins anew where it is another one."""
        try:
            # A program may have put something else there; a pipe would be waited for.
            file = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            yield None
            return
        try:
            status = os.fstat(file)
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._begin(status.st_ino)
            self._bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
            yield file
        finally:
            os.close(file)

    def _read_block(self, file: int) -> bool:
        """Read the next whole lines; tells whether there were any."""
        block = os.pread(file, BLOCK, self._offset)
        end = block.rfind(b"\n") + 1
        if not end:
            # The last line is being written, or is whole without its end.
            if len(block) < BLOCK and not parse_metrics(block):
                self._bytes = self._offset
                return False
            end = len(block)
        for metric in parse_metrics(block[:end]):
            curve = self._curve(metric)
            if curve is not None and (point := _point(metric, curve.axis)):
                curve.add(*point)
        self._offset += end
        return True

    def _curve(self, metric: Metric) -> Thinned | None:
        key = (metric.split, metric.name)
        curve = self.curves.get(key)
        if curve is None:
            if len(self.curves) == MOST_CURVES or len(metric.name) > LONGEST_NAME:
                return None
            curve = self.curves[key] = Thinned(metric)
        return curve

    def _sample(self, file: int) -> None:
        """Read lines from all over what was not read."""
        self._is_sampled = True
        step = self.num_left / NUM_SAMPLES
        for number in range(NUM_SAMPLES):
            start = self._offset + int(number * step)
            lines = os.pread(file, SAMPLE, start).split(b"\n")[1:-1]
            for metric in parse_metrics(b"\n".join(lines)):
                curve = self._curve(metric)
                if curve is not None and (point := _point(metric, curve.axis)):
                    key = (metric.split, metric.name)
                    self._samples.setdefault(key, []).append((start, *point))

    def points(self, key: tuple[str, str]) -> list[tuple[float, float]]:
        """List the points of a curve: those that were read, and samples of the rest."""
        with self._lock:
            curve = self.curves.get(key)
            # Gone where the file is another one now.
            return [] if curve is None else curve.points() + [each[1:] for each in self._ahead(key)]

    def version(self, key: tuple[str, str]) -> str:
        """Give another text whenever the points are others; of a long file at each tenth that was read."""
        with self._lock:
            if self._samples:
                return f"{int(self.share * 10)}/10"
            curve = self.curves.get(key)
            return str(curve.num_points if curve else 0)

    def _ahead(self, key: tuple[str, str]) -> list[tuple[int, float, float]]:
        return [each for each in self._samples.get(key, ()) if each[0] >= self._offset]

    def told(self) -> list[Curve]:
        """Give the curves that have a number, thinned, with their true extremes and last values."""
        made: list[Curve] = []
        with self._lock:
            found = [(key, curve, self.points(key)) for key, curve in self.curves.items()]
        for _, curve, points in found:
            if any(math.isfinite(value) for _, value in points):
                made.append(
                    Curve(
                        split=curve.split,
                        name=curve.name,
                        axis=curve.axis,
                        goal=curve.goal,
                        at=[place for place, _ in points],
                        values=[value for _, value in points],
                    )
                )
        return made


def _point(metric: Metric, axis: Axis) -> tuple[float, float] | None:
    place = metric.epoch if axis == "epoch" else metric.step
    if place is None or not abs(place) <= LARGEST_DRAWN:
        return None
    value = metric.value
    return place, math.nan if value is None or not abs(value) <= LARGEST_DRAWN else value


@dataclass(kw_only=True)
class _Chart:
    title: str
    axis: Axis
    # Name of the run, its curves, and which of them.
    series: list[tuple[str, RunCurves, tuple[str, str]]] = field(
        default_factory=list[tuple[str, RunCurves, tuple[str, str]]]
    )

    @property
    def version(self) -> str:
        # Without a space: a page sends it before the title.
        return "_".join(curves.version(key) for _, curves, key in self.series)


class Curves:
    """The curves of the runs that pages looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, RunCurves] = OrderedDict()
        self._lock = threading.Lock()

    def charts(self, runs: Sequence[tuple[str, Path]], wanted: Mapping[str, str]) -> dict[str, Any]:
        """List the charts of runs, one a metric and axis; with their points those that are `wanted`.

        That maps a title to the version that the page has: of that one it gets no points again.
        `share` tells how much of the files was read so far; points are final at 1. A chart that the
        page has no version of does not wait for more of a long file.
        """
        found = [(name, self._of(folder / "metrics.jsonl")) for name, folder in runs]
        is_waited_for = "" in wanted.values()
        for _, curves in found:
            is_known = is_waited_for and curves.num_left > LARGE
            curves.read_on(0.0 if is_known else LOOK_S / len(found))
        charts: dict[str, _Chart] = {}
        for name, curves in found:
            for key, curve in list(curves.curves.items()):
                title = f"{curve.split} {curve.name}".strip()
                if title in charts and charts[title].axis != curve.axis:
                    title = f"{title} ({curve.axis})"
                chart = charts.setdefault(title, _Chart(title=title, axis=curve.axis))
                chart.series.append((name, curves, key))
        self._forget({curves for _, curves in found})
        # What a program takes time for comes last.
        ordered = sorted(charts.values(), key=lambda chart: chart.title.endswith("_s"))
        return {
            "share": min((curves.share for _, curves in found), default=1.0),
            "charts": [_written(each, wanted.get(each.title)) for each in ordered],
        }

    def read(self, path: Path) -> list[Curve]:
        """Read curves for a verb (jobs.runs.metrics.read_by): none of a file that takes long.

        Those are read bit by bit by `charts`, and known from then on.
        """
        with self._lock:
            curves = self._kept.get(path)
        if curves is None:
            curves = RunCurves(path)
            curves.look()
            return [] if curves.num_left > LARGE else read_all_curves(path)
        curves.look()
        if curves.num_left > LARGE:
            return []
        curves.read_on(math.inf)
        return curves.told()

    def _of(self, path: Path) -> RunCurves:
        with self._lock:
            found = self._kept.pop(path, None) or RunCurves(path)
            self._kept[path] = found
            return found

    def _forget(self, used: set[RunCurves]) -> None:
        with self._lock:
            sizes = {path: each.num_buckets for path, each in self._kept.items()}
            too_many = sum(sizes.values()) - MOST_KEPT
            for path, each in list(self._kept.items()):
                if too_many <= 0:
                    return
                if each not in used:
                    too_many -= sizes[path]
                    del self._kept[path]


def _written(chart: _Chart, known: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"title": chart.title, "axis": chart.axis, "version": chart.version}
    if known is not None and known != told["version"]:
        told["series"] = [
            {"name": name, **_columns(curves.points(key))} for name, curves, key in chart.series
        ]
    return told


def _columns(points: Sequence[tuple[float, float]]) -> dict[str, list[float | None]]:
    return {
        "at": [place for place, _ in points],
        "values": [value if math.isfinite(value) else None for _, value in points],
    }
