"""Fit numbers with Gaussian priors to measurements; draw sets of numbers that fit them.

Levenberg's and Marquardt's damped least squares on numbers without bounds; a measurement far off
counts less (Cauchy's weights), so that one wrong row does not decide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import exp, log, log1p, sqrt
from operator import mul, sub

import msgspec

Matrix = list[list[float]]
Prior = Sequence[tuple[float, float]]  # middle and standard deviation of each number
Misses = Callable[[list[float], Sequence[int]], list[float]]  # of the rows at these indices


class LeastSquares(msgspec.Struct, frozen=True, kw_only=True):
    """Hold rows to fit, and where to begin.

    `touched` has for each number the rows that it changes: those of a series leave the others alone, and
    nobody computes them again.
    """

    misses: Misses
    prior: Prior
    touched: Sequence[Sequence[int]]
    num_rows: int
    noise: float  # standard deviation of a miss

    def residuals(self, at: list[float]) -> list[float]:
        """Compute the misses of all rows in standard deviations."""
        return [each / self.noise for each in self.misses(at, range(self.num_rows))]


STEPS = 25
MOST_DAMPING = 1e4
SAME = 0.05  # of the first number: two starts found one optimum
HOPELESS = 20.0  # of the cost: an optimum that explains nothing beside the best
LITTLE = 5e-3  # of the cost: a step that gains less is the last
MOST_WEIGHT = 0.05  # of one draw among all
DIFFERENCE = 1e-4
RIDGE = (1.0, 2.5)
OUTLIER = 3.0  # standard deviations from which a measurement loses weight


class Draw(msgspec.Struct, frozen=True):
    """Hold a set of numbers and how much it counts; the counts of all draws add up to 1."""

    numbers: list[float]
    weight: float


class Posterior(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the numbers of each optimum, the best first, and draws of numbers that fit."""

    optima: list[list[float]]
    draws: list[Draw]

    @property
    def best(self) -> list[float]:
        """Return the numbers that fit best."""
        return self.optima[0]

    def deviation(self, at: int) -> float:
        """Return the standard deviation of the number at an index."""
        mean = sum(each.weight * each.numbers[at] for each in self.draws)
        return sqrt(sum(each.weight * (each.numbers[at] - mean) ** 2 for each in self.draws))


