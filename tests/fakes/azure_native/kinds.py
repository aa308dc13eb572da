"""Says of each resource type that our stacks use where it lives in Azure and what it answers with.

Paths, names, API versions and `create_only` (what the provider itself replaces a resource for, so
that the service is never asked) are held against references that are not ours, which
tests/infra/standin names (test_references.py, test_create_only.py). A size and a priority of an
AmlCompute are in none of them. What a resource answers with is judged by Microsoft's models (names,
types, known words, and that it is the service's to say: test_answers.py); within them the values are ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

GROUP = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"

SCOPES = {"scope", "resourceUri"}  # whole ids


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One resource type: how a declaration becomes a request, and what comes back."""

    token: str
    path: str  # of the resource's id, with the SDK's names of what is filled in
    api_version: str
    model: str  # the judge's: WHEEL:CLASS
    answer: str | None = None  # of what comes back, where that is another class
    create_only: tuple[str, ...] = ()
    outputs: dict[str, str] = field(default_factory=dict)  # {id}, {name}, {guid}, {location} ...
    query: tuple[str, ...] = ()  # inputs that travel in the request's address
    singleton: bool = False  # exists with its parent; deleted by being reset
    is_typed: bool = True  # its answer says its ARM type

    @property
    def parameters(self) -> list[str]:
        """What the path takes from the inputs; any change of it replaces the resource."""
        return [name for name in re.findall(r"{(\w+)}", self.path) if name != "subscriptionId"]

    @property
    def arm_type(self) -> str:
        """`Microsoft.Storage/storageAccounts/blobServices/containers`."""
        if "/providers/" not in self.path:
            return "Microsoft.Resources/resourceGroups"
        namespace, *rest = self.path.rpartition("/providers/")[2].split("/")
        return "/".join([namespace, *rest[::2]])

    @property
    def beside_body(self) -> set[str]:
        """The inputs that are no part of the request's body."""
        return {*self.parameters, *self.query, "azureApiVersion"}

    @property
    def told(self) -> set[str]:
        """Where the answer has what the service alone sets."""
        return {"name", *self.outputs} | ({"type"} if self.is_typed else set())

    @property
    def replacing(self) -> set[str]:
        return {*self.parameters, *self.create_only}


STORED = {"provisioningState": "Succeeded"}

