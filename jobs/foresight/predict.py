"""Predict rates with their bands from measured rows, each fabric calibrated by its own rows."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp, hypot, log
from statistics import geometric_mean

import msgspec

from jobs.foresight.calibrate import Calibration, calibrate, changed, plain_load
from jobs.foresight.model import Term, binding, from_free, step_s
from jobs.foresight.rows import Prediction, Row
from jobs.foresight.series import Base, base_of
from jobs.foresight.why import farther, has_own, why_wide

FARTHER = 0.02  # more noise for each doubling of the GPUs beyond those that were measured
# From one series to the next: how much of a step they wait, and how well they hide an exchange.
OTHER_SERIES = 0.03
LEAST_WIDE = 1.5  # high / low where the rows do not show what is asked for
MOST_WIDE = 50.0  # of a band to either side, as a logarithm: nothing is known
NINE_OF_TEN = 1.645  # standard deviations on either side that hold 90 %


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a rate, and how much slower or faster it may be, as logarithms."""

    rate: float
    slower: float
    faster: float
    why_wide: str | None = None


class _Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fit of a fabric and what the series bring to it."""

    calibration: Calibration
    bases: dict[str, Base]


class Predictor:
    """Predicts sizes from measured rows; each fabric is fitted once, when it is first asked for."""

    def __init__(self, measured: Sequence[Row]) -> None:
        self._measured = measured
        self._by_series = _by_series(measured)
        self._fabrics: dict[tuple[str, str], _Fabric] = {}

    def predict(self, row: Row) -> Prediction:
        """Predict a row; its series must have a measured one."""
        return _predict(row, self._fabric(row))

    def relief(self, row: Row) -> float:
        """Compute how much faster a row would be if the term that binds it took half its time."""
        return _binding(row, self._fabric(row))[1]

    def _fabric(self, row: Row) -> _Fabric:
        key = _key(row, self._by_series[row.series])
        if key not in self._fabrics:
            bases = {name: base_of(rows, key[0]) for name, rows in self._by_series.items()}
            rows = _rows_of(key, self._measured)
            self._fabrics[key] = _Fabric(calibration=calibrate(rows, bases), bases=bases)
        return self._fabrics[key]


def predict(measured: Sequence[Row], asked: Sequence[Row]) -> list[Prediction]:
    """Predict each row that is asked for; its series must have a measured row."""
    predictor = Predictor(measured)
    return [predictor.predict(row) for row in asked]


def _key(row: Row, own: Sequence[Row]) -> tuple[str, str]:
    """Return the fabric of a row; where none is named, also the series with rows of its own."""
    fabric = row.fabric or max((each.gpus > 1, each.fabric) for each in own)[1]
    is_apart = not fabric and any(each.gpus > 1 for each in own)
    return fabric, row.series if is_apart else ""


def _rows_of(key: tuple[str, str], measured: Sequence[Row]) -> list[Row]:
    fabric, series = key
    return [
        row
        for row in measured
        if row.gpus > 1 and row.fabric == fabric and series in ("", row.series)
    ]


def _by_series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.series, []).append(row)
    return found


def _predict(row: Row, fabric: _Fabric) -> Prediction:
    base, calibration = fabric.bases[row.series], fabric.calibration
    own = [each.rate for each in calibration.rows if each.rate and _is_same(each, row, base)]
    found = _modelled(row, fabric)
    batch = row.batch_per_gpu or base.batch
    if row.gpus == 1 and base.has_one_gpu and not base.doublings(batch):
        own = [batch / base.one_gpu_s(batch)]
    if own:
        found = _measured(geometric_mean(own), calibration.noise, found)
    return Prediction(
        series=row.series,
        gpus=row.gpus,
        rate=found.rate,
        low=found.rate / exp(found.slower),
        high=found.rate * exp(found.faster),
        binds=_binding(row, fabric)[0],
        why_wide=found.why_wide,
    )


def _is_same(measured: Row, row: Row, base: Base) -> bool:
    def size(of: Row) -> tuple[object, ...]:
        gradient_mb, batch = of.gradient_mb or base.gradient_mb, of.batch_per_gpu or base.batch
        return of.series, of.gpus, of.gpus_per_node, gradient_mb, batch

    return size(measured) == size(row)


def _measured(rate: float, noise: float, modelled: _Found) -> _Found:
    """Give the rate of a size that was measured; where rows do not fit, the band reaches the model's."""
    spread = NINE_OF_TEN * noise
    if not modelled.why_wide:
        return _Found(rate=rate, slower=spread, faster=spread)
    apart = log(modelled.rate / rate)
    return _Found(
        rate=rate,
        slower=max(spread, -apart),
        faster=max(spread, apart),
        why_wide=modelled.why_wide if abs(apart) > spread else None,
    )


def _modelled(row: Row, fabric: _Fabric) -> _Found:
    calibration, base = fabric.calibration, fabric.bases[row.series]
    batch = row.batch_per_gpu or base.batch
    fast, middle, slow = _quantiles(_steps(row, calibration, base), (0.05, 0.5, 0.95))
    spread = calibration.noise + FARTHER * farther(row, calibration.rows)
    if row.gpus > 1 and not has_own(row, calibration):
        spread = hypot(spread, OTHER_SERIES)
    noise = NINE_OF_TEN * spread
    faster, slower = hypot(middle - fast, noise), hypot(slow - middle, noise)
    why = why_wide(row, calibration, fabric.bases, base)
    if why:
        faster, slower = faster + why.faster, slower + why.slower
        missing = max(log(LEAST_WIDE) / (faster + slower), 1.0)
        faster, slower = min(faster * missing, MOST_WIDE), min(slower * missing, MOST_WIDE)
    return _Found(
        rate=row.gpus * batch / exp(middle),
        slower=slower,
        faster=faster,
        why_wide=why.text if why else None,
    )


def _steps(row: Row, calibration: Calibration, base: Base) -> list[tuple[float, float]]:
    """Compute the logarithm of the step by each draw, with the weight of the draw."""
    source = random.Random(7)
    is_own = row.series in calibration.place.gradient
    spread = base.sample_spread(row.batch_per_gpu or base.batch)
    plain = plain_load(row, base)
    found: list[tuple[float, float]] = []
    for draw, constants in zip(calibration.fitted.draws, calibration.constants, strict=True):
        if is_own:
            larger, slower = calibration.place.of(row.series, draw.numbers)
        else:
            larger, slower = (
                exp(source.gauss(0, base.gradient_spread)),
                exp(source.gauss(0, spread)),
            )
        load = changed(plain, base.overhead_s, larger, slower)
        found.append((log(step_s(load, constants)), draw.weight))
    return found


def _binding(row: Row, fabric: _Fabric) -> tuple[Term, float]:
    best, base = fabric.calibration.fitted.best, fabric.bases[row.series]
    plain = plain_load(row, base)
    load = changed(plain, base.overhead_s, *fabric.calibration.place.of(row.series, best))
    return binding(load, from_free(best))


def _quantiles(values: list[tuple[float, float]], parts: tuple[float, ...]) -> list[float]:
    """Return the values below which these parts of the weights lie; the weights add up to 1."""
    values.sort()
    below = list(accumulate(weight for _, weight in values))
    return [values[min(bisect_left(below, part), len(values) - 1)][0] for part in parts]