class _Hill(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a local optimum as the middle of a Gaussian."""

    best: list[float]
    cost: float
    columns: Matrix  # of Cholesky's lower triangle of the precision, without their zeros
    log_determinant: float

    def log_density(self, at: list[float]) -> float:
        """Compute the logarithm of the density, less a constant."""
        apart = list(map(sub, at, self.best))
        squares = sum(sum(map(mul, each, apart[i:])) ** 2 for i, each in enumerate(self.columns))
        return self.log_determinant - squares / 2

    def draw(self, source: random.Random) -> list[float]:
        """Draw numbers from the Gaussian."""
        apart: list[float] = []
        for column in reversed(self.columns):
            rest = source.gauss(0, 1) - sum(map(mul, column[1:], reversed(apart)))
            apart.append(rest / column[0])
        return [each + moved for each, moved in zip(self.best, reversed(apart), strict=True)]


def fit(problem: LeastSquares, starts: Sequence[list[float]], num_draws: int) -> Posterior:
    """Find the best numbers, climbing from each start.

    Draws come from Gaussians around the optima, and around the best points where the first number is
    less by RIDGE: rows may fit nearly as well there. They are weighted by how well they fit, so that two
    explanations of the same rows both count, and none that a row rules out.
    """
    hills = _distinct([_descend(problem, start) for start in starts])
    best, optima = hills[0].best, [each.best for each in hills]
    for apart in RIDGE:
        first = best[0] - apart
        held = msgspec.structs.replace(problem, prior=[(first, apart / 2), *problem.prior[1:]])
        hills.append(_descend(held, [first, *best[1:]]))
    source = random.Random(20)
    points = [hills[index % len(hills)].draw(source) for index in range(num_draws)]
    heights = [
        -_cost(problem.residuals(each), each, problem.prior) / 2 - _density(hills, each)
        for each in points
    ]
    top = max(heights)
    weights = [exp(each - top) for each in heights]
    most = MOST_WEIGHT * sum(weights)
    weights = [min(each, most) for each in weights]
    total = sum(weights)
    return Posterior(
        optima=optima,
        draws=[Draw(each, weight / total) for each, weight in zip(points, weights, strict=True)],
    )


def _distinct(hills: Sequence[_Hill]) -> list[_Hill]:
    """Return the optima, best first, less those that another start found as well or that fit far worse."""
    found: list[_Hill] = []
    for hill in sorted(hills, key=lambda each: each.cost):
        is_new = all(abs(hill.best[0] - each.best[0]) > SAME for each in found)
        if not found or (is_new and hill.cost < found[0].cost + HOPELESS):
            found.append(hill)
    return found


def _density(hills: Sequence[_Hill], at: list[float]) -> float:
    """Return the logarithm of the density of the Gaussians together, less a constant."""
    logs = [each.log_density(at) for each in hills]
    top = max(logs)
    return top + log(sum(exp(each - top) for each in logs))


def _descend(problem: LeastSquares, start: list[float]) -> _Hill:
    here, damping = list(start), 1e-2
    values = problem.residuals(here)
    cost = _cost(values, here, problem.prior)
    gradient, normal = _normal(problem, here, values)
    for _ in range(STEPS):
        damped = [
            [each * (1 + damping) if i == j else each for j, each in enumerate(row)]
            for i, row in enumerate(normal)
        ]
        factor = _cholesky(damped)
        step = _solve_upper(factor, _solve_lower(factor, gradient))
        there = [each - max(min(moved, 2.0), -2.0) for each, moved in zip(here, step, strict=True)]
        new_values = problem.residuals(there)
        new_cost = _cost(new_values, there, problem.prior)
        if new_cost < cost:
            is_done = cost - new_cost < LITTLE
            here, values, cost, damping = there, new_values, new_cost, damping / 5
            gradient, normal = _normal(problem, here, values)
            if is_done:
                break
        else:
            damping *= 6
            if damping > MOST_DAMPING:
                break
    factor = _cholesky(normal)
    size = len(factor)
    columns = [[factor[k][i] for k in range(i, size)] for i in range(size)]
    log_determinant = sum(log(each[0]) for each in columns)
    return _Hill(best=here, cost=cost, columns=columns, log_determinant=log_determinant)


def _cost(values: list[float], at: list[float], prior: Prior) -> float:
    far = sum(OUTLIER**2 * log1p((each / OUTLIER) ** 2) for each in values)
    return far + sum(((x - m) / sd) ** 2 for x, (m, sd) in zip(at, prior, strict=True))


def _normal(
    problem: LeastSquares, at: list[float], values: list[float]
) -> tuple[list[float], Matrix]:
    """Return half the gradient of the cost and the matrix of the normal equations."""
    prior = problem.prior
    columns: list[dict[int, float]] = []
    for index, rows in enumerate(problem.touched):
        moved = [*at[:index], at[index] + DIFFERENCE, *at[index + 1 :]]
        new = problem.misses(moved, rows)
        columns.append(
            {
                row: (value / problem.noise - values[row]) / DIFFERENCE
                for row, value in zip(rows, new, strict=True)
            }
        )
    weights = [1 / (1 + (each / OUTLIER) ** 2) for each in values]
    weighted = [{row: weights[row] * slope for row, slope in each.items()} for each in columns]
    gradient = [
        sum(slope * values[row] for row, slope in column.items()) + (x - middle) / spread**2
        for column, x, (middle, spread) in zip(weighted, at, prior, strict=True)
    ]
    normal = [[0.0] * len(at) for _ in at]
    for i, column in enumerate(weighted):
        for j in range(i + 1):
            few, many = sorted((column, columns[j]), key=len)
            shared = sum(slope * many[row] for row, slope in few.items() if row in many)
            normal[i][j] = normal[j][i] = shared
        normal[i][i] += prior[i][1] ** -2
    return gradient, normal


def _cholesky(matrix: Matrix) -> Matrix:
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(map(mul, lower[i][:j], lower[j][:j]))
            lower[i][j] = sqrt(max(rest, 1e-12)) if i == j else rest / lower[j][j]
    return lower


def _solve_lower(lower: Matrix, right: list[float]) -> list[float]:
    found: list[float] = []
    for i, row in enumerate(lower):
        found.append((right[i] - sum(map(mul, row, found))) / row[i])
    return found


def _solve_upper(lower: Matrix, right: list[float]) -> list[float]:
    """Solve with the transpose of the lower triangle."""
    size = len(lower)
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(lower[k][i] * found[k] for k in range(i + 1, size))
        found[i] = (right[i] - rest) / lower[i][i]
    return found
