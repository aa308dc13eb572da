"""What the stand-in Azure ML answers with is what Microsoft's models know of such an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import needs
from tests.environments.arm_models import read_models
from tests.fakes.azureml import Deviation, FakeAzure
from tests.fakes.azureml.client import Client
from tests.fakes.azureml.judge import judge_answer

# Known to azureml-core's model of a workspace (_base_sdk_common/workspace/models/workspace.py).
OLDER = "properties.creationTime: Workspace has no such property"
RULE = "properties.managedNetwork.outboundRules.data-blob.status"
LOCATION = "/subscriptions/{sub}/providers/Microsoft.MachineLearningServices/locations/{location}"


def ask(client: Client, path: str, *, method: str = "GET") -> Any:
    answer = client.ask(method, path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask_region(client: Client, what: str) -> Any:
    place = client.azure.place
    path = LOCATION.format(sub=place.subscription_id, location=place.location)
    query = {"api-version": "2025-01-01-preview"}
    return client.session.get(f"https://management.azure.com{path}/{what}", params=query).json()


def violations(kind: str, *answers: Any) -> list[str]:
    return [found for each in answers for found in judge_answer(kind, each)]


def test_jobs_at_each_turn_of_their_lives(azure: FakeAzure, client: Client) -> None:
    client.submit("answers-waits", "sleep 600", resources={"instanceCount": 1})
    client.submit("answers-fails", "exit 3")
    azure.wait("answers-fails")
    shown = [ask(client, "/jobs/answers-fails"), *ask(client, "/jobs")["value"]]
    assert client.ask("POST", "/jobs/answers-waits/cancel").status_code == 202
    shown.append(ask(client, "/jobs/answers-waits"))
    azure.wait("answers-waits")
    shown.append(ask(client, "/jobs/answers-waits"))
    states = {each["properties"]["status"] for each in shown}
    assert states >= {"Failed", "CancelRequested", "Canceled"}
    assert violations("job", *shown) == []


def test_clusters_their_nodes_sizes_and_quotas(azure: FakeAzure, client: Client) -> None:
    azure.deviations.add(Deviation.CLUSTER_FAILED)
    failed = ask(client, "/computes/cpu-1a2b3c")
    azure.deviations.clear()
    clusters = [failed, ask(client, "/computes/cpu-1a2b3c"), *ask(client, "/computes")["value"]]
    assert {each["properties"]["provisioningState"] for each in clusters} == {"Failed", "Succeeded"}
    assert violations("compute", *clusters) == []
    nodes = ask(client, "/computes/cpu-1a2b3c/listNodes", method="POST")
    assert violations("nodes", nodes) == []
    assert violations("sizes", ask_region(client, "vmSizes")) == []
    usages = ask_region(client, "usages")
    assert usages["value"]
    assert violations("usages", usages) == []


def test_the_workspace_whatever_its_network_has_come_to(azure: FakeAzure, client: Client) -> None:
    assert violations("workspace", ask(client, "")) == [OLDER]
    with needs.whole_environment():
        known = read_models().values("RuleStatus")
    for deviation in (Deviation.NETWORK_FAILED, Deviation.NETWORK_PROVISIONING):
        azure.deviations.add(deviation)
        shown = ask(client, "")
        azure.deviations.clear()
        (status,) = (
            each["status"]
            for each in shown["properties"]["managedNetwork"]["outboundRules"].values()
        )
        # The newest models have the words that the older tables lack.
        assert status in known
        lacking = f"{RULE}: '{status}' is none of Inactive, Active"
        assert set(violations("workspace", shown)) == {OLDER, lacking}


def test_what_is_stored_in_the_workspace(azure: FakeAzure, client: Client) -> None:
    stores = ask(client, "/datastores")["value"]
    assert stores
    assert violations("datastore", *stores, ask(client, f"/datastores/{stores[0]['name']}")) == []
    code, environment = client.put_code({"a": "1"}), client.put_environment("python:3")
    below = azure.place.workspace_id
    assert violations("code", ask(client, code.removeprefix(below))) == []
    assert violations("environment", ask(client, environment.removeprefix(below))) == []


@pytest.mark.parametrize(
    ("kind", "path", "change", "said"),
    [
        ("compute", "/computes/cpu-1a2b3c", {"provisioningState": "Fine"}, "is none of Unknown"),
        ("compute", "/computes/cpu-1a2b3c", {"shade": 1}, "has no such property"),
        ("workspace", "", {"workspaceId": 1}, "1 is no str"),
    ],
)
def test_an_answer_with_one_wrong_value_is_caught(
    client: Client, kind: str, path: str, change: dict[str, Any], said: str
) -> None:
    shown = json.loads(json.dumps(ask(client, path)))
    shown["properties"] |= change
    (violation,) = set(judge_answer(kind, shown)) - {OLDER}
    assert said in violation