KINDS = {
    kind.token: kind
    for kind in (
        Kind(
            token="azure-native:resources:ResourceGroup",
            path=GROUP,
            api_version="2024-03-01",
            model="resources:ResourceGroup",
            create_only=("location",),
        ),
        Kind(
            token="azure-native:storage:StorageAccount",
            path=GROUP + "/providers/Microsoft.Storage/storageAccounts/{accountName}",
            api_version="2024-01-01",
            model="storage:StorageAccountCreateParameters",
            answer="storage:StorageAccount",
            create_only=("isHnsEnabled", "location"),
            outputs={
                **STORED,
                "primaryLocation": "{location}",
                "statusOfPrimary": "available",
                "creationTime": "2026-01-01T00:00:00.0000000Z",
                "primaryEndpoints.blob": "https://{name}.blob.core.windows.net/",
                "primaryEndpoints.dfs": "https://{name}.dfs.core.windows.net/",
                "primaryEndpoints.file": "https://{name}.file.core.windows.net/",
                "primaryEndpoints.queue": "https://{name}.queue.core.windows.net/",
                "primaryEndpoints.table": "https://{name}.table.core.windows.net/",
            },
        ),
        Kind(
            token="azure-native:storage:BlobContainer",
            path=GROUP
            + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
            + "/blobServices/default/containers/{containerName}",
            api_version="2024-01-01",
            model="storage:BlobContainer",
            outputs={"leaseState": "Available", "leaseStatus": "Unlocked"},
        ),
        Kind(
            token="azure-native:storage:BlobServiceProperties",
            path=GROUP
            + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
            + "/blobServices/{blobServicesName}",
            api_version="2024-01-01",
            model="storage:BlobServiceProperties",
            singleton=True,
        ),
        Kind(
            token="azure-native:storage:FileServiceProperties",
            path=GROUP
            + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
            + "/fileServices/{fileServicesName}",
            api_version="2024-01-01",
            model="storage:FileServiceProperties",
            singleton=True,
        ),
        Kind(
            token="azure-native:storage:ManagementPolicy",
            path=GROUP
            + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
            + "/managementPolicies/{managementPolicyName}",
            api_version="2024-01-01",
            model="storage:ManagementPolicy",
            outputs={"lastModifiedTime": "2026-01-01T00:00:00.0000000Z"},
        ),
        Kind(
            token="azure-native:keyvault:Vault",
            path=GROUP + "/providers/Microsoft.KeyVault/vaults/{vaultName}",
            api_version="2024-11-01",
            model="keyvault:VaultCreateOrUpdateParameters",
            answer="keyvault:Vault",
            outputs={
                "properties.vaultUri": "https://{name}.vault.azure.net/",
                "properties.provisioningState": "Succeeded",
            },
        ),
        Kind(
            token="azure-native:containerregistry:Registry",
            path=GROUP + "/providers/Microsoft.ContainerRegistry/registries/{registryName}",
            api_version="2023-01-01-preview",
            model="containerregistry:Registry",
            create_only=("location",),
            outputs={**STORED, "loginServer": "{name}.azurecr.io"},
        ),
        Kind(
            token="azure-native:operationalinsights:Workspace",
            path=GROUP + "/providers/Microsoft.OperationalInsights/workspaces/{workspaceName}",
            api_version="2023-09-01",
            model="loganalytics:Workspace",
            create_only=("location",),
            outputs={**STORED, "customerId": "{guid}"},
        ),
        Kind(
            token="azure-native:applicationinsights:Component",
            path=GROUP + "/providers/Microsoft.Insights/components/{resourceName}",
            api_version="2020-02-02",
            model="applicationinsights:ApplicationInsightsComponent",
            create_only=("applicationType", "location"),
            outputs={
                **STORED,
                "appId": "{guid}",
                "applicationId": "{name}",
                # Passwords for sending telemetry.
                "instrumentationKey": "{guid2}",
                "connectionString": "InstrumentationKey={guid2};EndpointSuffix={location}",
            },
        ),
        Kind(
            token="azure-native:monitor:DiagnosticSetting",
            path="/{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
            api_version="2021-05-01-preview",
            model="monitor:DiagnosticSettingsResource",
        ),
        Kind(
            token="azure-native:managedidentity:UserAssignedIdentity",
            path=GROUP
            + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
            api_version="2023-01-31",
            model="msi:Identity",
            create_only=("location",),
            outputs={
                "principalId": "{guid}",
                "clientId": "{guid2}",
                "tenantId": "{tenant}",
            },
        ),
        Kind(
            token="azure-native:authorization:RoleAssignment",
            path="/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
            api_version="2022-04-01",
            model="authorization:RoleAssignmentCreateParameters",
            answer="authorization:RoleAssignment",
            create_only=("principalId", "scope"),
            outputs={"createdOn": "2026-01-01T00:00:00.0000000Z"},
        ),
        Kind(
            token="azure-native:machinelearningservices:Workspace",
            path=GROUP + "/providers/Microsoft.MachineLearningServices/workspaces/{workspaceName}",
            api_version="2025-12-01",
            model="machinelearning:Workspace",
            outputs={
                **STORED,
                "workspaceId": "{guid}",
                "tenantId": "{tenant}",
                "discoveryUrl": "https://{location}.api.azureml.ms/discovery",
                "mlFlowTrackingUri": "azureml://{location}.api.azureml.ms/mlflow/v1.0{id}",
            },
        ),
        Kind(
            token="azure-native:machinelearningservices:Datastore",
            path=GROUP
            + "/providers/Microsoft.MachineLearningServices/workspaces/{workspaceName}"
            + "/datastores/{name}",
            api_version="2025-12-01",
            model="machinelearning:Datastore",
            create_only=(
                "properties.accountName",
                "properties.containerName",
                "properties.endpoint",
                "properties.protocol",
                "properties.serviceDataAccessAuthIdentity",
            ),
            query=("skipValidation",),
        ),
        Kind(
            token="azure-native:machinelearningservices:Compute",
            path=GROUP
            + "/providers/Microsoft.MachineLearningServices/workspaces/{workspaceName}"
            + "/computes/{computeName}",
            api_version="2025-12-01",
            model="machinelearning:ComputeResource",
            create_only=("properties.computeLocation", "properties.disableLocalAuth"),
            outputs={
                "properties.provisioningState": "Succeeded",
                "properties.isAttachedCompute": False,
                "properties.properties.allocationState": "Steady",
                "properties.properties.currentNodeCount": 0,
                "properties.properties.targetNodeCount": 0,
            },
        ),
        Kind(
            token="azure-native:consumption:Budget",
            path="/{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
            api_version="2024-08-01",
            model="consumption:Budget",
            outputs={"currentSpend.amount": 0, "currentSpend.unit": "EUR"},
        ),
        Kind(
            token="azure-native:network:VirtualNetwork",
            path=GROUP + "/providers/Microsoft.Network/virtualNetworks/{virtualNetworkName}",
            api_version="2024-05-01",
            model="network:VirtualNetwork",
            create_only=("location",),
            outputs={**STORED, "resourceGuid": "{guid}"},
        ),
        Kind(
            token="azure-native:network:Subnet",
            path=GROUP
            + "/providers/Microsoft.Network/virtualNetworks/{virtualNetworkName}"
            + "/subnets/{subnetName}",
            api_version="2024-05-01",
            model="network:Subnet",
            outputs=STORED,
        ),
        Kind(
            token="azure-native:network:NetworkSecurityGroup",
            path=GROUP
            + "/providers/Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
            api_version="2024-05-01",
            model="network:NetworkSecurityGroup",
            outputs={**STORED, "resourceGuid": "{guid}"},
        ),
        Kind(
            token="azure-native:network:PrivateEndpoint",
            path=GROUP + "/providers/Microsoft.Network/privateEndpoints/{privateEndpointName}",
            api_version="2024-05-01",
            model="network:PrivateEndpoint",
            create_only=("subnet",),
            outputs=STORED,
        ),
        Kind(
            token="azure-native:network:PrivateDnsZoneGroup",
            path=GROUP
            + "/providers/Microsoft.Network/privateEndpoints/{privateEndpointName}"
            + "/privateDnsZoneGroups/{privateDnsZoneGroupName}",
            api_version="2024-05-01",
            model="network:PrivateDnsZoneGroup",
            outputs=STORED,
            is_typed=False,
        ),
        Kind(
            token="azure-native:privatedns:PrivateZone",
            path=GROUP + "/providers/Microsoft.Network/privateDnsZones/{privateZoneName}",
            api_version="2024-06-01",
            model="privatedns:PrivateZone",
            create_only=("location",),
            outputs=STORED,
        ),
        Kind(
            token="azure-native:privatedns:VirtualNetworkLink",
            path=GROUP
            + "/providers/Microsoft.Network/privateDnsZones/{privateZoneName}"
            + "/virtualNetworkLinks/{virtualNetworkLinkName}",
            api_version="2024-06-01",
            model="privatedns:VirtualNetworkLink",
            create_only=("location",),
            outputs={**STORED, "virtualNetworkLinkState": "Completed"},
        ),
        Kind(
            token="azure-native:monitor:ActionGroup",
            path=GROUP + "/providers/Microsoft.Insights/actionGroups/{actionGroupName}",
            api_version="2024-10-01-preview",
            model="actiongroups:ActionGroupResource",
            create_only=("location",),
        ),
        Kind(
            token="azure-native:monitor:MetricAlert",
            path=GROUP + "/providers/Microsoft.Insights/metricAlerts/{ruleName}",
            api_version="2018-03-01",
            model="metricalerts:MetricAlertResource",
            create_only=("location",),
        ),
        Kind(
            token="azure-native:authorization:PolicyAssignment",
            path="/{scope}/providers/Microsoft.Authorization/policyAssignments"
            "/{policyAssignmentName}",
            api_version="2025-01-01",
            model="policy:PolicyAssignment",
            outputs={"effectiveDefinitionVersion": "1.0.0"},
        ),
        Kind(
            token="azure-native:authorization:ManagementLockByScope",
            path="/{scope}/providers/Microsoft.Authorization/locks/{lockName}",
            api_version="2020-05-01",
            model="locks:ManagementLockObject",
        ),
    )
}


def fill_path(kind: Kind, inputs: dict[str, object], subscription: str) -> str:
    """The id of a declared resource; a KeyError names what is missing."""
    values = {name: str(inputs[name]).strip("/") for name in kind.parameters}
    return kind.path.format(subscriptionId=subscription, **values)


def read_path(kind: Kind, resource_id: str) -> dict[str, str]:
    """The inputs that an id says."""
    pattern = "".join(
        f"(?P<{part[1:-1]}>.+)"
        if part.strip("{}") in SCOPES
        else f"(?P<{part[1:-1]}>[^/]+)"
        if part.startswith("{")
        else re.escape(part)
        for part in re.split(r"({\w+})", kind.path)
    )
    match = re.fullmatch(pattern, resource_id, re.IGNORECASE)
    if match is None:
        return {}
    found = {name: text for name, text in match.groupdict().items() if name != "subscriptionId"}
    return {name: f"/{text}" if name in SCOPES else text for name, text in found.items()}
