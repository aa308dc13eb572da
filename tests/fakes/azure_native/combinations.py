"""Says which values Azure refuses together, or refuses to change, though a model allows each."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from tests.fakes.azure_native.errors import Refused
from tests.fakes.azure_native.kinds import Kind
from tests.fakes.azure_native.store import Record

State = dict[str, dict[str, Record]]


def check(state: State, kind: Kind, inputs: Record, old: Record | None) -> None:
    """Raise Refused where the service would; `old` are the inputs of what is there already."""
    rule = RULES.get(kind.token)
    if rule is not None:
        rule(state, inputs, old)


def _refuse(code: str, message: str) -> None:
    raise Refused(400, code, message)


def _account(state: State, inputs: Record, old: Record | None) -> None:
    for each in inputs.get("networkRuleSet", {}).get("ipRules", []):
        network = ipaddress.ip_network(each["iPAddressOrRange"], strict=False)
        # learn.microsoft.com, storage-network-security: no /31, no /32 as a range, none private.
        if network.is_private or ("/" in each["iPAddressOrRange"] and network.prefixlen > 30):
            _refuse("InvalidValuesForRequestParameters", f"ipRules: {each['iPAddressOrRange']}")
    if old is not None:
        key = "requireInfrastructureEncryption"
        if _of(old, "encryption").get(key) != _of(inputs, "encryption").get(key):
            _refuse("InfrastructureEncryptionCannotBeChanged", f"{key} is set at creation only.")
        if old.get("kind") != inputs.get("kind") and inputs.get("kind") != "StorageV2":
            _refuse("AccountPropertyCannotBeUpdated", "The property 'kind' cannot be updated.")


def _blobs(state: State, inputs: Record, old: Record | None) -> None:
    account = _sibling(state, "azure-native:storage:StorageAccount", inputs, "accountName")
    if inputs.get("isVersioningEnabled") and account.get("isHnsEnabled"):
        _refuse("FeatureNotSupportedForAccount", "Versioning: not for hierarchical namespaces.")
    kept = inputs.get("deleteRetentionPolicy", {})
    restored = inputs.get("restorePolicy", {})
    if restored.get("enabled") and not restored.get("days", 0) < kept.get("days", 0):
        _refuse("InvalidRestorePolicy", "restorePolicy.days must be below the retention's.")


def _vault(state: State, inputs: Record, old: Record | None) -> None:
    properties = inputs["properties"]
    for name in ("enablePurgeProtection", "enableSoftDelete"):
        if properties.get(name) is False:
            _refuse(
                "BadRequest",
                f'The property "{name}" cannot be set to false. It is an irreversible action.',
            )
    if old is not None:
        before = old["properties"]
        if before.get("enablePurgeProtection") and not properties.get("enablePurgeProtection"):
            return  # left out is left as it is
        name = "softDeleteRetentionInDays"
        if before.get(name) != properties.get(name):
            _refuse(
                "BadRequest",
                f'The property "{name}" has been set already and it can\'t be modified.',
            )


def _registry(state: State, inputs: Record, old: Record | None) -> None:
    if inputs["sku"]["name"] == "Premium":
        return
    if old is not None and _has_endpoints(state, inputs):
        # As below; that they cannot stay is concluded from it, not documented.
        _refuse("SkuNotSupported", "Private endpoints are supported by the tier Premium only.")
    policies = inputs.get("policies", {})
    rules = {
        "networkRuleSet": "networkRuleSet" in inputs,
        "publicNetworkAccess": inputs.get("publicNetworkAccess") == "Disabled",
        "zoneRedundancy": inputs.get("zoneRedundancy") == "Enabled",
        "dataEndpointEnabled": inputs.get("dataEndpointEnabled") is True,
        "encryption": _of(inputs, "encryption").get("status") == "enabled",
        "retentionPolicy": _of(policies, "retentionPolicy").get("status") == "enabled",
        "exportPolicy": _of(policies, "exportPolicy").get("status") == "disabled",
        "trustPolicy": _of(policies, "trustPolicy").get("status") == "enabled",
    }
    # learn.microsoft.com, container-registry-skus: features of the tier Premium.
    for name, wanted in rules.items():
        if wanted:
            _refuse("SkuNotSupported", f"{name} is supported by the tier Premium only.")


def _has_endpoints(state: State, registry: Record) -> bool:
    """Whether a private endpoint leads to a registry; its name is the world's only one."""
    ending = f"/registries/{registry['registryName']}".lower()
    return any(
        str(connection["privateLinkServiceId"]).lower().endswith(ending)
        for each in state["resources"].values()
        for connection in each["inputs"].get("privateLinkServiceConnections", [])
    )


