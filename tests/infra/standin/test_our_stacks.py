"""Our three stacks, as committed: nothing in them that Microsoft's models or Azure refuse."""

from __future__ import annotations

import json

import pytest

from tests.fakes.azure_native import errors
from tests.fakes.azure_native.judge import judge
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.fakes.azure_native.service import Service
from tests.fakes.azure_native.store import Store
from tests.infra.cloud_declared import STACKS, SUBSCRIPTION, declare_stack


def declared(stack):
    return [each for each in declare_stack(stack) if each.type.startswith("azure-native:")]


@pytest.mark.parametrize("stack", STACKS)
def test_no_request_violates_a_model(stack):
    found = {each.name: judge(each.type, each.inputs) for each in declared(stack)}
    assert {name: violations for name, violations in found.items() if violations} == {}


@pytest.mark.parametrize("stack", STACKS)
def test_azure_takes_every_resource_when_its_parents_are_there(stack, tmp_path):
    service = Service(Store(tmp_path))
    waiting = declared(stack)
    while waiting:
        refused = {}
        for each in waiting:
            inputs = json.loads(json.dumps(each.inputs))
            kind = KINDS[each.type]
            try:
                service.create(kind, fill_path(kind, inputs, SUBSCRIPTION), inputs)
            except errors.Refused as error:
                refused[each.name] = str(error)
        assert len(refused) < len(waiting), refused
        waiting = [each for each in waiting if each.name in refused]


def test_every_resource_type_of_ours_is_known_and_nothing_else():
    ours = {each.type for stack in STACKS for each in declared(stack)}
    assert ours == KINDS.keys()
