"""Say why measured rows do not tell the rate of a size (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.foresight.calibrate import Calibration
from jobs.foresight.rows import Row
from jobs.foresight.series import UNKNOWN, Base

SHOWN = 0.8  # an exchange is shown where its speed is known better than this, as a logarithm
MISFIT = 0.15  # a row that is farther from the fit, as a logarithm, does not fit the others
BEYOND = 1.5  # times what the measured rows exchange for each second of compute
FARTHER = 4  # times the most GPUs that were measured
OTHER_BATCH = 0.9  # doublings from a batch that was measured on one GPU
NO_ONE_GPU = "no row of one GPU was measured"
HIDDEN = (
    "the measured rows hide the exchange behind the compute: measure larger gradients or more nodes"
)


def why_wide(
    row: Row, calibration: Calibration, bases: Mapping[str, Base], base: Base
) -> str | None:
    """Say why the measured rows do not tell the rate of a row; None where they do."""
    if row.gpus > 1 and calibration.rows and (why := _why_misfit(row, calibration)):
        return why
    if why := _why_one_gpu(row, base):
        return why
    if row.gpus == 1 or _is_between(row, calibration, base):
        return None
    if not base.has_one_gpu:
        return NO_ONE_GPU
    if not calibration.rows:
        return "no row of several GPUs was measured on this fabric"
    alike = _alike(row, calibration)
    if not alike:
        where = "between nodes" if row.nodes > 1 else "inside a node"
        return f"no exchange {where} was measured on this fabric"
    return _why_beyond(row, alike, calibration, bases, base)


def misfits(row: Row, calibration: Calibration) -> list[tuple[Row, float]]:
    """Give the rows that do not fit the others, with the fitted seconds by theirs as a logarithm.

    Of exchanges between nodes only where a row has such; those inside a node are in both.
    """
    return [
        (each, missed)
        for each, missed in zip(calibration.rows, calibration.missed, strict=True)
        if abs(missed) > MISFIT and (row.nodes > 1 or each.nodes == 1)
    ]


def _why_misfit(row: Row, calibration: Calibration) -> str | None:
    found = misfits(row, calibration)
    if not found:
        return None
    worst, missed = max(found, key=lambda each: abs(each[1]))
    much = "slower" if missed < 0 else "faster"
    return (
        f"{worst.series} on {worst.gpus} GPUs is {abs(missed):.0%} {much} than the other rows"
        " tell: measure it again"
    )


def _why_one_gpu(row: Row, base: Base) -> str | None:
    if row.gpus == 1 and not base.has_one_gpu:
        return NO_ONE_GPU
    batch = row.batch_per_gpu or base.batch
    if base.doublings(batch) > OTHER_BATCH:
        near = min((each for each, _ in base.ones), key=lambda each: abs(each - batch))
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


def _alike(row: Row, calibration: Calibration) -> list[Row]:
    return [each for each in calibration.rows if _is_alike(each, row)]


def _why_beyond(
    row: Row, alike: list[Row], calibration: Calibration, bases: Mapping[str, Base], base: Base
) -> str | None:
    """Say why a row asks more of the fabric than the measured ones of its kind."""
    is_own = any(each.series == row.series for each in calibration.rows)
    if not is_own and base.gradient_spread == UNKNOWN:
        return "gradient_mb and batch_per_gpu of the series are not known"
    asked_mb, asked_steps = _demand(row, base)
    demands = [(each, *_demand(each, bases[each.series])) for each in alike]
    is_harder = not any(
        each.gpus >= row.gpus and mb >= asked_mb and steps >= asked_steps
        for each, mb, steps in demands
    )
    if calibration.fitted.deviation(0) > SHOWN and is_harder:
        return HIDDEN
    times = asked_mb / max(mb for _, mb, _ in demands)
    if times > BEYOND:
        return (
            f"it exchanges {times:.1f} times as much for each second of compute as any measured row"
        )
    times = row.gpus / max(each.gpus for each in alike)
    if times > FARTHER:
        return f"it has {times:g} times the GPUs of any measured row"
    return None


def _demand(row: Row, base: Base) -> tuple[float, float]:
    """Compute the MB and the exchanges for each second of compute."""
    step_s = base.one_gpu_s(row.batch_per_gpu or base.batch)
    return (row.gradient_mb or base.gradient_mb) / step_s, 1 / step_s
