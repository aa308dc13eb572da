"""Read how far a run is: its progress file, else its metrics (docs/run-directory.md).

A program of anybody's wrote these. What cannot be true is as good as absent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from jobs.host.untrusted import parse_json, read_small
from jobs.rank.places import HISTORY, MOST_BYTES, PROGRESS
from jobs.runs.lengths import Unit, lengths_of
from jobs.runs.pace import Pace, Place, pace_of

METRICS = "metrics.jsonl"
MOST_HISTORY_BYTES = 1 << 20
# Of a long metrics file its beginning and its end tell the pace.
_METRICS_BYTES = 1 << 16
_MOST = 1e15


class Progress(Struct, frozen=True, kw_only=True):
    """Units done, of how many; None for what the run does not tell.

    `updated_s` is when this was so, in seconds since 1970. A rate is that of all ranks, without
    pauses.
    """

    done: float
    total: float | None
    unit: Unit
    samples_done: float | None
    samples_total: float | None
    samples_per_s: float | None
    updated_s: float
    pace: Pace | None = None


class _File(Struct, frozen=True):
    """The progress file."""

    done: float
    total: float | None = None
    unit: Unit = "step"
    samples_per_unit: float | None = None
    units_per_epoch: float | None = None


class _Line(Struct, frozen=True):
    """Place of a line of metrics."""

    ts: Any = None
    step: float | None = None
    epoch: float | None = None


class _Resume(Struct, frozen=True):
    run: str


class _Spec(Struct, frozen=True):
    command: tuple[str, ...]
    resume: _Resume | None = None


class _Plan(Struct, frozen=True):
    spec: _Spec


class _Record(Struct, frozen=True):
    """The part of a run's record that is needed here."""

    plan: _Plan


def read_progress(run_dir: Path) -> Progress | None:
    """Read how far a run is; None where it does not tell."""
    return _from_file(run_dir) or _from_metrics(run_dir)


def _from_file(run_dir: Path) -> Progress | None:
    path = run_dir / PROGRESS
    try:
        told = parse_json(read_small(path, MOST_BYTES), _File)
        changed_s = path.stat().st_mtime
    except (OSError, msgspec.DecodeError):
        return None
    if not 0 <= told.done <= _MOST:
        return None
    return _progress(run_dir, told, read_history(run_dir), changed_s)


def _progress(run_dir: Path, told: _File, places: Sequence[Place], changed_s: float) -> Progress:
    total = told.total
    if total is None or not 0 < total <= _MOST or total < told.done:
        total = None
    last = next((each for each in reversed(places) if each.done is not None), None)
    # Where the file was brought from a node, its own time is that of the journey.
    updated_s = last.time_s if last is not None and last.done == told.done else changed_s
    if last is None or updated_s > last.time_s:
        places = [*places, Place(time_s=updated_s, done=told.done)]
    per_epoch = told.units_per_epoch
    if per_epoch is not None and not 0 < per_epoch <= _MOST:
        per_epoch = None
    pace = pace_of(places, per_epoch=per_epoch, from_zero=_begins_at_zero(run_dir))
    size = told.samples_per_unit
    if told.unit == "sample":
        size = 1.0
    is_known = size is not None and 0 < size <= _MOST
    return Progress(
        done=told.done,
        total=total,
        unit=told.unit,
        samples_done=told.done * size if size and is_known else None,
        samples_total=total * size if size and is_known and total is not None else None,
        samples_per_s=size / pace.unit_s if size and is_known and pace else None,
        updated_s=updated_s,
        pace=pace,
    )


def read_history(run_dir: Path) -> list[Place]:
    """Read the places that the run passed, oldest first; none where a line is impossible."""
    try:
        lines = read_small(run_dir / HISTORY, MOST_HISTORY_BYTES).splitlines()
    except OSError:
        return []
    places: list[Place] = []
    for line in lines:
        try:
            place = parse_json(line, Place)
        except msgspec.DecodeError:  # cut off by a full disk
            continue
        earliest_s = places[-1].time_s if places else 0.0
        if not earliest_s <= place.time_s <= _MOST or not 0 <= (place.done or 0.0) <= _MOST:
            return []
        places.append(place)
    return places


def _from_metrics(run_dir: Path) -> Progress | None:
    """Take steps or epochs of the metrics as progress, up to what the job's arguments tell."""
    path = run_dir / METRICS
    try:
        lines = list(_lines(_ends_of(path)))
        changed_s = path.stat().st_mtime
    except OSError:
        return None
    spec = _spec_of(run_dir)
    totals = lengths_of(spec.command) if spec is not None else {}
    axes: list[Unit] = [*totals, "step", "epoch"]
    for axis in axes:
        places = list(_places(lines, axis))
        if places:
            done = places[-1][0]
            told = _File(done=done, total=totals.get(axis), unit=axis)
            timed = [Place(time_s=time_s, done=done) for done, time_s in places if time_s]
            return _progress(run_dir, told, _in_order(timed), changed_s)
    return None


def _ends_of(path: Path) -> bytes:
    """Read a file's first and last bytes; raises OSError, also for what is no file."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 (a descriptor)
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return b""
        beginning = file.read(_METRICS_BYTES)
        rest = status.st_size - len(beginning)
        if rest <= 0:
            return beginning
        file.seek(-min(rest, _METRICS_BYTES), os.SEEK_END)
        # Half a line on either side of the gap is no line.
        return beginning + b"\n" + file.read(_METRICS_BYTES)


def _lines(content: bytes) -> Iterator[_Line]:
    for line in content.splitlines():
        try:
            yield parse_json(line, _Line)
        except msgspec.DecodeError:
            continue


def _places(lines: Sequence[_Line], axis: Unit) -> Iterator[tuple[float, float | None]]:
    for line in lines:
        done = line.step if axis == "step" else line.epoch
        if done is not None and 0 <= done <= _MOST:
            yield done, _seconds(line.ts)


def _seconds(ts: object) -> float | None:
    try:
        when = datetime.fromisoformat(ts) if isinstance(ts, str) else None
        return when.timestamp() if when is not None and when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _in_order(places: Sequence[Place]) -> list[Place]:
    is_ordered = all(before.time_s <= after.time_s for before, after in pairwise(places))
    return list(places) if is_ordered else []


def _begins_at_zero(run_dir: Path) -> bool:
    spec = _spec_of(run_dir)
    return spec is not None and spec.resume is None


def _spec_of(run_dir: Path) -> _Spec | None:
    try:
        return parse_json(read_small(run_dir / "run.json"), _Record).plan.spec
    except (OSError, msgspec.DecodeError):
        return None
