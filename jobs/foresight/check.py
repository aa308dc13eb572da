"""Find figures of tables that cannot be right beside each other: mixed units, and rates that no job has (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

import msgspec

from jobs.foresight.rows import Row

# More than this for each GPU, compared with one GPU, is no speed-up that caches explain.
MOST_EFFICIENCY = 1.25
# A job of so many GPUs that is hardly faster than one: its rate is that of each GPU.
FEW, SAME, LESS = 4, 1.15, 0.7
MOST_GRADIENT_MB = 4e6  # of a trillion parameters in fp32
# GB/s that no link between GPUs of one node, and none between nodes, brings to a ring (2026).
INSIDE_GB_PER_S, ACROSS_GB_PER_S = 2000.0, 500.0
# GB/s of the slowest link between nodes that anybody trains over: 1 Gb/s is 0.125.
SLOWEST_GB_PER_S = 0.15
ONE_NETWORK = 1.1  # the gradients of one series differ by no more
WHAT_IF = 10.0  # nor do those of a question from the measured ones by more than that
MOST_OVERHEAD = 1.0  # of a step of one GPU
ALIKE = 1.5  # batches that differ by less have a step of about one rate
_RATE = "write the samples per second of all GPUs together in each row"
_GRADIENT = "write 4 bytes a parameter in fp32, in MB; or leave it empty"
_OVERHEAD = "write seconds of a step, or leave it empty"

Lines = Sequence[tuple[int, Row]]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a figure that cannot be right, where it stands, and what to type."""

    line: int
    column: str
    message: str
    hint: str


def check_measured(lines: Lines) -> Found | None:
    """Return the first measured figure that cannot be right; None where all can."""
    series: dict[str, list[tuple[int, Row]]] = {}
    for line, row in lines:
        series.setdefault(row.series, []).append((line, row))
    found: list[Found] = [*_impossible_gradients(lines)]
    for rows in series.values():
        found += [*_two_gradients(rows), *_overheads(rows), *_rates(rows), *_rates_of_each(rows)]
    return min(found, key=lambda each: each.line, default=None)


def check_asked(lines: Lines, measured: Sequence[Row]) -> Found | None:
    """Return the first figure of a question that cannot be right beside the measured ones."""
    known = {row.series: row.gradient_mb for row in measured if row.gradient_mb}
    for line, row in lines:
        if row.gradient_mb is None:
            continue
        there = known.get(row.series, row.gradient_mb)
        is_far = abs(log(row.gradient_mb / there)) > log(WHAT_IF)
        if is_far or row.gradient_mb > MOST_GRADIENT_MB:
            message = f"{row.gradient_mb:g} MB, where {there:g} MB were measured: the units differ"
            return Found(line=line, column="gradient_mb", message=message, hint=_GRADIENT)
    return None


def _impossible_gradients(lines: Lines) -> Iterator[Found]:
    """Find gradients that are too large for any network, or for any link in the time of a step."""
    for line, row in lines:
        if row.gradient_mb is None:
            continue
        said = ""
        if row.gradient_mb > MOST_GRADIENT_MB:
            said = f"{row.gradient_mb:g} MB are more than any network has"
        elif row.rate and row.batch_per_gpu and row.gpus > 1:
            step_s = row.gpus * row.batch_per_gpu / row.rate
            speed = _least_gb_per_s(row, step_s)
            if speed > (INSIDE_GB_PER_S if row.nodes == 1 else ACROSS_GB_PER_S):
                said = f"{row.gradient_mb:g} MB in steps of {step_s:.3g} s take {speed:.3g} GB/s"
        if said:
            message = f"{said}: the units differ"
            yield Found(line=line, column="gradient_mb", message=message, hint=_GRADIENT)


def _least_gb_per_s(row: Row, step_s: float) -> float:
    """Return the speed of a ring whose exchange takes the whole step."""
    return 2 * (row.gpus - 1) / row.gpus * (row.gradient_mb or 0.0) / 1e3 / step_s


