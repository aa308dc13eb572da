"""Fit a line to points by gradient descent."""

from collections.abc import Iterator


def fit(points: list[tuple[float, float]], epochs: int, lr: float) -> Iterator[tuple[float, ...]]:
    """Yield the line's slope and offset, and the mean squared error, after each epoch."""
    slope = offset = 0.0
    for _ in range(epochs):
        errors = [(x, slope * x + offset - y) for x, y in points]
        slope -= lr * 2 * sum(x * error for x, error in errors) / len(points)
        offset -= lr * 2 * sum(error for _, error in errors) / len(points)
        yield slope, offset, sum(error * error for _, error in errors) / len(points)