def _workspace(state: State, inputs: Record, old: Record | None) -> None:
    identity = inputs.get("identity", {})
    ids = [each.lower() for each in identity.get("userAssignedIdentities", [])]
    primary = inputs.get("primaryUserAssignedIdentity")
    if primary is not None and primary.lower() not in ids:
        _refuse("ValidationError", "primaryUserAssignedIdentity is none of the identities.")
    if identity.get("type") == "UserAssigned" and primary is None:
        _refuse("ValidationError", "primaryUserAssignedIdentity is required.")
    if old is not None:
        # azure-ai-ml 1.35.2, operations/_workspace_operations_base.py: leaves them out for that.
        for name, rule in _of(_of(inputs, "managedNetwork"), "outboundRules").items():
            if rule.get("category") == "Required":
                _refuse("BadRequest", f"The outbound rule {name} is Azure's own.")
        # By the descriptions in workspaceRP.json; hbiWorkspace by concept-data-encryption.
        for name in ("storageAccount", "keyVault", "hbiWorkspace"):
            if str(old.get(name)).lower() != str(inputs.get(name)).lower():
                _refuse("BadRequest", f"{name} of a workspace cannot be changed.")


def _compute(state: State, inputs: Record, old: Record | None) -> None:
    token = "azure-native:machinelearningservices:Workspace"
    workspace = _sibling(state, token, inputs, "workspaceName")
    mode = _of(workspace, "managedNetwork").get("isolationMode", "Disabled")
    properties = _of(inputs["properties"], "properties")
    if "subnet" in properties and mode != "Disabled":
        # learn.microsoft.com, how-to-managed-network
        _refuse("BadRequest", "A workspace with a managed network takes no subnet of yours.")
    hidden = properties.get("enableNodePublicIp") is False
    if hidden and mode == "Disabled" and "subnet" not in properties:
        _refuse("BadRequest", "Nodes without a public IP need a virtual network.")
    scale = _of(properties, "scaleSettings")
    if scale.get("minNodeCount", 0) > scale["maxNodeCount"]:
        _refuse("BadRequest", "minNodeCount is above maxNodeCount.")
    if str(_of(inputs, "identity").get("type")).replace(" ", "") == "SystemAssigned,UserAssigned":
        # learn.microsoft.com, how-to-identity-based-service-authentication
        _refuse("BadRequest", "A cluster takes one system identity or several of yours, not both.")


def _budget(state: State, inputs: Record, old: Record | None) -> None:
    if inputs["timePeriod"]["startDate"][8:10] != "01":
        _refuse("400", "Start date should be the first of the month.")
    if len(inputs.get("notifications", {})) > 5:
        _refuse("400", "A budget has at most five notifications.")
    if old is not None and old["timePeriod"].get("startDate") != inputs["timePeriod"]["startDate"]:
        _refuse("400", "The start date of a budget cannot be changed.")


def _endpoint(state: State, inputs: Record, old: Record | None) -> None:
    for connection in inputs.get("privateLinkServiceConnections", []):
        target = state["resources"][connection["privateLinkServiceId"].lower()]
        groups = GROUPS.get(target["token"], set())
        wrong = set(connection.get("groupIds", [])) - groups
        if wrong or len(connection.get("groupIds", [])) != 1:
            _refuse(
                "InvalidGroupIdsForPrivateEndpoint",
                f"{sorted(connection.get('groupIds', []))}: the target has {sorted(groups)}.",
            )
        if _of(target["inputs"], "sku").get("name") in {"Basic", "Standard"}:
            # A vault's sku is under its properties, an account's has other names: a registry.
            _refuse("PrivateEndpointNotSupported", "Registries: tier Premium only.")


