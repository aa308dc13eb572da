"""Finds VM sizes in the table of Azure's sizes, and says which are retired or going.

The table, `infra/tables/sizes.csv`, is made by tools/azure_tables.py, which names its sources.
What retires is written here, from learn.microsoft.com/azure/virtual-machines/sizes/lifecycle/
retirements-and-capacity-restrictions (2026-09-24). Which sizes a region and a subscription have is
Azure's answer, not a table's; a size that the table lacks is declared in the stack's settings.
"""

from __future__ import annotations

import csv
import difflib
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

PAGES = "learn.microsoft.com/azure/virtual-machines/sizes"
PREFIX = "Standard_"
_TABLE = Path(__file__).with_name("tables") / "sizes.csv"
# The last day of each family, and of single sizes. A new subscription cannot have them even now.
_RETIRING: Mapping[str, str] = {
    **dict.fromkeys(("standarddfamily", "standarddsfamily"), "2028-05-01"),
    **dict.fromkeys(("standarddv2family", "standarddsv2family"), "2028-05-01"),
    **dict.fromkeys(("standarddv2promofamily", "standarddsv2promofamily"), "2028-05-01"),
    **dict.fromkeys(("standardffamily", "standardfsfamily", "standardfsv2family"), "2028-11-15"),
    **dict.fromkeys(("standarddv3family", "standarddsv3family"), "2029-11-15"),
    **dict.fromkeys(("standardev3family", "standardesv3family"), "2029-11-15"),
    **dict.fromkeys(("standardeiv3family", "standardeisv3family"), "2029-11-15"),
    **dict.fromkeys(("standardhbrsv2family", "standardhcsfamily"), "2027-05-31"),
    **dict.fromkeys(("m192idms_v2", "m192ids_v2", "m192ims_v2", "m192is_v2"), "2027-03-31"),
}


class Size(Struct, frozen=True, kw_only=True):
    """One VM size, of the table or as a stack declares it.

    `family` is the name under which Azure ML counts its quota (compare without case), memory is
    per node, `gpu_memory_gb` per GPU (0 without one); RDMA is InfiniBand between nodes. `retires`
    is the announced date after which the size cannot be had any more.
    """

    name: str
    vcpus: int
    gpus: int
    rdma: bool
    family: str | None = None
    gpu: str | None = None
    gpu_memory_gb: int = 0
    memory_gb: float | None = None
    retires: str | None = None


class Gone(Struct, frozen=True, kw_only=True):
    """A size that is refused: why, and what takes its place."""

    name: str
    reason: str
    successor: str
    source: str


