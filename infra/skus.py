"""Lists the VM sizes of clusters with their hardware and sources, and the retired ones.

Offered: Azure ML's page "What are compute targets" (learn.microsoft.com/azure/machine-learning/
concept-compute-target, 2025-11-13) lists the series that clusters take; NC_A100_v4 and
NCads_H100_v5 stand in Azure ML's own list of sizes (reference-managed-online-endpoints-vm-sku-list,
2023-10-18). Figures: the page of each series, named with its own date in `source`. Families: that
list, and Azure's Resource SKUs as published in Azure/karpenter-provider-azure (known_skus.yaml,
2026-07-16). Retirements: sizes/lifecycle/retirements-and-capacity-restrictions (2026-09-24).
What had no source has no row: constrained-vCPU sizes, for one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CHECKED = "2026-11-21"
PAGES = "learn.microsoft.com/azure/virtual-machines/sizes"
PREFIX = "Standard_"


@dataclass(frozen=True, kw_only=True)
class Size:
    """One VM size.

    `family` is the name under which Azure ML counts its quota (compare without case), memory is
    per node, `gpu_memory_gb` per GPU (0 without one), `network_gbps` is Ethernet to everywhere;
    RDMA is InfiniBand between nodes, beside it. `retires` is the announced date after which the
    size cannot be had any more; a new subscription cannot have it even now. `source` is the page
    with the figures and that page's date, `checked` the day they were read.
    """

    name: str
    family: str
    vcpus: int
    gpus: int
    gpu: str | None
    gpu_memory_gb: int
    memory_gb: float
    rdma: bool
    network_gbps: float
    retires: str | None
    source: str
    checked: str


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A size that is refused: why, and what takes its place."""

    name: str
    reason: str
    successor: str
    source: str


def find_size(name: str) -> Size | None:
    """Find the size that is meant, in any case and with or without `Standard_`."""
    return _BY_KEY.get(_key(name))


def why_not(name: str) -> str:
    """Explain why a size is not known, and what to write instead."""
    gone = GONE.get(_key(name))
    if gone is not None:
        return f"{gone.name} {gone.reason}; hint: {gone.successor}"
    lasting = [key for key, size in _BY_KEY.items() if size.retires is None]
    near = difflib.get_close_matches(_key(name), lasting, n=1, cutoff=0.75)
    hint = _BY_KEY[near[0]].name if near else "one of docs/azure.md#sizes"
    return f"{name!r} is not a size that clusters can have; hint: {hint}"


def _key(name: str) -> str:
    return name.lower().removeprefix(PREFIX.lower())


def _series(
    page: str,
    dated: str,
    family: str,
    *sizes: tuple[str, int, float, float],
    gpus: tuple[int, ...] = (),
    gpu: str | None = None,
    gpu_memory_gb: int = 0,
    rdma: bool = False,
    retires: str | None = None,
) -> Iterable[Size]:
    """Build the rows of one page: (name, vCPUs, memory in GB, network in Gb/s), GPUs in order."""
    for index, (name, vcpus, memory_gb, network_gbps) in enumerate(sizes):
        yield Size(
            name=PREFIX + name,
            family=family,
            vcpus=vcpus,
            gpus=gpus[index] if gpus else 0,
            gpu=gpu,
            gpu_memory_gb=gpu_memory_gb,
            memory_gb=memory_gb,
            rdma=rdma,
            network_gbps=network_gbps,
            retires=retires,
            source=f"{PAGES}/{page} ({dated})",
            checked=CHECKED,
        )


def _table(*series: Iterable[Size]) -> Mapping[str, Size]:
    return {size.name: size for rows in series for size in rows}


