"""Foresight against published rates: three rows a fabric calibrate it, the others are predicted.

The rates: msalvaris/BatchAIHorovodBenchmark at 0d23f48, read from the pictures of its experiments
(images/s of a whole job, batch 64 a GPU, fp32, synthetic data, Horovod, Azure Batch AI, 2018).
"""

from __future__ import annotations

import csv
import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.foresight.predict import predict
from jobs.foresight.rows import Prediction
from jobs.foresight.rows import Row as Size
from tests.bench.table import Row

TABLE = Path(__file__).with_name("batchai_horovod.csv")
PICTURE = Path("docs/images/foresight.png")
GRADIENT_MB = {
    "mobilenetv2": 14,
    "resnet50": 102,
    "resnet50_v2": 102,
    "resnet101": 178,
    "resnet101_v2": 178,
    "resnet152": 241,
}
RDMA, ETHERNET = "intelmpi-rdma", "nccl-eth0"
# Their bars are not those of the experiment that they are named after.
WRONG = {(f"{gpu} resnet152 {RDMA}", 16) for gpu in ("p40", "p100", "v100")}
NEAR = 0.1
# GPU, network and GPUs of each row that calibrates a fabric beside the rows of one GPU.
Choice = dict[str, Sequence[tuple[str, str, int]]]
CHOICES: tuple[Choice, ...] = (
    {
        RDMA: [
            ("v100", "resnet101_v2", 4),
            ("v100", "mobilenetv2", 8),
            ("v100", "resnet101_v2", 8),
        ],
        ETHERNET: [("p100", "resnet50", 4), ("p40", "mobilenetv2", 16), ("v100", "resnet50", 32)],
    },
    {
        RDMA: [("v100", "resnet152", 4), ("v100", "mobilenetv2", 16), ("v100", "resnet50", 16)],
        ETHERNET: [("v100", "resnet152", 4), ("p40", "mobilenetv2", 8), ("v100", "resnet101", 32)],
    },
    {
        RDMA: [("v100", "resnet50_v2", 4), ("v100", "mobilenetv2", 8), ("p100", "resnet101", 32)],
        ETHERNET: [("p100", "resnet50", 4), ("v100", "mobilenetv2", 32), ("v100", "resnet50", 32)],
    },
    {
        RDMA: [("v100", "resnet101", 4), ("v100", "mobilenetv2", 16), ("p100", "resnet50", 16)],
        ETHERNET: [("v100", "resnet101", 4), ("p100", "mobilenetv2", 16), ("p40", "resnet50", 8)],
    },
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A published rate and what was predicted."""

    gpu: str
    network: str
    published: Size
    predicted: Prediction

    @property
    def miss(self) -> float:
        """The part of the published rate by which the prediction is off."""
        return abs(self.predicted.rate / (self.published.rate or 1.0) - 1)

    @property
    def is_held(self) -> bool:
        """Whether the band holds the published rate."""
        return self.predicted.low <= (self.published.rate or 0.0) <= self.predicted.high


@functools.cache
def sizes() -> tuple[Size, ...]:
    """Read the published rates, but for the wrong ones and those without Horovod."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mpi"] != "none"]
    found = [
        Size(
            series=f"{row['gpu']} {row['model']} {row['mpi']}",
            gpus=int(row["gpus"]),
            gpus_per_node=4,
            rate=float(row["images_per_s"]),
            gradient_mb=GRADIENT_MB[row["model"]],
            batch_per_gpu=64,
            fabric=row["mpi"],
        )
        for row in rows
    ]
    return tuple(each for each in found if (each.series, each.gpus) not in WRONG)


@functools.cache
def points(number: int) -> tuple[Point, ...]:
    """Predict what a choice leaves, without the K80 over Ethernet, whose rates scatter by 40 %."""
    chosen = {
        (f"{gpu} {network} {fabric}", gpus)
        for fabric, rows in CHOICES[number].items()
        for gpu, network, gpus in rows
    }
    measured = [each for each in sizes() if each.gpus == 1 or (each.series, each.gpus) in chosen]
    asked = [
        each
        for each in sizes()
        if each not in measured and not (each.series.startswith("k80") and each.fabric == ETHERNET)
    ]
    found = predict(measured, asked)
    return tuple(
        Point(
            gpu=each.series.split()[0], network=each.series.split()[1], published=each, predicted=it
        )
        for each, it in zip(asked, found, strict=True)
    )


def near(wanted: Sequence[Point]) -> float:
    """Return the part of the points whose prediction is within 10 %."""
    return sum(each.miss <= NEAR for each in wanted) / len(wanted)


def width(wanted: Sequence[Point]) -> float:
    """Return the middle one of the bands' high / low."""
    return statistics.median(each.predicted.high / each.predicted.low for each in wanted)


