"""Writes the tables of VM sizes, regions and prices from clones of two public repositories.

    python -m tools.azure_tables AUTOSCALER KARPENTER

AUTOSCALER is github.com/kubernetes/autoscaler: its list of VM sizes is generated from Azure's
Resource SKUs. KARPENTER is github.com/Azure/karpenter-provider-azure: its prices are generated from
Azure's retail prices (pay as you go, Linux, USD an hour), its regions are an answer of Azure's list
of locations. Any clone will do, also one without a work tree: the files are read by `git show`.

KARPENTER keeps, of rows with one size, whichever a Go map gives last, so that many of its prices are
those of "CloudServices" (the rate of Windows); they are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.marked import put_between

ROOT = Path(__file__).parents[1]
SIZES_FILE = "cluster-autoscaler/cloudprovider/azure/azure_instance_types.go"
PRICES_FILE = "pkg/providers/pricing/zz_generated.pricing.go"
REGIONS_FILE = "pkg/fake/locations.json"
HOME = "swedencentral"
"""Region of the prices in the guide: that of the committed stacks."""

_SIZE = re.compile(
    r'InstanceType: "Standard_(\w+)",\s+SkuFamily:\s+"([^"]+)",\s+VCPU:\s+(\d+),'
    r'\s+MemoryMb:\s+(\d+),\s+GPU:\s+(\d+),\s+Architecture: "amd64"'
)
_NAME = re.compile(r"([A-Z]+)(\d+)([a-z]*)")
# For programs that compute: no burstable, confidential, storage or FPGA sizes, no Arm processors
# (the images have none), none with fewer vCPUs than its hardware (a dash in the name).
_WITHOUT_GPUS = {"D", "DS", "E", "F", "FX", "HB", "HC", "HX", "M"}
# GPU and GB of each, which the list lacks; families that are not here are not in the table.
# learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated: ncast4v3-series (2024-07-31),
# nca100v4-series (2024-07-31), ncadsh100v5-series (2024-07-31), ndasra100v4-series (2024-07-31),
# ndma100v4-series (2024-07-31), ndh100v5-series (2025-09-02), nd-h200-v5-series (2025-09-02),
# ndmi300xv5-series (2024-08-01), nvadsa10v5-series (2024-07-31).
_GPUS = {
    "standard ncasv3_t4 family": ("T4", 16),
    "standardncadsa100v4family": ("A100", 80),
    "standardncadsh100v5family": ("H100", 94),
    "standard ndasv4_a100 family": ("A100", 40),
    "standard ndamsv4_a100family": ("A100", 80),
    "standardndsh100v5family": ("H100", 80),
    "standardndisrh200v5family": ("H200", 141),
    "standardndisv5mi300xfamily": ("MI300X", 192),
    "standardnvadsa10v5family": ("A10", 24),
}
# Sizes of AMD that Azure lists as "CloudServices", too. A family costs the same per vCPU in a region
# (an isolated size 1.1 times), a little less than its twin of Intel, which is listed once;
# "CloudServices" cost 1.3 times that or more.
_LISTED_TWICE = re.compile(r"Standard_([DE]\d+)i?a(d?s)_v5")
_DEAREST = 1.2
_PRICES_OF = re.compile(r'initialOnDemandPrices\["(\w+)"\] = map')
_PRICE = re.compile(r'"(\w+)":\s+([0-9.]+),')
_PRICES_DATE = re.compile(r"// generated at (\d{4}-\d\d-\d\d)T")


@dataclass(frozen=True)
class Source:
    """One file of a clone: where it is from, and its text."""

    named: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Size:
    """One row of the table of sizes; `gpu` is empty without one."""

    name: str
    family: str
    vcpus: int
    memory_gb: float
    gpus: int
    gpu: str
    gpu_memory_gb: int
    rdma: bool


def main(autoscaler: str, karpenter: str) -> None:
    """Write the three tables, and the table of GPU sizes in the guide."""
    guide = ROOT / "docs" / "azure.md"
    sizes, regions, prices = (
        _open(Path(autoscaler), SIZES_FILE),
        _open(Path(karpenter), REGIONS_FILE),
        _open(Path(karpenter), PRICES_FILE),
    )
    for path, text in {
        ROOT / "infra" / "tables" / "sizes.csv": sizes_table(sizes),
        ROOT / "infra" / "tables" / "regions.csv": regions_table(regions),
        ROOT / "jobs" / "stacks" / "list_prices.csv": prices_table(prices, sizes, regions),
        guide: guide_with_sizes(guide.read_text(encoding="utf-8"), sizes, prices),
    }.items():
        path.write_text(text, encoding="utf-8")


def sizes_table(source: Source) -> str:
    """Build the table of sizes."""
    lines = [f"# Made by tools/azure_tables.py from {source.named}"]
    lines.append("name,family,vcpus,memory_gb,gpus,gpu,gpu_memory_gb,rdma")
    lines += (
        f"Standard_{size.name},{size.family},{size.vcpus},{size.memory_gb:g},"
        f"{size.gpus},{size.gpu},{size.gpu_memory_gb},{'yes' if size.rdma else 'no'}"
        for size in read_sizes(source.text)
    )
    return "\n".join(lines) + "\n"


def regions_table(source: Source) -> str:
    """Build the table of regions: zones, and where geo-redundant storage keeps its copy."""
    lines = [f"# Made by tools/azure_tables.py from {source.named}", "name,zones,pair"]
    for name, (has_zones, pair) in sorted(read_regions(source.text).items()):
        lines.append(f"{name},{'yes' if has_zones else 'no'},{pair}")
    return "\n".join(lines) + "\n"


def prices_table(prices: Source, sizes: Source, regions: Source) -> str:
    """Build the table of list prices: a line a region, a column a size."""
    dated = _PRICES_DATE.search(prices.text)
    assert dated
    names = sorted(f"Standard_{size.name}" for size in read_sizes(sizes.text))
    known, found = read_regions(regions.text), read_prices(prices.text)
    vcpus = {f"Standard_{size.name}": size.vcpus for size in read_sizes(sizes.text)}
    lines = [
        "# USD an hour and node: pay as you go, Linux. Made by tools/azure_tables.py",
        f"# from {prices.named}",
        f"date,{dated[1]}",
        ",".join(["region", *names]),
    ]
    for region in sorted(found.keys() & known.keys()):
        there = without_cloud_services(found[region], vcpus)
        cells = [f"{there[name]:g}" if name in there else "" for name in names]
        if any(cells):
            lines.append(",".join([region, *cells]))
    return "\n".join(lines) + "\n"


def guide_with_sizes(guide: str, sizes: Source, prices: Source) -> str:
    """Replace the guide's table of sizes with GPUs."""
    dated, cost = _PRICES_DATE.search(prices.text), read_prices(prices.text)[HOME]
    assert dated
    head = ["size", "GPUs", "GB each", "vCPUs", "GB", "InfiniBand", f"USD/h, {HOME}, {dated[1]}"]
    rows = [head, ["---"] * len(head)]
    for size in (size for size in read_sizes(sizes.text) if size.gpus):
        price = cost.get(f"Standard_{size.name}")
        part = "part of " if size.gpu == "A10" and size.gpu_memory_gb < 24 else ""
        rows.append(
            [
                f"Standard_{size.name}",
                f"{part}{size.gpus} {size.gpu}",
                f"{size.gpu_memory_gb}",
                f"{size.vcpus}",
                f"{size.memory_gb:g}",
                "yes" if size.rdma else "",
                "not there" if price is None else f"{price:.3f}",
            ]
        )
    table = "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)
    begin, end = "<!-- sizes: written by tools/azure_tables.py -->", "<!-- /sizes -->"
    return put_between(guide, begin, end, table)


