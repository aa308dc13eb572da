"""The table of sizes: found in any spelling, refused with what to write instead, told with its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from infra.skus import GONE, SIZES, Size, find_size, why_not


def test_a_size_is_found_in_any_case_with_or_without_its_prefix():
    expected = Size(
        name="Standard_ND96amsr_A100_v4",
        family="standard NDAMSv4_A100Family",
        vcpus=96,
        gpus=8,
        gpu="A100",
        gpu_memory_gb=80,
        memory_gb=1900,
        rdma=True,
        network_gbps=24,
        retires=None,
        source="learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/ndma100v4-series"
        " (2024-07-31)",
        checked="2026-11-21",
    )
    spellings = ["Standard_ND96amsr_A100_v4", "STANDARD_ND96AMSR_A100_V4", "nd96amsr_a100_v4"]
    assert [find_size(name) for name in spellings] == [expected] * 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("standard_nc6", "Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3"),
        (
            "Standard_NC24rs_v3",
            "Standard_NC24rs_v3 retired on 2025-09-30; hint: Standard_NC96ads_A100_v4",
        ),
        (
            "ND40rs_v2",
            "Standard_ND40rs_v2 has V100 GPUs, which the images' CUDA 13 cannot use any more;"
            " hint: Standard_ND96asr_v4",
        ),
        (
            "Standard_NC24ads_A10_v4",
            "'Standard_NC24ads_A10_v4' is not a size that clusters can have;"
            " hint: Standard_NC24ads_A100_v4",
        ),
        # Nearer is Standard_D8s_v3, which new subscriptions cannot have.
        (
            "Standard_D8s_v5",
            "'Standard_D8s_v5' is not a size that clusters can have; hint: Standard_D8ds_v4",
        ),
        ("gpu", "'gpu' is not a size that clusters can have; hint: one of docs/azure.md#sizes"),
    ],
)
def test_a_refusal_says_why_and_what_to_write(name, expected):
    assert (find_size(name), why_not(name)) == (None, expected)


def test_every_successor_can_be_had_for_years():
    retires = {gone.name: SIZES[gone.successor].retires for gone in GONE.values()}
    assert retires == dict.fromkeys(retires)


def test_no_size_is_offered_and_refused():
    assert {size.lower().removeprefix("standard_") for size in SIZES} & set(GONE) == set()


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_each_row_agrees_with_its_own_name(size):
    """Azure's names say the vCPUs (r: RDMA; N: GPUs), so a slip of the hand shows here."""
    letters, vcpus, features = re.fullmatch(
        r"Standard_([A-Z]+)(\d+)([a-z]*)[\w]*", size.name
    ).groups()
    # A D size of version 2 counts its steps, not its vCPUs.
    is_step = size.family in ("standardDv2Family", "standardDSv2Family")
    said = 2 ** (int(vcpus) - 1) if is_step else int(vcpus)
    assert (size.vcpus, size.rdma, size.gpus > 0) == (
        said,
        "r" in features,
        letters.startswith("N"),
    )
    assert (size.gpus > 0) == (size.gpu is not None) == (size.gpu_memory_gb > 0)
    assert re.fullmatch(r"learn\.microsoft\.com/\S+ \(20\d\d-\d\d-\d\d\)", size.source)


def test_the_guide_lists_the_gpu_sizes_and_no_others_with_the_table_s_figures():
    """docs/azure.md repeats what a reader chooses by; the rest of its figures are prices."""
    guide = (Path(__file__).parents[2] / "docs" / "azure.md").read_text()
    lines = [line for line in guide.splitlines() if line.startswith("| Standard_N")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    told = [row[:7] for row in rows if len(row) == 8]
    expected = [
        [
            size.name,
            f"{size.gpus} {size.gpu}",
            f"{size.gpu_memory_gb}",
            f"{size.vcpus}",
            f"{size.memory_gb}",
            f"{size.network_gbps}",
            "yes" if size.rdma else "",
        ]
        for size in SIZES.values()
        if size.gpus
    ]
    assert told == expected


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_a_new_subscription_can_have_the_sizes_of_the_committed_stacks(stage):
    text = (Path(__file__).parents[2] / f"Pulumi.{stage}.yaml").read_text()
    clusters = yaml.safe_load(text)["config"]["trainyard:clusters"]
    sizes = [find_size(cluster["size"]) for cluster in clusters.values()]
    assert [size.retires for size in sizes if size] == [None] * len(clusters)
