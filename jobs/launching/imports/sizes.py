"""Maps VM sizes of Batch AI's time to those that clusters can have today, with what they bring.

tests/contract/test_import_sizes.py holds the table to infra/skus.py, which has the sources. Hardware of
retired sizes is that of their pages at learn.microsoft.com/azure/virtual-machines/sizes/previous-gen, as published
before they were withdrawn. Their prices are the lowest of a region of the USA in catalogs/v5/azure/vms.csv of
github.com/skypilot-org/skypilot-catalog at 3f5f697; Azure itself lists none any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.stacks.prices import ListPrice, listed_prices

PREFIX = "Standard_"
PRICE_REGION = "eastus"


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A node's GPUs, their kind and memory, and its own memory in GB."""

    gpus: int
    gpu: str
    gpu_memory_gb: int
    memory_gb: float

    def text(self) -> str:
        """Write it in words: `1 x K80 of 12 GB, 56 GB memory`."""
        gpus = f"{self.gpus} x {self.gpu} of {self.gpu_memory_gb} GB" if self.gpus else "no GPU"
        return f"{gpus}, {self.memory_gb:g} GB memory"


def _row(gpus: int, gpu: str, gpu_memory_gb: int, memory_gb: float) -> Hardware:
    return Hardware(gpus=gpus, gpu=gpu, gpu_memory_gb=gpu_memory_gb, memory_gb=memory_gb)


TODAY: Mapping[str, Hardware] = {
    "NC4as_T4_v3": _row(1, "T4", 16, 28),
    "NC8as_T4_v3": _row(1, "T4", 16, 56),
    "NC16as_T4_v3": _row(1, "T4", 16, 110),
    "NC64as_T4_v3": _row(4, "T4", 16, 440),
    "NC24ads_A100_v4": _row(1, "A100", 80, 220),
    "NC48ads_A100_v4": _row(2, "A100", 80, 440),
    "NC96ads_A100_v4": _row(4, "A100", 80, 880),
    "NC40ads_H100_v5": _row(1, "H100", 94, 320),
    "NC80adis_H100_v5": _row(2, "H100", 94, 640),
    "ND96asr_v4": _row(8, "A100", 40, 900),
    "ND96amsr_A100_v4": _row(8, "A100", 80, 1800),
    "HB120rs_v3": _row(0, "", 0, 456),
}
# What replaces a size, its hardware, and its last known price in USD an hour.
RETIRED: Mapping[str, tuple[str, Hardware, float | None]] = {
    "NC6": ("NC4as_T4_v3", _row(1, "K80", 12, 56), 0.9),
    "NC6_Promo": ("NC4as_T4_v3", _row(1, "K80", 12, 56), 0.18),
    "NC12": ("NC16as_T4_v3", _row(2, "K80", 12, 112), None),
    "NC12_Promo": ("NC16as_T4_v3", _row(2, "K80", 12, 112), 0.36),
    "NC24": ("NC64as_T4_v3", _row(4, "K80", 12, 224), 3.6),
    "NC24_Promo": ("NC64as_T4_v3", _row(4, "K80", 12, 224), 0.72),
    "NC24r": ("NC64as_T4_v3", _row(4, "K80", 12, 224), 3.96),
    "NC24r_Promo": ("NC64as_T4_v3", _row(4, "K80", 12, 224), 0.792),
    "NC6s_v2": ("NC24ads_A100_v4", _row(1, "P100", 16, 112), None),
    "NC12s_v2": ("NC48ads_A100_v4", _row(2, "P100", 16, 224), None),
    "NC24s_v2": ("NC96ads_A100_v4", _row(4, "P100", 16, 448), None),
    "NC24rs_v2": ("NC96ads_A100_v4", _row(4, "P100", 16, 448), None),
    "ND6s": ("NC4as_T4_v3", _row(1, "P40", 24, 112), None),
    "ND12s": ("NC16as_T4_v3", _row(2, "P40", 24, 224), None),
    "ND24s": ("NC64as_T4_v3", _row(4, "P40", 24, 448), None),
    "ND24rs": ("ND96amsr_A100_v4", _row(4, "P40", 24, 448), None),
    "NV6": ("NC4as_T4_v3", _row(1, "M60", 8, 56), 1.14),
    "NV12": ("NC16as_T4_v3", _row(2, "M60", 8, 112), 2.28),
    "NV24": ("NC64as_T4_v3", _row(4, "M60", 8, 224), 4.56),
    "HB60rs": ("HB120rs_v3", _row(0, "", 0, 228), None),
    "NC6s_v3": ("NC40ads_H100_v5", _row(1, "V100", 16, 112), 3.06),
    "NC12s_v3": ("NC80adis_H100_v5", _row(2, "V100", 16, 224), 6.12),
    "NC24s_v3": ("NC96ads_A100_v4", _row(4, "V100", 16, 448), 12.24),
    "NC24rs_v3": ("NC96ads_A100_v4", _row(4, "V100", 16, 448), 13.46),
    "NV12s_v3": ("NC16as_T4_v3", _row(1, "M60", 8, 112), 1.14),
    "NV24s_v3": ("NC64as_T4_v3", _row(2, "M60", 8, 224), 2.28),
    "NV48s_v3": ("NC64as_T4_v3", _row(4, "M60", 8, 448), 4.56),
    "NV4as_v4": ("NC4as_T4_v3", _row(1, "eighth of an MI25", 2, 14), 0.233),
    "NV8as_v4": ("NC8as_T4_v3", _row(1, "quarter of an MI25", 4, 28), 0.466),
    "NV16as_v4": ("NC16as_T4_v3", _row(1, "half of an MI25", 8, 56), 0.932),
    "NV32as_v4": ("NC16as_T4_v3", _row(1, "MI25", 16, 112), 1.864),
    "ND40rs_v2": ("ND96asr_v4", _row(8, "V100", 32, 672), 22.032),
}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The size of a cluster, and the sentence that tells how it came about; `is_known` if clusters can have it."""

    size: str
    sentence: str
    is_known: bool


def choose_size(asked: str) -> Chosen:
    """Find the size that clusters can have today, in any case and with or without `Standard_`."""
    prices = listed_prices(PRICE_REGION)
    key = asked.strip().lower().removeprefix(PREFIX.lower())
    retired = {name.lower(): (name, *row) for name, row in RETIRED.items()}.get(key)
    if retired is not None:
        name, successor, before, price = retired
        today = TODAY[successor]
        last = "last price not known" if price is None else f"{price:g} USD an hour when last sold"
        sentence = (
            f"{PREFIX}{name} is retired ({before.text()}; {last}) -> "
            f"{PREFIX}{successor} ({today.text()}; {_cost(prices.get(PREFIX + successor))})"
        )
        if today.gpus < before.gpus:
            sentence += f"; with fewer GPUs a node takes {today.gpus} of a job's processes"
        return Chosen(size=PREFIX + successor, sentence=sentence, is_known=True)
    same = next((each for each in prices if each.lower() == f"{PREFIX}{key}".lower()), None)
    if same is not None:
        return Chosen(size=same, sentence=f"{same} ({_cost(prices[same])})", is_known=True)
    return Chosen(size=f"{PREFIX}D4ds_v4", sentence="", is_known=False)


def _cost(price: ListPrice | None) -> str:
    if price is None:
        return "list price not known"
    return f"{price.amount:g} USD an hour in {PRICE_REGION} on {price.as_of}"