SIZES: Mapping[str, Size] = _table(
    _series(
        "gpu-accelerated/ncast4v3-series",
        "2024-07-31",
        "standard NCASv3_T4 Family",
        ("NC4as_T4_v3", 4, 28, 8),
        ("NC8as_T4_v3", 8, 56, 8),
        ("NC16as_T4_v3", 16, 110, 8),
        ("NC64as_T4_v3", 64, 440, 32),
        gpus=(1, 1, 1, 4),
        gpu="T4",
        gpu_memory_gb=16,
    ),
    _series(
        "gpu-accelerated/nca100v4-series",
        "2024-07-31",
        "standardNCADSA100v4Family",
        ("NC24ads_A100_v4", 24, 220, 20),
        ("NC48ads_A100_v4", 48, 440, 40),
        ("NC96ads_A100_v4", 96, 880, 80),
        gpus=(1, 2, 4),
        gpu="A100",
        gpu_memory_gb=80,
    ),
    _series(
        "gpu-accelerated/ncadsh100v5-series",
        "2024-07-31",
        "standardNCADSH100v5Family",
        ("NC40ads_H100_v5", 40, 320, 40),
        ("NC80adis_H100_v5", 80, 640, 80),
        gpus=(1, 2),
        gpu="H100",
        gpu_memory_gb=94,
    ),
    _series(
        "gpu-accelerated/ndasra100v4-series",
        "2024-07-31",
        "standard NDASv4_A100 Family",
        ("ND96asr_v4", 96, 900, 24),
        gpus=(8,),
        gpu="A100",
        gpu_memory_gb=40,
        rdma=True,
    ),
    _series(
        "gpu-accelerated/ndma100v4-series",
        "2024-07-31",
        "standard NDAMSv4_A100Family",
        ("ND96amsr_A100_v4", 96, 1900, 24),
        gpus=(8,),
        gpu="A100",
        gpu_memory_gb=80,
        rdma=True,
    ),
    _series(
        "gpu-accelerated/ndh100v5-series",
        "2025-09-02",
        # Azure ML's own name; virtual machines count the same size as standardNDSH100v5Family.
        "standardNDv5H100Family",
        ("ND96isr_H100_v5", 96, 1900, 80),
        gpus=(8,),
        gpu="H100",
        gpu_memory_gb=80,
        rdma=True,
    ),
    _series(
        "gpu-accelerated/nd-h200-v5-series",
        "2025-09-02",
        "standardNDISRH200V5Family",
        ("ND96isr_H200_v5", 96, 1850, 80),
        gpus=(8,),
        gpu="H200",
        gpu_memory_gb=141,
        rdma=True,
    ),
    _series(
        "general-purpose/ddsv4-series",
        "2026-03-10",
        "standardDDSv4Family",
        ("D2ds_v4", 2, 8, 5),
        ("D4ds_v4", 4, 16, 10),
        ("D8ds_v4", 8, 32, 12.5),
        ("D16ds_v4", 16, 64, 12.5),
        ("D32ds_v4", 32, 128, 16),
        ("D48ds_v4", 48, 192, 24),
        ("D64ds_v4", 64, 256, 30),
    ),
    _series(
        "memory-optimized/eav4-series",
        "2024-08-01",
        "standardEAv4Family",
        ("E2a_v4", 2, 16, 2),
        ("E4a_v4", 4, 32, 4),
        ("E8a_v4", 8, 64, 8),
        ("E16a_v4", 16, 128, 10),
        ("E20a_v4", 20, 160, 12),
        ("E32a_v4", 32, 256, 16),
        ("E48a_v4", 48, 384, 24),
        ("E64a_v4", 64, 512, 32),
        ("E96a_v4", 96, 672, 32),
    ),
    _series(
        "compute-optimized/fx-series",
        "2024-07-30",
        "standardFXMDVSFamily",
        ("FX4mds", 4, 84, 4),
        ("FX12mds", 12, 252, 8),
        ("FX24mds", 24, 504, 16),
        ("FX36mds", 36, 756, 24),
        ("FX48mds", 48, 1008, 32),
    ),
    _series(
        "memory-optimized/m-series",
        "2026-03-10",
        "standardMSFamily",
        ("M8ms", 8, 218.75, 2),
        ("M16ms", 16, 437.5, 4),
        ("M32ts", 32, 192, 8),
        ("M32ls", 32, 256, 8),
        ("M32ms", 32, 875, 8),
        ("M64s", 64, 1024, 16),
        ("M64ls", 64, 512, 16),
        ("M64ms", 64, 1792, 16),
        ("M128s", 128, 2048, 30),
        ("M128ms", 128, 3892, 30),
    ),
    _series(
        "high-performance-compute/hbv3-series",
        "2025-11-24",
        "standardHBv3Family",
        ("HB120rs_v3", 120, 448, 40),
        rdma=True,
    ),
    _series(
        "high-performance-compute/hbv2-series",
        "2025-11-24",
        "standardHBrsv2Family",
        ("HB120rs_v2", 120, 456, 40),
        rdma=True,
        retires="2027-05-31",
    ),
    _series(
        "high-performance-compute/hc-series",
        "2025-11-24",
        "standardHCSFamily",
        ("HC44rs", 44, 352, 40),
        rdma=True,
        retires="2027-05-31",
    ),
    _series(
        "general-purpose/dv2-series",
        "2026-03-10",
        "standardDv2Family",
        ("D1_v2", 1, 3.5, 0.75),
        ("D2_v2", 2, 7, 1.5),
        ("D3_v2", 4, 14, 3),
        ("D4_v2", 8, 28, 6),
        ("D5_v2", 16, 56, 12),
        retires="2028-05-01",
    ),
    _series(
        "general-purpose/dsv2-series",
        "2024-07-29",
        "standardDSv2Family",
        ("DS1_v2", 1, 3.5, 0.75),
        ("DS2_v2", 2, 7, 1.5),
        ("DS3_v2", 4, 14, 3),
        ("DS4_v2", 8, 28, 6),
        ("DS5_v2", 16, 56, 12),
        retires="2028-05-01",
    ),
    _series(
        "compute-optimized/fsv2-series",
        "2024-07-30",
        "standardFSv2Family",
        ("F2s_v2", 2, 4, 5),
        ("F4s_v2", 4, 8, 10),
        ("F8s_v2", 8, 16, 12.5),
        ("F16s_v2", 16, 32, 12.5),
        ("F32s_v2", 32, 64, 16),
        ("F48s_v2", 48, 96, 21),
        ("F64s_v2", 64, 128, 28),
        ("F72s_v2", 72, 144, 30),
        retires="2028-11-15",
    ),
    _series(
        "general-purpose/dv3-series",
        "2024-07-29",
        "standardDv3Family",
        ("D2_v3", 2, 8, 1),
        ("D4_v3", 4, 16, 2),
        ("D8_v3", 8, 32, 2),
        ("D16_v3", 16, 64, 2),
        ("D32_v3", 32, 128, 16),
        ("D48_v3", 48, 192, 24),
        ("D64_v3", 64, 256, 30),
        retires="2029-11-15",
    ),
    _series(
        "general-purpose/dsv3-series",
        "2024-09-24",
        "standardDSv3Family",
        ("D2s_v3", 2, 8, 1),
        ("D4s_v3", 4, 16, 2),
        ("D8s_v3", 8, 32, 2),
        ("D16s_v3", 16, 64, 2),
        ("D32s_v3", 32, 128, 16),
        ("D48s_v3", 48, 192, 24),
        ("D64s_v3", 64, 256, 30),
        retires="2029-11-15",
    ),
    _series(
        "memory-optimized/ev3-esv3-series",
        "2026-09-24",
        "standardEv3Family",
        ("E2_v3", 2, 16, 1),
        ("E4_v3", 4, 32, 2),
        ("E8_v3", 8, 64, 4),
        ("E16_v3", 16, 128, 8),
        ("E20_v3", 20, 160, 10),
        ("E32_v3", 32, 256, 16),
        ("E48_v3", 48, 384, 24),
        ("E64_v3", 64, 432, 30),
        retires="2029-11-15",
    ),
    _series(
        "memory-optimized/ev3-esv3-series",
        "2026-09-24",
        "standardESv3Family",
        ("E2s_v3", 2, 16, 1),
        ("E4s_v3", 4, 32, 2),
        ("E8s_v3", 8, 64, 4),
        ("E16s_v3", 16, 128, 8),
        ("E20s_v3", 20, 160, 10),
        ("E32s_v3", 32, 256, 16),
        ("E48s_v3", 48, 384, 24),
        ("E64s_v3", 64, 432, 30),
        retires="2029-11-15",
    ),
)

_BY_KEY: Mapping[str, Size] = {_key(name): size for name, size in SIZES.items()}


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