def read_sizes(text: str) -> list[Size]:
    """Read the sizes that clusters of ours may have, those with GPUs by family, then by name."""
    found: list[Size] = []
    for name, family, vcpus, memory_mb, gpus in _SIZE.findall(text):
        named = _NAME.match(name)
        assert named
        letters, _, features = named.groups()
        gpu, gpu_memory_gb = _GPUS.get(family.lower(), ("", 0))
        if not int(gpus) if gpu else letters not in _WITHOUT_GPUS:
            continue
        if gpu == "A10":
            # The smaller ones have a sixth, a third and a half of one.
            gpu_memory_gb = min(gpu_memory_gb, int(vcpus) * gpu_memory_gb // 36)
        found.append(
            Size(
                name=name,
                family=family,
                vcpus=int(vcpus),
                memory_gb=int(memory_mb) / 1024,
                gpus=int(gpus) if gpu else 0,
                gpu=gpu,
                gpu_memory_gb=gpu_memory_gb,
                rdma="r" in features,
            )
        )
    order = list(_GPUS)
    return sorted(
        found,
        key=lambda size: (
            order.index(size.family.lower()) if size.gpu else len(order),
            size.family.lower(),
            size.vcpus,
            size.name,
        ),
    )


def read_regions(text: str) -> Mapping[str, tuple[bool, str]]:
    """Read the regions, without geographies and Azure's own test regions: zones, pair or nothing."""
    return {
        region["name"]: (bool(region.get("availabilityZoneMappings")), _pair(region["metadata"]))
        for region in json.loads(text)
        if region["metadata"]["regionType"] == "Physical" and not region["name"].endswith("euap")
    }


def _pair(metadata: Mapping[str, Iterable[Mapping[str, str]]]) -> str:
    return next((pair["name"] for pair in metadata.get("pairedRegion") or ()), "")


def read_prices(text: str) -> Mapping[str, Mapping[str, float]]:
    """Read the price of each size in each region."""
    return {region: dict(prices) for region, prices in _price_blocks(text)}


def without_cloud_services(
    prices: Mapping[str, float], vcpus: Mapping[str, int]
) -> Mapping[str, float]:
    """Leave out a region's prices of sizes that are listed twice and cost too much per vCPU.

    The measure is the cheapest of their family and its twin: a family's may all be wrong.
    """
    rates = {name: price / vcpus[name] for name, price in prices.items() if name in vcpus}
    cheapest: dict[str, float] = {}
    for name, rate in rates.items():
        family = _family(name)
        cheapest[family] = min(rate, cheapest.get(family, rate))
    return {
        name: price
        for name, price in prices.items()
        if name not in rates
        or not _LISTED_TWICE.fullmatch(name)
        or rates[name] <= _DEAREST * cheapest[_family(name)]
    }


def _family(name: str) -> str:
    """Name a size without its number; one that is listed twice like its twin."""
    twin = _LISTED_TWICE.sub(r"Standard_\1\2_v5", name)
    return re.sub(r"\d+", "", twin, count=1)


def _price_blocks(text: str) -> Iterator[tuple[str, Iterable[tuple[str, float]]]]:
    _, *parts = _PRICES_OF.split(text)
    for region, block in zip(parts[::2], parts[1::2], strict=True):
        yield region, [(name, float(price)) for name, price in _PRICE.findall(block)]


def _open(clone: Path, path: str) -> Source:
    def git(*words: str) -> str:
        command = ["git", "-C", str(clone), *words]
        return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout

    origin = {"cluster-autoscaler": "kubernetes/autoscaler"}
    repository = origin.get(path.partition("/")[0], "Azure/karpenter-provider-azure")
    commit, date = git("log", "-1", "--format=%h %cs", "--", path).split()
    return Source(
        f"github.com/{repository}/{path} at {commit} ({date})", git("show", f"HEAD:{path}")
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