def _is_slow_link(row: Row) -> bool:
    """Tell whether a link between nodes explains a job that is hardly faster than fewer GPUs."""
    if row.nodes == 1 or not (row.gradient_mb and row.batch_per_gpu and row.rate):
        return False
    step_s = row.gpus * row.batch_per_gpu / row.rate
    return _least_gb_per_s(row, step_s) > SLOWEST_GB_PER_S


def _two_gradients(rows: Lines) -> Iterator[Found]:
    given = [(row.gradient_mb, line) for line, row in rows if row.gradient_mb]
    if given and max(given)[0] > ONE_NETWORK * min(given)[0]:
        line = max(given, key=lambda each: each[1])[1]
        message = f"the series has gradients from {min(given)[0]:g} to {max(given)[0]:g} MB"
        hint = "write one gradient for a network, or name another series"
        yield Found(line=line, column="gradient_mb", message=message, hint=hint)


def _overheads(rows: Lines) -> Iterator[Found]:
    """Find overheads that take longer than the step to which they are added."""
    batch = next((row.batch_per_gpu for _, row in rows if row.batch_per_gpu), None)
    ones = [row for _, row in rows if row.gpus == 1 and row.rate]
    if not ones or not batch:
        return
    for line, row in rows:
        step_s = (ones[0].batch_per_gpu or batch) / (ones[0].rate or 1.0)
        if row.overhead_s and row.overhead_s > MOST_OVERHEAD * step_s:
            message = f"{row.overhead_s:g} s are more than a step of one GPU, {step_s:.3g} s"
            yield Found(line=line, column="overhead_s", message=message, hint=_OVERHEAD)


def _rates(rows: Lines) -> Iterator[Found]:
    """Find rates that only a mixture of units explains, by the rate of one GPU."""
    for line, row in rows:
        one = _one_gpu(rows, row)
        if row.gpus == 1 or one is None:
            continue
        faster = (row.rate or 0.0) / one
        said = f"{row.gpus} GPUs have {faster:.3g} times the rate of one GPU"
        if faster > MOST_EFFICIENCY * row.gpus:
            yield Found(line=line, column="rate", message=f"{said}: the units differ", hint=_RATE)
        elif row.gpus >= FEW and faster < SAME and not _is_slow_link(row):
            why = "it looks like the rate of each GPU" if faster > LESS else "the units differ"
            yield Found(line=line, column="rate", message=f"{said}: {why}", hint=_RATE)


def _one_gpu(rows: Lines, row: Row) -> float | None:
    """Return the rate of one GPU with the batch of a row, on its fabric where that was measured."""
    ones = [each for _, each in rows if each.gpus == 1 and each.rate and _is_alike(each, row)]
    same = [each for each in ones if each.fabric == row.fabric]
    rates = [each.rate or 0.0 for each in same or ones]
    return sum(rates) / len(rates) if rates else None


def _is_alike(one: Row, other: Row) -> bool:
    if not one.batch_per_gpu or not other.batch_per_gpu:
        return True
    return abs(log(one.batch_per_gpu / other.batch_per_gpu)) < log(ALIKE)


def _rates_of_each(rows: Lines) -> Iterator[Found]:
    """Find rates that do not grow with the GPUs in a series without a row of one GPU."""
    if any(row.gpus == 1 for _, row in rows):
        return
    for line, row in rows:
        fewer = [
            each
            for _, each in rows
            if 2 * each.gpus <= row.gpus and _is_alike(each, row) and each.fabric == row.fabric
        ]
        for each in fewer:
            # Between nodes twice the GPUs of one may be slower than those.
            is_alike = row.nodes == 1 or each.nodes > 1 or row.gpus >= FEW * each.gpus
            is_slow = (row.rate or 0.0) < SAME * (each.rate or 0.0)
            if is_alike and is_slow and not _is_slow_link(row):
                message = (
                    f"{row.gpus} GPUs have {row.rate:g} and {each.gpus} have {each.rate:g}:"
                    " it looks like the rate of each GPU"
                )
                yield Found(line=line, column="rate", message=message, hint=_RATE)
                break
