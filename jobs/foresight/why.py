"""Say why measured rows do not tell the rate of a size, and how much wider its band is for that (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, log2

import msgspec

from jobs.foresight.calibrate import Calibration
from jobs.foresight.rows import Row
from jobs.foresight.series import UNKNOWN, Base

SHOWN = 0.8  # an exchange is shown where its speed is known better than this, as a logarithm
MISFIT = 0.15  # a row that is farther from the fit, as a logarithm, does not fit the others
BEYOND = 1.5  # times what the measured rows exchange for each second of compute
SHORTER = 3.0  # times the exchanges for each second of compute: their fixed cost counts
HARDER = 0.25  # of the logarithm of those times: how much slower it may be
FARTHER = 4  # times the most GPUs that were measured
OTHER_BATCH = 0.9  # doublings from a batch that was measured on one GPU
NO_ONE_GPU = "no row of one GPU was measured"
HIDDEN = (
    "the measured rows hide the exchange behind the compute: measure larger gradients or more nodes"
)


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a reason, and how much slower and faster a rate may be for it, as logarithms."""

    text: str
    slower: float = 0.0
    faster: float = 0.0


def why_wide(
    row: Row, calibration: Calibration, bases: Mapping[str, Base], base: Base
) -> Why | None:
    """Say why the measured rows do not tell the rate of a row; None where they do."""
    if row.gpus > 1 and (misfit := _misfit(row, calibration)):
        return misfit
    own = [each for each in calibration.rows if each.series == row.series]
    if text := _why_one_gpu(row, own, base):
        return Why(text=text)
    if row.gpus == 1 or _is_between(row, calibration, base):
        return None
    if not base.has_one_gpu:
        return Why(text=NO_ONE_GPU)
    if not calibration.rows:
        return Why(text="no row of several GPUs was measured on this fabric")
    alike = [each for each in calibration.rows if _is_alike(each, row)]
    if not alike:
        where = "between nodes" if row.nodes > 1 else "inside a node"
        return Why(text=f"no exchange {where} was measured on this fabric")
    is_own = any(each.series == row.series for each in calibration.rows)
    if not is_own and base.gradient_spread == UNKNOWN:
        return Why(text="gradient_mb and batch_per_gpu of the series are not known")
    return _harder(row, alike, calibration, bases, base)


def farther(row: Row, rows: list[Row]) -> float:
    """Count how often the most GPUs that were measured must be doubled to reach a row."""
    most = max((each.gpus for each in rows), default=1)
    return max(log2(row.gpus / most), 0.0)


def has_own(row: Row, calibration: Calibration) -> bool:
    """Tell whether a row of its own series tells of exchanges of its kind."""
    return any(each.series == row.series and _is_alike(each, row) for each in calibration.rows)


def _misfit(row: Row, calibration: Calibration) -> Why | None:
    """Name the row that fits the others least, as if it told of the farther sizes, too.

    Of exchanges between nodes only where a row has such; those inside a node are in both.
    """
    found = [
        (missed, each)
        for missed, each in zip(calibration.missed, calibration.rows, strict=True)
        if abs(missed) > MISFIT and (row.nodes > 1 or each.nodes == 1)
    ]
    if not found:
        return None
    worst_by, worst = max(found, key=lambda each: abs(each[0]))
    # Of a logarithm: to be told as a share of the rate that the others tell.
    much = "slower" if worst_by < 0 else "faster"
    share = abs(exp(worst_by) - 1)
    more = 1 + farther(row, calibration.rows)
    return Why(
        text=(
            f"{worst.series} on {worst.gpus} GPUs is {share:.0%} {much} than the other rows"
            " tell: measure it again"
        ),
        slower=more * max(0.0, *(-missed for missed, _ in found)),
        faster=more * max(0.0, *(missed for missed, _ in found)),
    )


def _why_one_gpu(row: Row, own: list[Row], base: Base) -> str | None:
    if row.gpus == 1 and not base.has_one_gpu:
        return NO_ONE_GPU
    batch = row.batch_per_gpu or base.batch
    known = [each for each, _ in base.ones]
    if row.gpus > 1:
        known += [each.batch_per_gpu or base.batch for each in own]
    near = min(known, key=lambda each: abs(log(each / batch)))
    is_inside = min(known) <= batch <= max(known)
    if not is_inside and abs(log2(near / batch)) > OTHER_BATCH:
        return f"a batch of {batch:g} was not measured, but {near:g}"
    if base.overhead_s and not base.is_batch_known and row.gpus > 1:
        return "batch_per_gpu is not known, and so what part of a step overhead_s is"
    return None


def _is_between(row: Row, calibration: Calibration, base: Base) -> bool:
    """Whether rows of its own series lie on both sides of a row."""
    own = [each for each in calibration.rows if each.series == row.series]
    return any(each.gpus >= row.gpus for each in own if _is_alike(each, row)) and (
        base.has_one_gpu or any(each.gpus <= row.gpus for each in own)
    )


def _is_alike(one: Row, other: Row) -> bool:
    return (one.nodes > 1) == (other.nodes > 1)


def _harder(
    row: Row, alike: list[Row], calibration: Calibration, bases: Mapping[str, Base], base: Base
) -> Why | None:
    """Say why a row asks more of the fabric than the measured ones of its kind."""
    asked_mb, asked_steps = _demand(row, base)
    demands = [(each, *_demand(each, bases[each.series])) for each in alike]
    near = [_as_hard(each, row, mb, steps) for each, mb, steps in demands]
    is_easier = any(mb >= asked_mb for mb, _ in near) and any(
        steps >= asked_steps for _, steps in near
    )
    more = asked_mb / max(mb for _, mb, _ in demands)
    shorter = asked_steps / max(steps for _, _, steps in demands)
    slower = HARDER * log(max(more, shorter, 1.0))
    if calibration.fitted.deviation(0) > SHOWN and not is_easier:
        return Why(text=HIDDEN, slower=slower)
    if more > BEYOND:
        text = (
            f"it exchanges {more:.1f} times as much for each second of compute as any measured row"
        )
        return Why(text=text, slower=slower)
    if shorter > SHORTER:
        text = f"its steps are {shorter:.1f} times as short as those of any measured row"
        return Why(text=text, slower=slower)
    times = row.gpus / max(each.gpus for each in alike)
    if times > FARTHER:
        return Why(text=f"it has {times:g} times the GPUs of any measured row")
    return None


def _as_hard(measured: Row, row: Row, mb: float, steps: float) -> tuple[float, float]:
    """Give what a measured row shows of the demands of a row: on fewer GPUs half, on far fewer nothing."""
    if measured.gpus >= row.gpus:
        return mb, steps
    part = 0.5 if FARTHER * measured.gpus >= row.gpus else 0.0
    return part * mb, part * steps


def _demand(row: Row, base: Base) -> tuple[float, float]:
    """Compute the MB and the exchanges for each second of compute."""
    step_s = base.one_gpu_s(row.batch_per_gpu or base.batch)
    return (row.gradient_mb or base.gradient_mb) / step_s, 1 / step_s
