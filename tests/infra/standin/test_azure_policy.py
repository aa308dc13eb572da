"""The policies that a stack assigns refuse what is made by hand, and nothing of the stack itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.azure_native.azure_policy import ASSIGNMENT, definitions
from tests.fakes.azure_native.errors import Refused
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.fakes.azure_native.service import Service
from tests.fakes.azure_native.store import Store
from tests.infra.cloud_declared import STACKS, SUBSCRIPTION, declare_stack

GROUP = "azure-native:resources:ResourceGroup"
COMPUTE = "azure-native:machinelearningservices:Compute"
# What somebody makes by hand -> the type, what differs from the stack's own, the policy against it.
BY_HAND: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a cluster with SSH": (
        "Compute",
        "computeName",
        {"properties.disableLocalAuth": False},
        "compute-no-ssh",
    ),
    "a notebook machine that never stops": (
        "Compute",
        "computeName",
        {"properties.computeType": "ComputeInstance"},
        "compute-instance-idle",
    ),
    "an account with public blobs": (
        "StorageAccount",
        "accountName",
        {"allowBlobPublicAccess": True},
        "storage-no-public-blobs",
    ),
    "an account with keys": (
        "StorageAccount",
        "accountName",
        {"allowSharedKeyAccess": True},
        "storage-no-shared-key",
    ),
    "an open account": (
        "StorageAccount",
        "accountName",
        {"networkRuleSet.defaultAction": "Allow"},
        "storage-firewall",
    ),
    "a public account": (
        "StorageAccount",
        "accountName",
        {"publicNetworkAccess": "Enabled"},
        "storage-private",
    ),
    "an open vault": (
        "Vault",
        "vaultName",
        {
            "properties.networkAcls.defaultAction": "Allow",
            "properties.publicNetworkAccess": "Enabled",
        },
        "vault-firewall",
    ),
    "a public vault": (
        "Vault",
        "vaultName",
        {"properties.publicNetworkAccess": "Enabled"},
        "vault-private",
    ),
    "a vault of access policies": (
        "Vault",
        "vaultName",
        {"properties.enableRbacAuthorization": False},
        "vault-roles",
    ),
    "a vault that can be purged": (
        "Vault",
        "vaultName",
        {"properties.enablePurgeProtection": None},
        "vault-no-purge",
    ),
    "a registry with a password": (
        "Registry",
        "registryName",
        {"adminUserEnabled": True},
        "registry-no-admin",
    ),
    "a registry for everybody": (
        "Registry",
        "registryName",
        {"anonymousPullEnabled": True},
        "registry-no-anonymous",
    ),
    "a public registry": (
        "Registry",
        "registryName",
        {"publicNetworkAccess": "Enabled"},
        "registry-private",
    ),
    "a workspace with Azure's own identity": (
        "machinelearningservices:Workspace",
        "workspaceName",
        {"primaryUserAssignedIdentity": None},
        "workspace-identity",
    ),
    "a public workspace": (
        "machinelearningservices:Workspace",
        "workspaceName",
        {"publicNetworkAccess": "Enabled"},
        "workspace-private",
    ),
    "a workspace whose nodes reach the internet": (
        "machinelearningservices:Workspace",
        "workspaceName",
        {"managedNetwork.isolationMode": "AllowInternetOutbound"},
        "workspace-outbound",
    ),
}


class Assigned:
    """A group that has the assignments of a stack alone."""

    def __init__(self, folder: Path, stack: str) -> None:
        self._service = Service(Store(folder))
        self.declared = [each for each in declare_stack(stack) if each.type in KINDS]
        for each in self.declared:
            if each.type in {GROUP, ASSIGNMENT}:
                self.create(each.type, each.inputs)

    def create(self, token: str, inputs: dict[str, Any]) -> None:
        resource_id = fill_path(KINDS[token], inputs, SUBSCRIPTION)
        self._service.create(KINDS[token], resource_id, inputs)

    def policy_against(self, token: str, inputs: dict[str, Any]) -> str | None:
        """The assignment that refuses a resource; other refusals come after the policies."""
        try:
            self.create(token, inputs)
        except Refused as refused:
            if refused.code == "RequestDisallowedByPolicy":
                return str(refused).partition("/policyAssignments/trainyard-")[2].partition('"')[0]
        return None


@pytest.mark.parametrize("made", BY_HAND)
def test_what_is_made_by_hand_in_tests_group_is_refused(tmp_path: Path, made: str) -> None:
    kind, name, changes, policy = BY_HAND[made]
    group = Assigned(tmp_path, "test")
    ours = next(each for each in group.declared if each.type.endswith(f":{kind}"))
    theirs = _changed(ours.inputs, {name: "byhand", **changes})
    assert group.policy_against(ours.type, theirs) == policy
    # dev reports and refuses nothing.
    (tmp_path / "dev").mkdir()
    dev = Assigned(tmp_path / "dev", "dev")
    theirs["resourceGroupName"] = "rg-yard-dev"
    assert dev.policy_against(ours.type, theirs) is None


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_is_refused_by_none_of_its_own_policies(tmp_path: Path, stack: str) -> None:
    group = Assigned(tmp_path, stack)
    judged = [each for each in group.declared if each.type not in {GROUP, ASSIGNMENT}]
    assert [group.policy_against(each.type, each.inputs) for each in judged] == [None] * len(judged)


@pytest.mark.parametrize("stack", STACKS)
def test_each_assignment_is_of_a_built_in_policy_by_its_own_name(stack: str) -> None:
    assigned = [each.inputs for each in declare_stack(stack) if each.type == ASSIGNMENT]
    assert {each["policyDefinitionId"].rpartition("/")[2]: each["displayName"] for each in assigned}
    for each in assigned:
        definition = definitions()[each["policyDefinitionId"].rpartition("/")[2]]
        assert each["displayName"] == definition["displayName"]
        effect = "Audit" if stack == "dev" else "Deny"
        assert each["parameters"]["effect"] == {"value": effect}


def test_an_effect_that_a_policy_does_not_have_is_refused(tmp_path: Path) -> None:
    group = Assigned(tmp_path, "test")
    (ours, *_) = (each for each in group.declared if each.type == ASSIGNMENT)
    # Computes in a subnet: reports alone.
    definition = (
        "/providers/Microsoft.Authorization/policyDefinitions/7804b5c7-01dc-4723-969b-ae300cc07ff1"
    )
    wrong = ours.inputs | {"policyAssignmentName": "x", "policyDefinitionId": definition}
    with pytest.raises(Refused) as refused:
        group.create(ASSIGNMENT, wrong)
    assert refused.value.code == "PolicyParameterValueNotAllowed"


def _changed(inputs: Any, changes: dict[str, Any]) -> dict[str, Any]:
    copied = {
        key: _changed(each, {}) if isinstance(each, dict) else each for key, each in inputs.items()
    }
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = copied
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
        if value is None:
            del inner[last]
    return copied
