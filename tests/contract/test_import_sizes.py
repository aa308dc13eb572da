"""The sizes that an import offers are those that clusters can have, with the hardware of the table of sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.skus import GONE, PREFIX, find_size
from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import import_documents
from jobs.launching.imports.sizes import RETIRED, TODAY, choose_size
from tests.infra.cloud_declared import settings_of


def test_each_retired_size_has_the_successor_that_pulumi_names() -> None:
    named = {
        gone.name.removeprefix(PREFIX): gone.successor.removeprefix(PREFIX)
        for gone in GONE.values()
    }
    assert {name: successor for name, (successor, *_) in RETIRED.items()} == named


def test_hardware_of_todays_sizes_is_that_of_the_table() -> None:
    for name, hardware in TODAY.items():
        size = find_size(name)
        assert size is not None
        assert (hardware.gpus, hardware.gpu, hardware.gpu_memory_gb, hardware.memory_gb) == (
            size.gpus,
            size.gpu or "",
            size.gpu_memory_gb,
            size.memory_gb,
        )
    assert {successor for successor, *_ in RETIRED.values()} <= TODAY.keys()


def test_a_size_is_found_in_any_spelling() -> None:
    assert choose_size("STANDARD_NC6").size == "Standard_NC4as_T4_v3"


def test_a_successor_with_fewer_gpus_a_node_says_so() -> None:
    fewer = "; with fewer GPUs a node takes 1 of a job's processes"
    assert choose_size("NC12").sentence.endswith(fewer)
    assert "fewer GPUs" not in choose_size("NC24").sentence
    assert choose_size("standard_d2_v3").size == "Standard_D2_v3"
    assert choose_size("nc24RS_v3").size == "Standard_NC96ads_A100_v4"
    assert not choose_size("Standard_X1").is_known


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"scaleSettings": {"manual": {"targetNodeCount": 0}}},
        {"scaleSettings": {"manual": {"targetNodeCount": 3}}, "vmPriority": "lowpriority"},
        {"scaleSettings": {"autoScale": {"minimumNodeCount": 5, "maximumNodeCount": 2}}},
        {"vmSize": "Standard_H16r", "name": "9 lives of_my-cluster"},
    ],
)
def test_the_block_of_clusters_is_one_that_a_stack_takes(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    paths = [tmp_path / "cluster.json", tmp_path / "other.json"]
    for path in paths:
        path.write_text(
            json.dumps({"properties": {"vmSize": "STANDARD_NC6", "nodeSetup": {}, **changed}})
        )
    made = import_documents(paths, tmp_path / "made", Choices())
    block = yaml.safe_load(made.files["clusters.yaml"])["config"]["trainyard:clusters"]
    assert len(block) == 2
    assert settings_of("dev", clusters=block).clusters.keys() == block.keys()