def best_choice() -> int:
    """Return the number of the choice that keeps the most goals, and of those the most accurate."""
    return max(
        range(len(CHOICES)),
        key=lambda each: (sum(row.met for row in goals(each)), -_mean_error(points(each))),
    )


def goals(number: int) -> list[Row]:
    """Give the goals that the best choice must keep."""
    found = points(number)
    rdma = [each for each in found if each.published.fabric == RDMA]
    name = f"choice {number + 1}, the best"
    resnets = [each for each in rdma if "resnet" in each.network]
    ethernet = [each for each in found if each.published.fabric == ETHERNET]
    held = sum(each.is_held for each in found) / len(found)
    middle = width(found)
    return [
        _share(f"{name}: ResNets over RDMA, within 10 %", resnets, near(resnets), 0.97),
        _share(f"{name}: all over RDMA, within 10 %", rdma, near(rdma), 0.95),
        _share(f"{name}: Ethernet without K80, within 10 %", ethernet, near(ethernet), 0.95),
        _most(f"{name}: mean error", f"{_mean_error(found):.1%}", _mean_error(found), 0.04),
        _share(f"{name}: rates in their band, at least", found, held, 0.85),
        _most(f"{name}: rates in their band, at most", f"{held:.1%}", held, 0.95),
        _most(f"{name}: bands, median high / low", f"{middle:.2f}", middle, 1.3),
    ]


def foresight_rows(project: Path, rounds: int) -> list[Row]:
    """Give the goals of the best choice, each choice, then the best by fabric, GPU and network."""
    del rounds
    best = best_choice()
    found = points(best)
    rows = goals(best)
    for number in range(len(CHOICES)):
        rows += _no_choice(number)
    parts = {(each.published.fabric, each.gpu, each.network): None for each in found}
    for part in parts:
        these = [each for each in found if (each.published.fabric, each.gpu, each.network) == part]
        name = f"choice {best + 1}: {', '.join(part)}, within 10 %"
        rows.append(_share(name, these, near(these), 0.95))
    _draw(project / PICTURE, found)
    return rows


def _no_choice(number: int) -> list[Row]:
    """Give the goals that no choice may miss, by its worse fabric."""
    found = points(number)
    chosen = [
        ", ".join(f"{g} {net} {n}" for g, net, n in CHOICES[number][of]) for of in CHOICES[number]
    ]
    name = f"choice {number + 1} ({'; '.join(chosen)})"
    fabrics = [[each for each in found if each.published.fabric == of] for of in (RDMA, ETHERNET)]
    worst = min(fabrics, key=near)
    held = sum(each.is_held for each in found) / len(found)
    error = max(_mean_error(each) for each in fabrics)
    return [
        _share(f"{name}: within 10 % on its worse fabric", worst, near(worst), 0.88),
        _most(
            f"choice {number + 1}: mean error on its worse fabric",
            f"{error:.1%}; {held:.1%} in their band, median high / low {width(found):.2f}",
            error,
            0.06,
        ),
    ]


def _mean_error(these: Sequence[Point]) -> float:
    return statistics.fmean(each.miss for each in these)


def _most(goal: str, ours: str, value: float, at_most: float) -> Row:
    return Row(goal=goal, ours=ours, peer="published", ratio=value, at_most=at_most)


def _share(goal: str, these: Sequence[Point], share: float, at_least: float) -> Row:
    mean = _mean_error(these)
    return Row(
        goal=goal,
        ours=f"{share:.1%} of {len(these)}, mean error {mean:.1%}",
        peer="published",
        ratio=share,
        at_least=at_least,
    )


def _draw(path: Path, found: Sequence[Point]) -> None:
    """Draw predicted against published rates of each fabric, with their bands."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    for axis, fabric, title in zip(axes, (RDMA, ETHERNET), ("RDMA", "Ethernet"), strict=True):
        for gpu in ("k80", "p40", "p100", "v100"):
            these = [each for each in found if (each.gpu, each.published.fabric) == (gpu, fabric)]
            if not these:
                continue
            rates = [each.published.rate or 0.0 for each in these]
            bands = [
                [each.predicted.rate - each.predicted.low for each in these],
                [each.predicted.high - each.predicted.rate for each in these],
            ]
            middles = [each.predicted.rate for each in these]
            axis.errorbar(rates, middles, yerr=bands, fmt="o", ms=3, lw=0.6, label=gpu)
        axis.plot([50, 40000], [50, 40000], color="grey", lw=0.8)
        axis.set(xscale="log", yscale="log", title=title)
        axis.set(xlabel="published images/s", ylabel="predicted images/s")
        axis.legend()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
