"""What a preview declares: the place, each cluster with its size, whether the workspace is new."""

from __future__ import annotations

import json

import msgspec
import pytest

from jobs.engines.azure_ml.declared import read_declared
from jobs.engines.azure_ml.sizes import Size
from tests.infra.cloud_declared import SUBSCRIPTION, declare_stack

SIZE = Size(name="Standard_D4ds_v4", family="standardDDSv4Family", num_vcpus=4)


def preview_of(stack, op="create"):
    steps = [
        {"op": op, "urn": each.name, "newState": {"type": each.type, "inputs": each.inputs}}
        for each in declare_stack(stack)
    ]
    return json.dumps({"steps": steps}).encode()


def test_a_preview_without_a_workspace_on_azure_declares_none():
    step = {"op": "same", "urn": "u", "newState": {"type": "trainyard:local:Cluster"}}
    preview = msgspec.json.encode({"steps": [step, {"op": "delete", "urn": "u"}]})
    assert read_declared(preview, "local") is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_new_stack_declares_its_place_and_the_size_of_each_cluster(order):
    steps = json.loads(preview_of("dev"))["steps"][::order]
    declared = read_declared(msgspec.json.encode({"steps": steps}), "dev")
    assert declared is not None
    place = declared.environment
    assert (place.subscription_id, place.resource_group) == (SUBSCRIPTION, "rg-yard-dev")
    assert place.workspace.id.endswith("/workspaces/mlw-yard-dev-1")
    assert place.clusters == {}
    assert (declared.is_new, declared.group is not None) == (True, True)
    assert declared.identity is not None
    assert declared.identity.tags["owner"] == "platform@example.com"
    assert [(each.cluster, each.vm_size) for each in declared.computes] == [
        ("cpu", "Standard_D4ds_v4"),
        ("gpu", "Standard_NC4as_T4_v3"),
    ]
    # A size that Azure does not list has no hardware to count.
    assert list(declared.with_clusters({"standard_d4ds_v4": SIZE}).clusters) == ["cpu"]


def test_a_cluster_that_a_replacement_takes_away_is_not_declared():
    steps = json.loads(preview_of("dev", "same"))["steps"]
    gone = {each["urn"] for each in steps if each["newState"]["inputs"].get("computeName")}
    steps = [{**each, "op": "delete-replaced"} if each["urn"] in gone else each for each in steps]
    declared = read_declared(msgspec.json.encode({"steps": steps}), "dev")
    assert declared is not None
    assert (len(gone), declared.computes) == (2, ())


def test_a_stack_that_is_there_is_not_new():
    declared = read_declared(preview_of("dev", "same"), "dev")
    assert declared is not None
    assert not declared.is_new


def test_the_subscription_is_the_platforms_and_not_that_of_a_resource_it_uses():
    other = "99999999-9999-4999-8999-999999999999"
    first = {
        "op": "read",
        "urn": "u",
        "newState": {"type": "x", "inputs": {"i": f"/subscriptions/{other}/"}},
    }
    steps = [first, *json.loads(preview_of("dev"))["steps"]]
    declared = read_declared(msgspec.json.encode({"steps": steps}), "dev")
    assert declared is not None
    assert declared.environment.subscription_id == SUBSCRIPTION
