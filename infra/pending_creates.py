"""Adopts creates that were cut off, so that a refresh looks whether Azure has made the resource.

    python -P -m infra.pending_creates find|adopt|declare < JSON

When `pulumi` is killed while Azure makes a resource, its record says no more than "creating".
To forget that would leave a resource that nobody owns, and whose name the provider would refuse to
create at the next `up`. Our names are explicit, so the id is known: the resource goes into the
record as if it were made, and a refresh takes it out again where it was not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

PREFIX = "azure-native:"
PLATFORM = "trainyard:cloud:Platform"
SUBSCRIPTION = re.compile(r"/subscriptions/([^/]+)")
GROUP = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
# The last part of a type's token -> where Azure Resource Manager has it; names are inputs'.
PATHS = {
    "resources:ResourceGroup": GROUP,
    "managedidentity:UserAssignedIdentity": "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
    "storage:StorageAccount": "Microsoft.Storage/storageAccounts/{accountName}",
    "storage:BlobServiceProperties": "Microsoft.Storage/storageAccounts/{accountName}/blobServices/{blobServicesName}",
    "storage:FileServiceProperties": "Microsoft.Storage/storageAccounts/{accountName}/fileServices/{fileServicesName}",
    "storage:BlobContainer": "Microsoft.Storage/storageAccounts/{accountName}/blobServices/default/containers/{containerName}",
    "storage:ManagementPolicy": "Microsoft.Storage/storageAccounts/{accountName}/managementPolicies/{managementPolicyName}",
    "keyvault:Vault": "Microsoft.KeyVault/vaults/{vaultName}",
    "containerregistry:Registry": "Microsoft.ContainerRegistry/registries/{registryName}",
    "operationalinsights:Workspace": "Microsoft.OperationalInsights/workspaces/{workspaceName}",
    "applicationinsights:Component": "Microsoft.Insights/components/{resourceName}",
    "monitor:DiagnosticSetting": "{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "network:VirtualNetwork": "Microsoft.Network/virtualNetworks/{virtualNetworkName}",
    "network:Subnet": "Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
    "network:NetworkSecurityGroup": "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
    "network:PrivateEndpoint": "Microsoft.Network/privateEndpoints/{privateEndpointName}",
    "network:PrivateDnsZoneGroup": "Microsoft.Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}",
    "privatedns:PrivateZone": "Microsoft.Network/privateDnsZones/{privateZoneName}",
    "privatedns:VirtualNetworkLink": "Microsoft.Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}",
    "authorization:RoleAssignment": "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
    "authorization:ManagementLockByScope": "{scope}/providers/Microsoft.Authorization/locks/{lockName}",
    "authorization:PolicyAssignment": "{scope}/providers/Microsoft.Authorization/policyAssignments/{policyAssignmentName}",
    "monitor:ActionGroup": "Microsoft.Insights/actionGroups/{actionGroupName}",
    "monitor:MetricAlert": "Microsoft.Insights/metricAlerts/{ruleName}",
    "consumption:Budget": "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "machinelearningservices:Workspace": "Microsoft.MachineLearningServices/workspaces/{workspaceName}",
    "machinelearningservices:Datastore": "Microsoft.MachineLearningServices/workspaces/{workspaceName}/datastores/{name}",
    "machinelearningservices:Compute": "Microsoft.MachineLearningServices/workspaces/{workspaceName}/computes/{computeName}",
}


def main(argv: Sequence[str]) -> int:
    """Read a record (an exported deployment) as JSON, print what `launch env repair` goes on with.

    `find` prints the unsettled operations, `adopt` and `declare` the record that is to be imported;
    `declare` reads {"record": ..., "operations": ...}.
    """
    given: dict[str, Any] = json.load(sys.stdin.buffer)
    match argv:
        case ["find"]:
            answer: object = find_unsettled(given)
        case ["adopt"]:
            answer = adopt(given)
        case ["declare"]:
            answer = declare_again(given["record"], given["operations"])
        case _:
            print(__doc__, file=sys.stderr)  # noqa: T201
            return 2
    json.dump(answer, sys.stdout)
    return 0


def adopt(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Turn creates that were cut off into resources, where their id is known.

    Of Pulumi's exported deployment; creates of other providers stay pending.
    """
    resources = list(cast("list[dict[str, Any]]", deployment.get("resources") or []))
    operations = cast("list[dict[str, Any]]", deployment.get("pending_operations") or [])
    pending: list[dict[str, Any]] = []
    subscription = _find_subscription(deployment)
    for operation in operations:
        resource: dict[str, Any] = operation["resource"]
        identifier = resource_id(resource, subscription)
        if operation["type"] != "creating" or identifier is None:
            pending.append(operation)
        else:
            _insert(resources, {**resource, "id": identifier, "outputs": {}})
    if len(pending) == len(operations):
        return dict(deployment)
    return {**deployment, "resources": resources, "pending_operations": pending}


