"""Chooses a run's main figure, and words figures (pure).

A program declares its main figure by a `goal` on the metric's lines. Where none is declared, names
decide: see `choose_main`, and docs/run-directory.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from jobs.runs.metrics import Axis, Curve, Goal

# Words of names of which more is better, and less.
_MORE = re.compile(
    r"acc|accuracy|top[0-9]*|m?ap[0-9]*|ar[0-9]*|auc|auroc|f1|precision|recall|m?iou|dice|bleu"
    r"|rouge[0-9l]*|r2|psnr|ssim|ndcg|mrr|reward|return|score"
)
_LESS = re.compile(r"loss|error|err|nll|perplexity|ppl|mae|mse|rmse|wer|cer|fid|bpc|bpb|entropy")
# Words of what a training is not judged by, whatever else a name says (`score_time`), and of what
# it is not judged by alone (`error_rate`, `loss_epoch`).
_COST = re.compile(r"(run)?time|seconds?|minutes|hours|ms|memory|gb|mb|throughput")
_ASIDE = re.compile(rf"lr|rate|epoch|step|per|{_COST.pattern}")
_WORDS = re.compile(r"[a-z0-9]+")


class Figure(Struct, frozen=True, kw_only=True):
    """A metric's last and best value, with the epochs (or steps) at which they were found.

    `best` is None where nobody knows whether more or less is better.
    """

    split: str
    name: str
    goal: Goal | None
    axis: Axis
    last: float
    last_at: float
    best: float | None
    best_at: float | None

    @property
    def label(self) -> str:
        """Split and name, as tables and pictures call the metric."""
        return f"{self.split} {self.name}".strip()


def figures_of(curves: Sequence[Curve]) -> list[Figure]:
    """Sum up every curve; the main figure first."""
    main = choose_main(curves)
    others = [each for each in curves if each is not main]
    return [_figure(each) for each in ([main] if main else []) + others]


def choose_main(curves: Sequence[Curve]) -> Curve | None:
    """Choose what the program declared; else by split, by name, else the last; None of no curves.

    Any split comes before `train`. Of one split, names as `accuracy`, `top1` or `box_ap` come
    before `loss`, and that before all others, of which the last is taken.
    """
    declared = [each for each in curves if each.goal is not None]
    if declared:
        return declared[0]
    ranked = [(_order(curve), curve) for curve in curves]
    best = min((order for order, _ in ranked), default=None)
    found = [curve for order, curve in ranked if order == best]
    # Of unknown names the last is as a rule what a program ends with.
    return (found[0] if best and best[2] < 2 else found[-1]) if found else None


def goal_of(curve: Curve) -> Goal | None:
    """Tell whether more or less of a metric is better, as declared, else by its name."""
    if curve.goal is not None:
        return curve.goal
    words = _words(curve.name)
    if any(map(_COST.fullmatch, words)):
        return None
    if any(map(_LESS.fullmatch, words)):  # `top1_error`
        return "min"
    return "max" if any(map(_MORE.fullmatch, words)) else None


def is_share(name: str, values: Sequence[float]) -> bool:
    """Tell whether a metric is a share of all samples, to be shown in per cent."""
    words = _words(name)
    is_named_so = any(re.fullmatch(r"acc|accuracy|top[0-9]+", word) for word in words)
    return is_named_so and all(0 <= each <= 1 for each in values if math.isfinite(each))


def value_text(value: float, name: str = "") -> str:
    """Write a metric's value: a share in per cent, else with about five digits that matter."""
    if name and is_share(name, [value]):
        return f"{value:.2%}"
    size = abs(value)
    if size and (size < 0.001 or size >= 1e7):
        return f"{value:.3e}"
    return f"{value:.4f}" if size < 100 else f"{value:,.1f}"


def figure_text(figure: Figure) -> str:
    """Word a figure: its last value, and its best where that is another."""
    text = value_text(figure.last, figure.name)
    if figure.best is None or figure.best_at is None or figure.best == figure.last:
        return text
    best = value_text(figure.best, figure.name)
    return f"{text} (best {best} at {figure.axis} {figure.best_at:g})"


def _figure(curve: Curve) -> Figure:
    goal = goal_of(curve)
    last_at, last = curve.last
    best_at, best = None, None
    if goal is not None:
        choose = max if goal == "max" else min
        best_at, best = choose(curve.finite(), key=lambda each: each[1])
    return Figure(
        split=curve.split,
        name=curve.name,
        goal=goal,
        axis=curve.axis,
        last=last,
        last_at=last_at,
        best=best,
        best_at=best_at,
    )


def _order(curve: Curve) -> tuple[bool, bool, int]:
    words = _words(curve.name)
    goal = goal_of(curve)
    is_aside = goal is None and any(map(_ASIDE.fullmatch, words))
    is_of_training = any(word in ("train", "training") for word in (curve.split, *words))
    kind = 2 if goal is None else 0 if goal == "max" else 1
    return is_aside, is_of_training, kind


def _words(name: str) -> list[str]:
    return _WORDS.findall(name.lower())
