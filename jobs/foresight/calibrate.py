"""Fit the constants of a fabric, and how its series differ, to measured rows (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt

import msgspec

from jobs.foresight.fit import LeastSquares, Posterior, fit
from jobs.foresight.model import PRIOR, Constants, Load, from_free, step_s
from jobs.foresight.rows import Row
from jobs.foresight.series import Base

# Standard deviation of a measured rate, as a logarithm, and how many rows it counts for.
NOISE, NOISE_ROWS = 0.02, 6
MOST_MISSED = 0.1  # a row that is farther off tells nothing of the noise
MORE_NOISE = 1.3  # times what was thought: the rows are fitted again
NUM_DRAWS = 160
START_S_PER_MB = (0.04e-3, 1e-3)
START_INSIDE = (0.1, 1.0)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Tell where the numbers of a fabric's series stand among the fitted ones."""

    gradient: dict[str, int]
    sample: dict[str, int]

    def of(self, series: str, free: Sequence[float]) -> tuple[float, float]:
        """Give how many times its own gradient and step a series has; 1 where it was not fitted."""
        if series not in self.gradient:
            return 1.0, 1.0
        return exp(free[self.gradient[series]]), exp(free[self.sample[series]])


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the fit of one fabric."""

    rows: list[Row]
    fitted: Posterior
    constants: list[Constants]  # of each draw
    place: Place
    noise: float
    missed: list[float]  # of each row: the fitted seconds by the measured ones, as a logarithm


def calibrate(rows: list[Row], bases: Mapping[str, Base]) -> Calibration:
    """Fit the rows of several GPUs on one fabric; without rows the prior stays."""
    series = sorted({row.series for row in rows})
    of = {name: [at for at, row in enumerate(rows) if row.series == name] for name in series}
    first = len(PRIOR)
    place = Place(
        gradient={name: first + at for at, name in enumerate(series)},
        sample={name: first + len(series) + at for at, name in enumerate(series)},
    )
    prior = [
        *PRIOR,
        *((0.0, bases[name].gradient_spread) for name in series),
        *((0.0, _sample_spread(bases[name], [rows[at] for at in of[name]])) for name in series),
    ]
    seconds = [
        row.gpus * (row.batch_per_gpu or bases[row.series].batch) / (row.rate or 1.0)
        for row in rows
    ]

    loads = [plain_load(row, bases[row.series]) for row in rows]
    overheads = [bases[row.series].overhead_s for row in rows]
    own = [(place.gradient[row.series], place.sample[row.series]) for row in rows]

    def misses(free: list[float], of_rows: Sequence[int]) -> list[float]:
        constants = from_free(free)
        found: list[float] = []
        for at in of_rows:
            gradient, sample = own[at]
            load = changed(loads[at], overheads[at], exp(free[gradient]), exp(free[sample]))
            found.append(log(step_s(load, constants) / seconds[at]))
        return found

    every = range(len(rows))
    problem = LeastSquares(
        misses=misses,
        prior=prior,
        touched=[every] * first + [of[name] for name in series] * 2,
        num_rows=len(rows),
        noise=NOISE,
    )
    fitted, noise = _fit(problem, _starts([each[0] for each in prior]))
    return Calibration(
        rows=rows,
        fitted=fitted,
        constants=[from_free(each.numbers) for each in fitted.draws],
        place=place,
        noise=noise,
        missed=misses(fitted.best, every),
    )


def plain_load(row: Row, base: Base) -> Load:
    """Describe a row to the model, its step without the overhead."""
    return Load(
        gpus=row.gpus,
        gpus_per_node=row.gpus_per_node,
        step_s=base.one_gpu_s(row.batch_per_gpu or base.batch),
        gradient_mb=row.gradient_mb or base.gradient_mb,
    )


def changed(load: Load, overhead_s: float, larger: float, slower: float) -> Load:
    """Give a load with a gradient and a one-GPU step so many times its own, and the overhead."""
    return Load(
        gpus=load.gpus,
        gpus_per_node=load.gpus_per_node,
        step_s=load.step_s * slower + (overhead_s if load.gpus > 1 else 0.0),
        gradient_mb=load.gradient_mb * larger,
    )


def _sample_spread(base: Base, rows: Sequence[Row]) -> float:
    return max(base.sample_spread(row.batch_per_gpu or base.batch) for row in rows)


def _starts(middle: list[float]) -> list[list[float]]:
    return [
        [log(speed), middle[1], log(inside), *middle[3:]]
        for speed in START_S_PER_MB
        for inside in START_INSIDE
    ]


def _fit(problem: LeastSquares, starts: list[list[float]]) -> tuple[Posterior, float]:
    """Fit with the usual noise, and again where the rows show more of it."""
    fitted = fit(problem, starts, NUM_DRAWS)
    missed = problem.misses(fitted.best, range(problem.num_rows))
    squares = sum(min(each**2, MOST_MISSED**2) for each in missed)
    spare = max(problem.num_rows - 3, 0)
    noise = sqrt((NOISE_ROWS * NOISE**2 + squares) / (NOISE_ROWS + spare))
    if noise > MORE_NOISE * NOISE:
        noisy = msgspec.structs.replace(problem, noise=noise)
        fitted = fit(noisy, fitted.optima, NUM_DRAWS)
    return fitted, noise