@functools.cache
def read_sizes() -> Mapping[str, Size]:
    """Read the table: sizes by their names in small letters and without `Standard_`."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if line[0] != "#")
        sizes = [_size(row) for row in rows if _key(row["name"]) not in GONE]
    return {_key(size.name): size for size in sizes}


def _size(row: Mapping[str, str]) -> Size:
    name, family = row["name"], row["family"]
    return Size(
        name=name,
        family=family,
        vcpus=int(row["vcpus"]),
        memory_gb=float(row["memory_gb"]),
        gpus=int(row["gpus"]),
        gpu=row["gpu"] or None,
        gpu_memory_gb=int(row["gpu_memory_gb"]),
        rdma=row["rdma"] == "yes",
        retires=_RETIRING.get(family.lower()) or _RETIRING.get(_key(name)),
    )


def find_size(name: str) -> Size | None:
    """Find the size that is meant, in any case and with or without `Standard_`."""
    return read_sizes().get(_key(name))


def why_not(name: str, *, is_declared: bool = False) -> str | None:
    """Explain why clusters cannot have a size that the table lacks, and what to write instead.

    None for a size that is declared, so that its hardware is known all the same.
    """
    gone = GONE.get(_key(name))
    if gone is not None:
        return f"{gone.name} {gone.reason}; hint: {gone.successor}"
    if is_declared:
        return None if name.startswith(PREFIX) else f"{name!r} does not begin with {PREFIX}"
    lasting = [key for key, size in read_sizes().items() if size.retires is None]
    near = difflib.get_close_matches(_key(name), lasting, n=1, cutoff=0.75)
    hint = f"{read_sizes()[near[0]].name}, or" if near else "one of docs/azure.md#sizes, or"
    return (
        f"{name!r} is not in the table of sizes; hint: {hint} keep it and declare "
        "its `gpus` and `vcpus` a node (`rdma: true` with InfiniBand)"
    )


def why_declared(size: Size, key: str) -> str:
    """Explain why a declared figure is refused: the table has another one."""
    return f"{size.name} has {json.dumps(getattr(size, key))} by the table; remove the key"


def _key(name: str) -> str:
    return name.lower().removeprefix(PREFIX.lower())


def _gone(reason: str, source: str, **successors: str) -> Iterable[tuple[str, Gone]]:
    for name, successor in successors.items():
        full = PREFIX + name
        gone = Gone(name=full, reason=reason, successor=PREFIX + successor, source=source)
        yield _key(name), gone


def _refusals(*groups: Iterable[tuple[str, Gone]]) -> Mapping[str, Gone]:
    return {key: gone for group in groups for key, gone in group}


_MODERNIZE = f"{PAGES}/lifecycle/retirement/n-series-migration (2023-02-27)"

GONE: Mapping[str, Gone] = _refusals(
    _gone(
        "retired on 2023-08-31",
        _MODERNIZE,
        NC6="NC4as_T4_v3",
        NC6_Promo="NC4as_T4_v3",
        NC12="NC16as_T4_v3",
        NC12_Promo="NC16as_T4_v3",
        NC24="NC64as_T4_v3",
        NC24_Promo="NC64as_T4_v3",
        NC24r="NC64as_T4_v3",
        NC24r_Promo="NC64as_T4_v3",
        NC6s_v2="NC24ads_A100_v4",
        NC12s_v2="NC48ads_A100_v4",
        NC24s_v2="NC96ads_A100_v4",
        NC24rs_v2="NC96ads_A100_v4",
        ND6s="NC4as_T4_v3",
        ND12s="NC16as_T4_v3",
        ND24s="NC64as_T4_v3",
        ND24rs="ND96amsr_A100_v4",
        NV6="NC4as_T4_v3",
        NV12="NC16as_T4_v3",
        NV24="NC64as_T4_v3",
    ),
    _gone(
        "retired on 2024-08-31",
        "github.com/Azure/EOL service_list.json (2025-12-18)",
        HB60rs="HB120rs_v3",
    ),
    _gone(
        "retired on 2025-09-30",
        f"{PAGES}/lifecycle/retirement/ncv3-retirement (2025-05-28)",
        NC6s_v3="NC40ads_H100_v5",
        NC12s_v3="NC80adis_H100_v5",
        # Four GPUs: an NCads_H100_v5 has two at most.
        NC24s_v3="NC96ads_A100_v4",
        NC24rs_v3="NC96ads_A100_v4",
    ),
    _gone(
        "retired on 2026-09-30",
        f"{PAGES}/lifecycle/retirements-and-capacity-restrictions (2026-09-24)",
        NV12s_v3="NC16as_T4_v3",
        NV24s_v3="NC64as_T4_v3",
        NV48s_v3="NC64as_T4_v3",
        NV4as_v4="NC4as_T4_v3",
        NV8as_v4="NC8as_T4_v3",
        NV16as_v4="NC16as_T4_v3",
        NV32as_v4="NC16as_T4_v3",
    ),
    # Azure has announced no end of it; CUDA 13, which the images hold, has no code for Volta.
    _gone(
        "has V100 GPUs, which the images' CUDA 13 cannot use any more",
        "docs.nvidia.com CUDA 13.0 release notes; github.com/pytorch/pytorch/issues/157517",
        ND40rs_v2="ND96asr_v4",
    ),
)
