"""The table of sizes: found in any spelling, refused with what to write instead, told with its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from infra.skus import GONE, Size, find_size, read_sizes, why_not

DECLARE = "keep it and declare its `gpus` and `vcpus` a node (`rdma: true` with InfiniBand)"


def test_a_size_is_found_in_any_case_with_or_without_its_prefix():
    expected = Size(
        name="Standard_ND96amsr_A100_v4",
        family="standard NDAMSv4_A100Family",
        vcpus=96,
        gpus=8,
        gpu="A100",
        gpu_memory_gb=80,
        memory_gb=1800,
        rdma=True,
        retires=None,
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
            "'Standard_NC24ads_A10_v4' is not in the table of sizes;"
            f" hint: Standard_NC24ads_A100_v4, or {DECLARE}",
        ),
        # As near is Standard_D8s_v3, which new subscriptions cannot have.
        (
            "Standard_D8s_v8",
            f"'Standard_D8s_v8' is not in the table of sizes; hint: Standard_D8s_v6, or {DECLARE}",
        ),
        # Nearer is Standard_D2s_v3.
        (
            "Standard_D2s_v30",
            f"'Standard_D2s_v30' is not in the table of sizes; hint: Standard_D2s_v6, or {DECLARE}",
        ),
        (
            "gpu",
            f"'gpu' is not in the table of sizes; hint: one of docs/azure.md#sizes, or {DECLARE}",
        ),
    ],
)
def test_a_refusal_says_why_and_what_to_write(name, expected):
    assert (find_size(name), why_not(name)) == (None, expected)


def test_every_successor_can_be_had_for_years():
    retires = {gone.name: find_size(gone.successor).retires for gone in GONE.values()}
    assert retires == dict.fromkeys(retires)


def test_no_size_is_offered_and_refused():
    assert read_sizes().keys() & GONE.keys() == set()


def test_each_row_agrees_with_its_own_name():
    """Azure's names say the vCPUs, and by letters GPUs (N) and InfiniBand (r)."""
    wrong: list[str] = []
    for size in read_sizes().values():
        letters, vcpus, features = re.match(r"Standard_([A-Z]+)(\d+)([a-z]*)", size.name).groups()
        # D sizes of versions 1 and 2 count their steps, not their vCPUs.
        is_step = letters in ("D", "DS") and not size.name.endswith(
            ("_v3", "_v4", "_v5", "_v6", "_v7")
        )
        said = (size.vcpus if is_step else int(vcpus), "r" in features, letters.startswith("N"))
        is_whole = (size.gpus > 0) == (size.gpu is not None) == (size.gpu_memory_gb > 0)
        if said != (size.vcpus, size.rdma, size.gpus > 0) or not is_whole:
            wrong.append(size.name)
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "retires"),
    [
        ("D4s_v3", "2029-11-15"),
        ("E64i_v3", "2029-11-15"),
        ("DS1_v2", "2028-05-01"),
        ("F2s_v2", "2028-11-15"),
        ("HC44rs", "2027-05-31"),
        ("M192ids_v2", "2027-03-31"),
        ("D4ds_v5", None),
        ("E8ads_v6", None),
        ("HB176rs_v4", None),
        ("HX176rs", None),
        ("ND96isr_MI300X_v5", None),
        ("NV36ads_A10_v5", None),
    ],
)
def test_the_table_has_new_sizes_and_the_end_of_old_ones(name, retires):
    assert find_size(name).retires == retires


@pytest.mark.parametrize("stage", ["dev", "test", "prod"])
def test_a_new_subscription_can_have_the_sizes_of_the_committed_stacks(stage):
    text = (Path(__file__).parents[2] / f"Pulumi.{stage}.yaml").read_text()
    clusters = yaml.safe_load(text)["config"]["trainyard:clusters"]
    sizes = [find_size(cluster["size"]) for cluster in clusters.values()]
    assert [size.retires for size in sizes if size] == [None] * len(clusters)
