"""The local stack declares these resources, by the recording engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from infra.local.machine import Machine, inspect_machine
from infra.local.platform import LocalPlatform
from infra.local.settings import (
    ClusterSettings,
    LocalSettings,
    StorageSettings,
    Tools,
    WorkspaceSettings,
)
from infra.naming import physical_name
from tests.fakes.recording_engine import declare


@pytest.fixture
def settings():
    return LocalSettings(
        storage=StorageSettings(port=10100, folder=Path("/s")),
        workspace=WorkspaceSettings(folder=Path("/w")),
        clusters={
            "cpu": ClusterSettings(nodes=2, processes_per_node=2),
            "one": ClusterSettings(nodes=1, processes_per_node=1),
        },
        images={},
        tools=Tools(node="/node", azurite="/main.js"),
    )


def test_the_store_alone_is_a_dynamic_resource_and_holds_no_secret(settings):
    _, declared = declare(lambda: LocalPlatform("local", settings).storage.port)

    assert sorted((each.type, each.name) for each in declared) == [
        ("pulumi-python:dynamic/local:Azurite", "local-storage"),
        ("trainyard:local:Cluster", "cpu"),
        ("trainyard:local:Cluster", "one"),
        ("trainyard:local:Platform", "local"),
        ("trainyard:local:Workspace", "local-workspace"),
    ]
    store = next(each for each in declared if each.name == "local-storage")
    provider = store.inputs.pop("__provider")
    # By reference: a class by value would change with every edit and need its sources.
    assert len(provider) < 300
    assert store.inputs == {
        "account": "trainyard",
        "folder": "/s",
        "port": 10100,
        "workspace": "/w",
        "containers": ["data", "runs"],
        "node": "/node",
        "azurite": "/main.js",
    }


def test_a_clusters_physical_name_follows_what_a_node_is_and_not_their_number(settings):
    def compute(processes, nodes):
        cluster = ClusterSettings(nodes=nodes, processes_per_node=processes)
        changed = replace(settings, clusters={"cpu": cluster})
        found, _ = declare(lambda: LocalPlatform("local", changed).clusters["cpu"].compute)
        return found

    assert compute(2, 1) == compute(2, 5)
    assert compute(2, 1).startswith("cpu-")
    assert compute(3, 1) != compute(2, 1)


def test_physical_names_do_not_depend_on_the_order_of_what_is_fixed():
    assert physical_name("a", {"x": 1, "y": "z"}) == physical_name("a", {"y": "z", "x": 1})
    assert physical_name("a", {"x": 1}) != physical_name("a", {"x": 2})


@pytest.mark.parametrize(
    ("nodes", "share"),
    [
        (1, Machine(num_cpus=6, num_gpus=4)),
        (2, Machine(num_cpus=3, num_gpus=2)),
        (4, Machine(num_cpus=1, num_gpus=1)),
        (8, Machine(num_cpus=1, num_gpus=0)),
    ],
)
def test_nodes_share_the_machine_and_have_a_core_each(nodes, share):
    assert Machine(num_cpus=6, num_gpus=4).share(nodes) == share


def test_gpus_are_counted_by_the_drivers_device_files(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert inspect_machine(tmp_path).num_gpus == 3
    assert inspect_machine(tmp_path).num_cpus >= 1