def _diagnostics(state: State, inputs: Record, old: Record | None) -> None:
    kept = [name for name in ("workspaceId", "storageAccountId") if inputs.get(name)]
    if not kept:
        _refuse("BadRequest", "At least one data sink needs to be specified.")
    target = inputs["resourceUri"].lower()
    known = next((each for part, each in CATEGORIES.items() if part in target), None)
    for entry in inputs.get("logs", []):
        name = entry.get("category")
        if known is not None and name is not None and name not in known:
            _refuse("BadRequest", f"Category '{name}' is not supported.")


def _zone(state: State, inputs: Record, old: Record | None) -> None:
    if inputs.get("location", "global").lower() != "global":
        _refuse("LocationNotAvailableForResourceType", "Private zones and links are global.")


def _link(state: State, inputs: Record, old: Record | None) -> None:
    """Refuse a second zone of a name in one network (learn.microsoft.com, private-dns-virtual-
    network-links; the text as public reports have it)."""
    _zone(state, inputs, old)
    name, target = inputs["privateZoneName"], inputs["virtualNetwork"]["id"].lower()
    for record in state["resources"].values():
        if record["token"] != "azure-native:privatedns:VirtualNetworkLink" or old is not None:
            continue
        other = record["inputs"]
        same_network = _of(other, "virtualNetwork").get("id", "").lower() == target
        if same_network and other["privateZoneName"].lower() == name.lower():
            _refuse(
                "BadRequest",
                "A virtual network cannot be linked to multiple zones with overlapping namespaces. "
                f"You tried to link virtual network with '{name}' and '{name}' zones.",
            )


def _sibling(state: State, token: str, inputs: Record, parameter: str) -> Record:
    """The inputs of the resource that this one is a part of."""
    name = str(inputs[parameter]).lower()
    for record in state["resources"].values():
        if record["token"] == token and record["id"].lower().endswith(f"/{name}"):
            return record["inputs"]
    return {}


def _of(values: Record, name: str) -> dict[str, Any]:
    return values.get(name) or {}


# learn.microsoft.com, private-endpoint-overview: what a target offers.
GROUPS = {
    "azure-native:storage:StorageAccount": {"blob", "dfs", "file", "queue", "table", "web"},
    "azure-native:keyvault:Vault": {"vault"},
    "azure-native:containerregistry:Registry": {"registry"},
    "azure-native:machinelearningservices:Workspace": {"amlworkspace"},
}

# learn.microsoft.com, azure-monitor/reference/supported-logs; a part of the target's id -> logs.
CATEGORIES = {
    "/blobservices/default": {"StorageRead", "StorageWrite", "StorageDelete"},
    "/fileservices/default": {"StorageRead", "StorageWrite", "StorageDelete"},
    "/microsoft.keyvault/vaults/": {"AuditEvent", "AzurePolicyEvaluationDetails"},
    "/microsoft.containerregistry/registries/": {
        "ContainerRegistryRepositoryEvents",
        "ContainerRegistryLoginEvents",
    },
    "/microsoft.machinelearningservices/workspaces/": {
        "AmlComputeClusterEvent",
        "AmlComputeClusterNodeEvent",
        "AmlComputeCpuGpuUtilization",
        "AmlComputeInstanceEvent",
        "AmlComputeJobEvent",
        "AmlDataLabelEvent",
        "AmlDataSetEvent",
        "AmlDataStoreEvent",
        "AmlDeploymentEvent",
        "AmlEnvironmentEvent",
        "AmlInferencingEvent",
        "AmlModelsEvent",
        "AmlPipelineEvent",
        "AmlRunEvent",
        "AmlRunStatusChangedEvent",
    },
}

RULES: dict[str, Callable[[State, Record, Record | None], None]] = {
    "azure-native:storage:StorageAccount": _account,
    "azure-native:storage:BlobServiceProperties": _blobs,
    "azure-native:keyvault:Vault": _vault,
    "azure-native:containerregistry:Registry": _registry,
    "azure-native:machinelearningservices:Workspace": _workspace,
    "azure-native:machinelearningservices:Compute": _compute,
    "azure-native:consumption:Budget": _budget,
    "azure-native:network:PrivateEndpoint": _endpoint,
    "azure-native:privatedns:PrivateZone": _zone,
    "azure-native:privatedns:VirtualNetworkLink": _link,
    "azure-native:monitor:DiagnosticSetting": _diagnostics,
}
