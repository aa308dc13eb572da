"""Predict rates with their bands from measured rows, each fabric calibrated by its own rows."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import exp, hypot, log, log2, sqrt
from statistics import geometric_mean

import msgspec

from jobs.foresight.fit import Posterior, fit
from jobs.foresight.model import PRIOR, Load, Term, binding, from_free, step_s
from jobs.foresight.rows import Prediction, Row

# Of a series that tells nothing else.
USUAL_BATCH = 64.0
USUAL_GRADIENT_MB = 100.0
USUAL_EFFICIENCY = 0.92
# Standard deviations, as logarithms: how far the time of an exchange of a series is from what its
# gradient says (given; given, but of a fabric without a name; not given), and of a one-GPU step
# that no row gives.
GIVEN, UNNAMED, UNKNOWN = 0.06, 0.35, 1.0
NO_ONE_GPU = 0.15
# Standard deviation of a measured rate, as a logarithm, and how many rows it counts for.
NOISE, NOISE_ROWS = 0.02, 6
MOST_MISSED = 0.1  # a row that is farther off tells nothing of the noise
FARTHER = 0.015  # more of it for each doubling of the GPUs beyond those that were measured
LEAST_WIDE = 1.5  # high / low where the rows do not show what is asked for
SHOWN = 0.8  # an exchange is shown where its speed is known better than this, as a logarithm
MORE_NOISE = 1.3  # times what was thought: the rows are fitted again
NUM_DRAWS = 240
NINE_OF_TEN = 1.645  # standard deviations on either side that hold 90 %
START_S_PER_MB = (0.04e-3, 1e-3)
START_INSIDE = (0.1, 1.0)


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a series brings to each of its sizes."""

    sample_s: float  # on one GPU
    sample_spread: float
    overhead_s: float
    gradient_mb: float
    gradient_spread: float
    batch: float


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Tell where the numbers of a fabric's series stand among the fitted ones."""

    gradient: dict[str, int]
    sample: dict[str, int]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fit of one fabric."""

    rows: list[Row]
    fitted: Posterior
    place: Place
    noise: float


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a rate, and how much slower or faster it may be, as logarithms."""

    rate: float
    slower: float
    faster: float
    why_wide: str | None = None


class Predictor:
    """Predicts sizes from measured rows; each fabric is fitted once, when it is first asked for."""

    def __init__(self, measured: Sequence[Row]) -> None:
        self._measured = measured
        self._bases = {name: _base(rows) for name, rows in _by_series(measured).items()}
        self._fits: dict[tuple[str, str], Calibration] = {}

    def predict(self, row: Row) -> Prediction:
        """Predict a row; its series must have a measured one."""
        return _predict(row, self._calibration(row), self._bases[row.series])

    def relief(self, row: Row) -> float:
        """Compute how much faster a row would be if the term that binds it took half its time."""
        return _binding(row, self._calibration(row), self._bases[row.series])[1]

    def _calibration(self, row: Row) -> Calibration:
        key = _fabric(row, self._measured)
        if key not in self._fits:
            self._fits[key] = _calibrate(_rows_of(key, self._measured), self._bases)
        return self._fits[key]


def predict(measured: Sequence[Row], asked: Sequence[Row]) -> list[Prediction]:
    """Predict each row that is asked for; its series must have a measured row."""
    predictor = Predictor(measured)
    return [predictor.predict(row) for row in asked]


def _fabric(row: Row, measured: Sequence[Row]) -> tuple[str, str]:
    """Return the fabric of a row; where none is named, also the series with rows of its own."""
    own = [each for each in measured if each.series == row.series]
    fabric = row.fabric or max(each.fabric for each in own)
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


def _base(rows: list[Row]) -> Base:
    batches = [row.batch_per_gpu for row in rows if row.batch_per_gpu]
    gradients = [row.gradient_mb for row in rows if row.gradient_mb]
    ones = [1 / row.rate for row in rows if row.rate and row.gpus == 1]
    fastest = min(row.gpus / row.rate for row in rows if row.rate)
    is_named = any(row.fabric for row in rows)
    is_known = bool(gradients and batches)
    return Base(
        sample_s=sum(ones) / len(ones) if ones else fastest * USUAL_EFFICIENCY,
        sample_spread=0.0 if ones else NO_ONE_GPU,
        overhead_s=max(row.overhead_s or 0.0 for row in rows),
        gradient_mb=gradients[0] if gradients else USUAL_GRADIENT_MB,
        gradient_spread=(GIVEN if is_named else UNNAMED) if is_known else UNKNOWN,
        batch=batches[0] if batches else USUAL_BATCH,
    )


def _calibrate(rows: list[Row], bases: Mapping[str, Base]) -> Calibration:
    series = sorted({row.series for row in rows})
    unsure = [name for name in series if bases[name].sample_spread]
    first = len(PRIOR)
    place = Place(
        gradient={name: first + at for at, name in enumerate(series)},
        sample={name: first + len(series) + at for at, name in enumerate(unsure)},
    )
    prior = [
        *PRIOR,
        *((0.0, bases[name].gradient_spread) for name in series),
        *((0.0, bases[name].sample_spread) for name in unsure),
    ]
    middle = [each[0] for each in prior]
    starts = [
        [log(speed), middle[1], log(inside), *middle[3:]]
        for speed in START_S_PER_MB
        for inside in START_INSIDE
    ]

    def misses(free: list[float]) -> list[float]:
        constants = from_free(free)
        return [
            log(step_s(_load(row, bases[row.series], free, place), constants) / _seconds(row))
            for row in rows
        ]

    def _seconds(row: Row) -> float:
        return row.gpus * (row.batch_per_gpu or bases[row.series].batch) / (row.rate or 1.0)

    fitted = fit(misses, NOISE, prior, starts, NUM_DRAWS)
    squares = sum(min(each**2, MOST_MISSED**2) for each in misses(fitted.best))
    spare = max(len(rows) - 3, 0)
    noise = sqrt((NOISE_ROWS * NOISE**2 + squares) / (NOISE_ROWS + spare))
    if noise > MORE_NOISE * NOISE:
        fitted = fit(misses, noise, prior, starts, NUM_DRAWS)
    return Calibration(rows=rows, fitted=fitted, place=place, noise=noise)


