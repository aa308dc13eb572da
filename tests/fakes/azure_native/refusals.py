"""Says what Azure refuses that a model of one request cannot know: names, parents, locks, states.

Codes and conditions are the services' own as their documentation and public issues have them; a
message is shortened where it would only be long.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from tests.fakes.azure_native import azure_policy, combinations
from tests.fakes.azure_native.errors import Refused
from tests.fakes.azure_native.kinds import Kind
from tests.fakes.azure_native.store import Record

State = dict[str, dict[str, Record]]

IMPLICIT = re.compile(r"/(blobservices|fileservices)/default$")  # exist with their account
ID = re.compile(r"^/subscriptions/[^/]+/resourcegroups/[^/]+(/providers/.+)?$", re.IGNORECASE)

# Names that are one for the whole world -> what the service answers when one is taken.
GLOBAL = {
    "azure-native:storage:StorageAccount": (
        "StorageAccountAlreadyTaken",
        "The storage account named {} is already taken.",
    ),
    "azure-native:keyvault:Vault": (
        "VaultAlreadyExists",
        "The vault name '{}' is already in use. Vault names are globally unique.",
    ),
    "azure-native:containerregistry:Registry": (
        "AlreadyInUse",
        "The registry DNS name {}.azurecr.io is already in use.",
    ),
}
# What holds its name after its deletion, for a retention.
SOFT_DELETED = {
    "azure-native:keyvault:Vault": (
        "ConflictError",
        "A vault with the same name already exists in deleted state. You need to either recover "
        "or purge existing key vault.",
    ),
    "azure-native:machinelearningservices:Workspace": (
        "Conflict",
        "Soft-deleted workspace exists. Please purge or recover it.",
    ),
}

# learn.microsoft.com, resource-name-rules, where it says more than the models do.
NAMES = {
    "azure-native:resources:ResourceGroup": r"[-\w.()]{0,89}[-\w()]",
    "azure-native:storage:BlobContainer": r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    "azure-native:storage:BlobServiceProperties": "default",
    "azure-native:storage:FileServiceProperties": "default",
    "azure-native:storage:ManagementPolicy": "default",
    "azure-native:keyvault:Vault": r"(?!.*--)[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]",
    "azure-native:managedidentity:UserAssignedIdentity": r"[a-zA-Z0-9][\w-]{2,127}",
    "azure-native:authorization:RoleAssignment": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "azure-native:authorization:ManagementLockByScope": r"[^<>%&:\\?/]{1,90}",
    # At a group's scope (learn.microsoft.com, governance/policy/concepts/assignment-structure).
    "azure-native:authorization:PolicyAssignment": r"[^<>%&:\\?/]{1,64}",
    "azure-native:monitor:ActionGroup": r"[^<>%&:\\?/*]{1,260}",
    "azure-native:monitor:MetricAlert": r"[^<>%&:\\?/*#{}]{1,260}",
    "azure-native:consumption:Budget": r"[\w-]{1,63}",
    "azure-native:machinelearningservices:Compute": r"[a-zA-Z0-9-]{2,16}",
    "azure-native:network:VirtualNetwork": r"[a-zA-Z0-9][\w.-]{0,62}\w",
    "azure-native:network:Subnet": r"[a-zA-Z0-9][\w.-]{0,78}\w",
    "azure-native:network:NetworkSecurityGroup": r"[a-zA-Z0-9][\w.-]{0,78}\w",
    "azure-native:network:PrivateEndpoint": r"[a-zA-Z0-9][\w.-]{0,62}\w",
}


def check(
    state: State, troubles: Record, kind: Kind, resource_id: str, inputs: Record, old: Record | None
) -> None:
    """Raise Refused where the service would; `old` is what is there already."""
    name = resource_id.rpartition("/")[2]
    if not re.fullmatch(NAMES.get(kind.token, ".+"), name):
        raise Refused(400, "InvalidResourceName", f"Resource name {name} is invalid.")
    # Azure Resource Manager's, before it asks the service.
    azure_policy.check(state, kind, resource_id, inputs)
    _check_parents(state, kind, resource_id)
    if old is None:
        _check_names(state, troubles, kind, resource_id)
    elif _region(old["inputs"]) != _region(inputs):
        raise Refused(
            409,
            "InvalidResourceLocation",
            f"The resource '{name}' already exists in location "
            f"'{_region(old['inputs'])}'. A resource with the same name cannot be created in "
            f"location '{_region(inputs)}'.",
        )
    _check_references(state, kind, resource_id, inputs)
    if kind.token == "azure-native:authorization:RoleAssignment":
        _check_assignment(state, troubles, resource_id, inputs, old)
    if kind.token == azure_policy.ASSIGNMENT:
        azure_policy.check_assignment(inputs)
    combinations.check(state, kind, inputs, old["inputs"] if old else None)


def check_delete(state: State, resource_id: str) -> None:
    """Raise Refused for what is locked, or in use by what would stay."""
    key = resource_id.lower()
    _check_locks(state, key, resource_id)
    staying = [each for each in state["resources"].values() if not _is_below(each["id"], key)]
    for record in staying:
        inputs = record["inputs"]
        if record["token"] == "azure-native:network:PrivateEndpoint":
            subnet = str(inputs.get("subnet", {}).get("id", "")).lower()
            if _is_below(subnet, key):
                raise Refused(
                    400,
                    "InUseSubnetCannotBeDeleted",
                    f"Subnet {subnet.rpartition('/')[2]} is in use by {record['id']} and cannot "
                    "be deleted.",
                )
        if record["token"] == "azure-native:network:Subnet":
            group = str(inputs.get("networkSecurityGroup", {}).get("id", "")).lower()
            if group == key:
                raise Refused(
                    400,
                    "InUseNetworkSecurityGroupCannotBeDeleted",
                    f"Network security group {resource_id} cannot be deleted because it is in use "
                    f"by the following resources: {record['id']}.",
                )
    links = f"{key}/virtualnetworklinks/"
    if any(each.startswith(links) for each in state["resources"]):
        raise Refused(
            409, "CannotDeleteResource", "Can not delete resource before nested resources are."
        )


def is_soft_deleted(record: Record) -> bool:
    """Whether a deleted resource keeps its name: a workspace with user-assigned identities only
    does not (learn.microsoft.com, concept-soft-delete)."""
    if record["token"] == "azure-native:machinelearningservices:Workspace":
        return record["inputs"].get("identity", {}).get("type") != "UserAssigned"
    return record["token"] in SOFT_DELETED


def _is_below(resource_id: str, key: str) -> bool:
    return resource_id.lower() == key or resource_id.lower().startswith(f"{key}/")


def _check_parents(state: State, kind: Kind, resource_id: str) -> None:
    """The group, the resource that this is a part of, the scope that this extends."""
    parent = _parent(resource_id)
    if not ID.match(parent) or _exists(state, parent):
        return
    group = "/".join(parent.split("/")[:5])
    if not _exists(state, group):
        name = group.rpartition("/")[2]
        raise Refused(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
    raise Refused(
        404,
        "ParentResourceNotFound",
        f"Failed to perform 'write' on resource(s) of type '{kind.arm_type}', because the parent "
        f"resource '{parent}' could not be found.",
    )


def _parent(resource_id: str) -> str:
    """The id of what has to be there first.

    Of the scope of an extension only the resource itself: what is nested in it (a vault's secret)
    lies with its own service, where ARM does not look.
    """
    above, _, own = resource_id.rpartition("/providers/")
    parts = own.split("/")
    if len(parts) > 3:
        return f"{above}/providers/{'/'.join(parts[:-2])}"
    group, found, scope = above.rpartition("/providers/")
    return f"{group}/providers/{'/'.join(scope.split('/')[:3])}" if found else above


def _exists(state: State, resource_id: str) -> bool:
    """Whether an id is there: on its own, with its parent, or as a subnet within its network."""
    key = IMPLICIT.sub("", resource_id.lower())
    if key in state["resources"]:
        return True
    network, _, subnet = key.rpartition("/subnets/")
    record = state["resources"].get(network)
    inline = record["inputs"].get("subnets", []) if record else []
    return any(str(each.get("name")).lower() == subnet for each in inline)


def _check_names(state: State, troubles: Record, kind: Kind, resource_id: str) -> None:
    name = resource_id.rpartition("/")[2].lower()
    if kind.token in SOFT_DELETED:
        code, message = SOFT_DELETED[kind.token]
        for record in state["deleted"].values():
            if record["token"] == kind.token and _name(record) == name:
                raise Refused(409, code, message)
    if kind.token in GLOBAL:
        code, message = GLOBAL[kind.token]
        live = {_name(each) for each in state["resources"].values() if each["token"] == kind.token}
        if name in live | {each.lower() for each in troubles.get("taken_names", [])}:
            raise Refused(409, code, message.format(name))


def _name(record: Record) -> str:
    return record["id"].rpartition("/")[2].lower()


def _region(inputs: Record) -> str:
    return str(inputs.get("location", "")).replace(" ", "").lower()


def _check_references(state: State, kind: Kind, resource_id: str, inputs: Record) -> None:
    """Whatever a request's body points at by its id has to be there."""
    for place in _ids({key: each for key, each in inputs.items() if key not in kind.beside_body}):
        if not _exists(state, place):
            raise Refused(
                400,
                "InvalidResourceReference",
                f"Resource {place} referenced by resource {resource_id} was not found. Please "
                "make sure that the referenced resource exists.",
            )


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _ids(each)
    elif isinstance(value, list):
        for each in value:
            yield from _ids(each)
    elif isinstance(value, str) and ID.match(value):
        yield value


def _check_locks(state: State, key: str, resource_id: str) -> None:
    """A lock holds what it is on and all below; the lock itself can go.

    Of roles: MicrosoftDocs/azure-docs issue 110791; of containers: azurerm issues 4681 and 30623
    (requests to ARM are refused, those to the blob endpoint are not).
    """
    for record in state["resources"].values():
        if record["token"] != "azure-native:authorization:ManagementLockByScope":
            continue
        scope, lock = record["inputs"]["scope"].lower(), record["id"].lower()
        if lock != key and (_is_below(key, scope) or _is_below(scope, key)):
            raise Refused(
                409,
                "ScopeLocked",
                f"The scope '{resource_id}' cannot perform delete operation because following "
                f"scope(s) are locked: '{record['inputs']['scope']}'. Please remove the lock and "
                "try again.",
            )


def _check_assignment(
    state: State, troubles: Record, resource_id: str, inputs: Record, old: Record | None
) -> None:
    fixed = ("principalId", "roleDefinitionId", "scope")
    if old is not None and any(old["inputs"].get(key) != inputs.get(key) for key in fixed):
        raise Refused(
            400,
            "RoleAssignmentUpdateNotPermitted",
            "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.",
        )
    for record in state["resources"].values():
        same = all(record["inputs"].get(key) == inputs.get(key) for key in fixed)
        if (
            record["token"] == "azure-native:authorization:RoleAssignment"
            and same
            and record["id"].lower() != resource_id.lower()
        ):
            message = "The role assignment already exists. The ID of the existing role assignment"
            existing = record["id"].rpartition("/")[2].replace("-", "")
            raise Refused(409, "RoleAssignmentExists", f"{message} is {existing}.")
    if not _is_principal(state, troubles, inputs):
        principal = inputs["principalId"].replace("-", "")
        raise Refused(
            400,
            "PrincipalNotFound",
            f"Principal {principal} does not exist in the directory. If you are creating this "
            "principal and then immediately assigning a role, this error might be related to a "
            "replication delay. In this case, set the role assignment principalType property.",
        )


def _is_principal(state: State, troubles: Record, inputs: Record) -> bool:
    """Whether the directory knows it; one that is told its type is taken on trust, as documented
    for the replication delay (learn.microsoft.com, role-based-access-control/troubleshooting)."""
    if inputs.get("principalType") in {"ServicePrincipal", "Group", "User"}:
        return True
    made = {
        each["outputs"]["principalId"]: each["created"]
        for each in state["resources"].values()
        if each["token"] == "azure-native:managedidentity:UserAssignedIdentity"
    }
    created = made.get(inputs["principalId"])
    return created is not None and time.time() - created >= troubles.get("replication_s", 0.0)
