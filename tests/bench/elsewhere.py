"""Foresight against tables of other authors, calibrated by rows drawn at random.

`tensorflow`: the benchmarks of tensorflow.org, images/s, synthetic data, May 2017
(tensorflow/tensorflow at 5984ffe, tensorflow/docs_src/performance/benchmarks.md): the priors were set while
looking at them. `dlperf`: DLPerf's report v1.0 of August 2020 (Oneflow-Inc/DLPerf at 0770fdf,
reports/dlperf_benchmark_test_report_v1.md), four nodes of eight V100 over 100 Gb/s of InfiniBand, fp32:
tried when the model was done, which showed that series differ more, and three spreads were changed.
`nvidia squad`: BERT large fine-tuned on a DGX-1 with 16 GB, TensorFlow, June 2020
(NVIDIA/DeepLearningExamples at 002bcd8, TensorFlow/LanguageModeling/BERT/README.md), and `mindspore`: Ascend 910,
r0.5, 2020 (mindspore.cn/docs/en/r0.5/benchmark.html): tried last, and nothing changed after.
Gradients: 4 bytes a parameter.
"""

from __future__ import annotations

import csv
import functools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.foresight.predict import predict
from jobs.foresight.rows import Prediction
from jobs.foresight.rows import Row as Size
from tests.bench.foresight import ETHERNET, NEAR, RDMA, sizes
from tests.bench.table import Row

TABLE = Path(__file__).with_name("published_elsewhere.csv")
CHOICES, ROWS = 12, 3  # drawn for each fabric; rows of several GPUs in each at most
SEED = 11
UNSEEN = ("nvidia squad", "mindspore")
CONFIDENT = 1.5  # high / low below which a band says that it knows


@dataclass(frozen=True, kw_only=True)
class Case:
    """A published rate and what was predicted."""

    published: float
    predicted: Prediction

    @property
    def miss(self) -> float:
        """The part of the published rate by which the prediction is off."""
        return abs(self.predicted.rate / self.published - 1)

    @property
    def is_held(self) -> bool:
        """Whether the band holds the published rate."""
        return self.predicted.low <= self.published <= self.predicted.high

    @property
    def width(self) -> float:
        """The band's high / low."""
        return self.predicted.high / self.predicted.low


@functools.cache
def tables() -> dict[str, tuple[Size, ...]]:
    """Read the sizes of each table, and those of this project's main one by fabric, without K80."""
    found: dict[str, list[Size]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            size = Size(
                series=row["series"],
                gpus=int(row["gpus"]),
                gpus_per_node=int(row["gpus_per_node"]),
                rate=float(row["rate"]),
                gradient_mb=float(row["gradient_mb"]),
                batch_per_gpu=float(row["batch_per_gpu"]),
                fabric=row["fabric"],
            )
            found.setdefault(row["table"], []).append(size)
    for fabric, name in ((RDMA, "azure rdma"), (ETHERNET, "azure ethernet")):
        found[name] = [
            each for each in sizes() if each.fabric == fabric and not each.series.startswith("k80")
        ]
    return {name: tuple(rows) for name, rows in found.items()}


@functools.cache
def cases(table: str) -> tuple[Case, ...]:
    """Predict the sizes that random choices of rows leave, each fabric by its own rows."""
    source = random.Random(SEED)
    found: list[Case] = []
    for fabric in sorted({each.fabric for each in tables()[table]}):
        rows = [each for each in tables()[table] if each.fabric == fabric]
        many = [each for each in rows if each.gpus > 1]
        for _ in range(CHOICES):
            chosen = source.sample(many, min(ROWS, len(many) - 1))
            asked = [each for each in many if each not in chosen]
            measured = [*(each for each in rows if each.gpus == 1), *chosen]
            found += [
                Case(published=size.rate or 0.0, predicted=it)
                for size, it in zip(asked, predict(measured, asked), strict=True)
            ]
    return tuple(found)


def near(found: Sequence[Case]) -> float:
    """Return the part of the cases that are predicted within 10 %."""
    return statistics.fmean(each.miss <= NEAR for each in found)


def held(found: Sequence[Case]) -> float:
    """Return the part of the cases whose band holds the published rate."""
    return statistics.fmean(each.is_held for each in found)


def confident(found: Sequence[Case]) -> list[Case]:
    """Give the cases whose band says that it knows."""
    return [each for each in found if each.width < CONFIDENT and not each.predicted.why_wide]


def elsewhere_rows(project: Path, rounds: int) -> list[Row]:
    """Give each table's part in the bands, in all of them and in those that give no reason."""
    del project, rounds
    rows: list[Row] = []
    for table in tables():
        found = cases(table)
        width = statistics.median(each.width for each in found)
        rows.append(
            _held_row(f"random rows: {table}: rates in their band", found, f", width {width:.2f}")
        )
        if sure := confident(found):
            rows.append(_held_row(f"random rows: {table}: bands that give no reason", sure, ""))
    return rows


def _held_row(goal: str, found: Sequence[Case], more: str) -> Row:
    mean = statistics.fmean(each.miss for each in found)
    return Row(
        goal=goal,
        ours=f"{held(found):.1%} of {len(found)}, within 10 % {near(found):.1%},"
        f" mean error {mean:.1%}{more}",
        peer="published",
        ratio=held(found),
        at_least=0.85,
    )