def _load(row: Row, base: Base, free: list[float], place: Place) -> Load:
    """Describe a row to the model, with the numbers that were fitted to its series."""
    gradient, sample = place.gradient.get(row.series), place.sample.get(row.series)
    slower = exp(free[sample]) if sample is not None else 1.0
    larger = exp(free[gradient]) if gradient is not None else 1.0
    batch = row.batch_per_gpu or base.batch
    return Load(
        gpus=row.gpus,
        gpus_per_node=row.gpus_per_node,
        step_s=base.sample_s * batch * slower + (base.overhead_s if row.gpus > 1 else 0.0),
        gradient_mb=(row.gradient_mb or base.gradient_mb) * larger,
    )


def _predict(row: Row, calibration: Calibration, base: Base) -> Prediction:
    own = [each.rate for each in calibration.rows if each.rate and _is_same(each, row, base)]
    found = _measured(own, calibration.noise) if own else _modelled(row, calibration, base)
    return Prediction(
        series=row.series,
        gpus=row.gpus,
        rate=found.rate,
        low=found.rate / exp(found.slower),
        high=found.rate * exp(found.faster),
        binds=_binding(row, calibration, base)[0],
        why_wide=found.why_wide,
    )


def _is_same(measured: Row, row: Row, base: Base) -> bool:
    def size(of: Row) -> tuple[object, ...]:
        gradient_mb, batch = of.gradient_mb or base.gradient_mb, of.batch_per_gpu or base.batch
        return of.series, of.gpus, of.gpus_per_node, gradient_mb, batch

    return size(measured) == size(row)


def _measured(rates: Sequence[float], noise: float) -> _Found:
    """Give the rate of a size that was measured itself."""
    spread = NINE_OF_TEN * noise
    return _Found(rate=geometric_mean(rates), slower=spread, faster=spread)


def _modelled(row: Row, calibration: Calibration, base: Base) -> _Found:
    fitted, place = calibration.fitted, calibration.place
    source = random.Random(7)
    is_own = row.series in place.gradient
    steps: list[tuple[float, float]] = []
    for draw in fitted.draws:
        load = _load(row, base, draw.numbers, place)
        if not is_own:
            larger = exp(source.gauss(0, base.gradient_spread))
            slower = exp(source.gauss(0, base.sample_spread))
            load = msgspec.structs.replace(
                load, gradient_mb=load.gradient_mb * larger, step_s=load.step_s * slower
            )
        steps.append((log(step_s(load, from_free(draw.numbers))), draw.weight))
    fast, middle, slow = _quantiles(steps, (0.05, 0.5, 0.95))
    noise = NINE_OF_TEN * (calibration.noise + FARTHER * _doublings(row, calibration.rows))
    faster, slower = hypot(middle - fast, noise), hypot(slow - middle, noise)
    why = _why_wide(row, calibration, base)
    if why:
        missing = max(log(LEAST_WIDE) / (faster + slower), 1.0)
        faster, slower = faster * missing, slower * missing
    rate = row.gpus * (row.batch_per_gpu or base.batch) / exp(middle)
    return _Found(rate=rate, slower=slower, faster=faster, why_wide=why)


def _binding(row: Row, calibration: Calibration, base: Base) -> tuple[Term, float]:
    best = calibration.fitted.best
    return binding(_load(row, base, best, calibration.place), from_free(best))


def _quantiles(values: list[tuple[float, float]], parts: tuple[float, ...]) -> list[float]:
    """Return the values below which these parts of the weights lie; the weights add up to 1."""
    values.sort()
    below = list(accumulate(weight for _, weight in values))
    return [values[min(bisect_left(below, part), len(values) - 1)][0] for part in parts]


def _doublings(row: Row, rows: Sequence[Row]) -> float:
    """Count how often the most GPUs that were measured must be doubled to reach a row."""
    most = max((each.gpus for each in rows), default=1)
    return max(log2(row.gpus / most), 0.0)


def _why_wide(row: Row, calibration: Calibration, base: Base) -> str | None:
    """Say why the measured rows do not tell the rate of a row; None where they do."""
    if row.gpus == 1:
        return "no row of one GPU was measured" if base.sample_spread else None
    rows = calibration.rows
    own = [each for each in rows if each.series == row.series]
    alike = [each for each in rows if (each.nodes > 1) == (row.nodes > 1)]
    if any(each.gpus >= row.gpus for each in own if each in alike) and (
        not base.sample_spread or any(each.gpus <= row.gpus for each in own)
    ):
        return None  # between rows of its own
    where = "between nodes" if row.nodes > 1 else "inside a node"
    if base.sample_spread:
        return "no row of one GPU was measured"
    if not rows:
        return "no row of several GPUs was measured on this fabric"
    if not alike:
        return f"no exchange {where} was measured on this fabric"
    if calibration.fitted.deviation(0) > SHOWN:
        return "the measured rows hide the exchange behind the compute: measure larger gradients or more nodes"
    if not own and base.gradient_spread == UNKNOWN:
        return "gradient_mb and batch_per_gpu of the series are not known"
    return None