def declare_again(
    deployment: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Restore the declared inputs of what was adopted, without the tags.

    The refresh has added to them all that Azure fills in by itself; that a program does not declare
    those could look like a replacement. The tags that are missing have the next `up` send the whole
    declaration in place, to what may have been made by half.
    """
    declared = {
        each["resource"]["urn"]: {
            name: value
            for name, value in each["resource"].get("inputs", {}).items()
            if name != "tags"
        }
        for each in operations
        if each["type"] == "creating" and str(each["resource"].get("type")).startswith(PREFIX)
    }
    resources = [
        each
        if each.get("delete") or each["urn"] not in declared
        else {**each, "inputs": declared[each["urn"]]}
        for each in cast("list[dict[str, Any]]", deployment.get("resources") or [])
    ]
    return {**deployment, "resources": resources} if declared else dict(deployment)


def find_unsettled(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List operations that were cut off, and adoptions that no refresh has checked since."""
    return [
        *cast("list[dict[str, Any]]", deployment.get("pending_operations") or []),
        *(
            {"type": "creating", "resource": each}
            for each in cast("list[dict[str, Any]]", deployment.get("resources") or [])
            if str(each.get("type")).startswith(PREFIX) and not each.get("outputs")
        ),
    ]


def resource_id(resource: Mapping[str, Any], subscription: str | None) -> str | None:
    """Build the id that Azure gives to a declared resource; None where it cannot be known."""
    kind = str(resource.get("type", ""))
    path = PATHS.get(kind.removeprefix(PREFIX)) if kind.startswith(PREFIX) else None
    if path is None:
        return None
    if not path.startswith(("/", "{")):
        path = f"{GROUP}/providers/{path}"
    inputs = {"subscriptionId": subscription, **resource.get("inputs", {})}
    names = {name: inputs.get(name) for name in re.findall(r"{(\w+)}", path)}
    if not all(isinstance(value, str) and value for value in names.values()):
        return None
    return "/" + path.format_map(names).lstrip("/")


def _find_subscription(deployment: Mapping[str, Any]) -> str | None:
    """Read the subscription from the platform's inputs, else from the first id or scope."""
    operations = cast("list[dict[str, Any]]", deployment.get("pending_operations") or [])
    resources = [
        *cast("list[dict[str, Any]]", deployment.get("resources") or []),
        *(operation["resource"] for operation in operations),
    ]
    for resource in resources:
        inputs: dict[str, Any] = resource.get("inputs") or {}
        if resource.get("type") == PLATFORM and isinstance(inputs.get("subscriptionId"), str):
            return inputs["subscriptionId"]
    for resource in resources:
        inputs = resource.get("inputs") or {}
        for text in (resource.get("id"), inputs.get("scope"), inputs.get("resourceUri")):
            found = SUBSCRIPTION.match(text) if isinstance(text, str) else None
            if found:
                return found[1]
    return None


def _insert(resources: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """Insert a resource at its place, before one of the same name that it was to replace.

    What depends on the old one finds the new one before it; the old one is still to be deleted,
    unless it was deleted before this one's create began.
    """
    for index, each in enumerate(resources):
        if each["urn"] == made["urn"] and not each.get("delete"):
            old = [] if each.get("pendingReplacement") else [{**each, "delete": True}]
            resources[index : index + 1] = [made, *old]
            return
    resources.append(made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
