"""What the stand-in's resources answer with is what Microsoft's models know, and the service's to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.azure_native import errors
from tests.fakes.azure_native.judge import is_read_only, judge_answer
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.fakes.azure_native.service import Service
from tests.fakes.azure_native.store import Store
from tests.infra.cloud_declared import STACKS, SUBSCRIPTION, declare_stack

# What Azure fills in itself although the models let a request say it, too.
SETTABLE = {
    ("azure-native:keyvault:Vault", "properties.vaultUri"),
    ("azure-native:keyvault:Vault", "properties.provisioningState"),
    ("azure-native:machinelearningservices:Workspace", "discoveryUrl"),
    # Said where they are declared inside of their parent.
    ("azure-native:network:Subnet", "name"),
    ("azure-native:network:Subnet", "type"),
    ("azure-native:network:PrivateDnsZoneGroup", "name"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
    """Each resource of our stacks as the stand-in shows it when all of them are made."""
    return [
        (record["token"], record["outputs"])
        for stack in STACKS
        for record in stand(stack, Store(tmp_path_factory.mktemp(stack)))
    ]


def stand(stack: str, store: Store) -> Iterator[dict[str, Any]]:
    """Make all that a stack declares, what others wait for before them."""
    service = Service(store)
    waiting = [each for each in declare_stack(stack) if each.type in KINDS]
    while waiting:
        left = []
        for each in waiting:
            kind, inputs = KINDS[each.type], json.loads(json.dumps(each.inputs))
            try:
                service.create(kind, fill_path(kind, inputs, SUBSCRIPTION), inputs)
            except errors.Refused:
                left.append(each)
        assert len(left) < len(waiting), [each.name for each in left]
        waiting = left
    yield from store.read()["resources"].values()


def test_every_type_of_ours_answers(answers):
    assert {token for token, _ in answers} == KINDS.keys()


def test_an_answer_violates_no_model(answers):
    found = {(token, wrong) for token, answer in answers for wrong in judge_answer(token, answer)}
    assert found == set()


def test_what_the_service_adds_is_its_own_to_set(answers):
    found = {
        (token, place)
        for token, answer in answers
        for place in KINDS[token].told
        if not is_read_only(token, answer, place)
    }
    assert found == SETTABLE


@pytest.mark.parametrize(
    ("token", "place", "value", "said"),
    [
        ("storage:StorageAccount", ("statusOfPrimary",), "up", "statusOfPrimary: 'up' is none of"),
        ("storage:StorageAccount", ("shade",), 1, "shade: StorageAccount has no such property"),
        ("storage:BlobContainer", ("leaseState",), "Free", "leaseState: 'Free' is none of"),
        (
            "machinelearningservices:Compute",
            ("properties", "properties", "allocationState"),
            "Idle",
            "properties.properties.allocationState: 'Idle' is none of Steady, Resizing",
        ),
        (
            "machinelearningservices:Compute",
            ("properties", "properties", "currentNodeCount"),
            "0",
            "properties.properties.currentNodeCount: '0' is no int",
        ),
        (
            "network:PrivateDnsZoneGroup",
            ("type",),
            "Microsoft.Network/x",
            "type: PrivateDnsZoneGroup has no such property",
        ),
    ],
)
def test_an_answer_with_one_wrong_value_is_caught(answers, token, place, value, said):
    token = f"azure-native:{token}"
    wrong = json.loads(json.dumps(next(answer for of, answer in answers if of == token)))
    *parents, last = place
    inner = wrong
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    (violation,) = judge_answer(token, wrong)
    assert violation.startswith(said)
