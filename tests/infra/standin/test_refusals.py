"""The stand-in refuses what Azure refuses, each with the service's own code.

Where tests/fakes/azure_native (`refusals.py`, `combinations.py`) names no page and no issue for one,
its code and words are guesses, and so are the messages, which are shortened: as the stand-in says.
"""

from __future__ import annotations

import json
import threading

import pytest

from tests.busy import wait_until
from tests.fakes.azure_native import QUOTA, SUBSCRIPTION_ID, THROTTLED
from tests.fakes.azure_native.errors import AlreadyThere, Cancelled, Failed, Refused
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.fakes.azure_native.service import Service, principal_of
from tests.fakes.azure_native.store import Store

# Proofs of the stand-in itself.
pytestmark = pytest.mark.faults

RG = {"resourceGroupName": "rg", "location": "westeurope"}
GROUP_ID = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/rg"
ACCOUNT = {**RG, "accountName": "yard", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
ACCOUNT_ID = f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/yard"
CONTAINER = {"resourceGroupName": "rg", "accountName": "yard", "containerName": "data"}
SKU = {"family": "A", "name": "standard"}
VAULT = {**RG, "vaultName": "kv-yard", "properties": {"tenantId": "t", "sku": SKU}}
REGISTRY = {**RG, "registryName": "yardreg", "sku": {"name": "Standard"}}
IDENTITY = {**RG, "resourceName": "id-yard"}
IDENTITY_ID = f"{GROUP_ID}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-yard"
ROLE = {
    "scope": ACCOUNT_ID,
    "roleAssignmentName": "11111111-1111-4111-8111-111111111111",
    "roleDefinitionId": f"/subscriptions/{SUBSCRIPTION_ID}/providers/roleDefinitions/reader",
    "principalId": principal_of(IDENTITY_ID),
}
WORKSPACE = {**RG, "workspaceName": "mlw", "identity": {"type": "SystemAssigned"}}
SCALE = {"minNodeCount": 0, "maxNodeCount": 2}
CLUSTER = {
    **RG,
    "workspaceName": "mlw",
    "computeName": "gpu",
    "properties": {"computeType": "AmlCompute", "properties": {"scaleSettings": SCALE}},
}
NETWORK = {**RG, "virtualNetworkName": "vnet"}
SUBNET = {"resourceGroupName": "rg", "virtualNetworkName": "vnet", "subnetName": "links"}
NETWORK_ID = f"{GROUP_ID}/providers/Microsoft.Network/virtualNetworks/vnet"
ENDPOINT = {**RG, "privateEndpointName": "pe", "subnet": {"id": f"{NETWORK_ID}/subnets/links"}}
LOCK = {"scope": ACCOUNT_ID, "lockName": "keep", "level": "CanNotDelete"}


class Azure:
    """A subscription; resources are named by the end of their token."""

    def __init__(self, folder):
        self.folder = folder
        self.service = Service(Store(folder))

    def script(self, **troubles):
        (self.folder / "troubles.json").write_text(json.dumps(troubles))

    def id(self, name, inputs):
        return fill_path(kind(name), inputs, SUBSCRIPTION_ID)

    def create(self, name, inputs):
        return self.service.create(kind(name), self.id(name, inputs), inputs)

    def update(self, name, inputs):
        return self.service.update(kind(name), self.id(name, inputs), inputs)

    def delete(self, name, inputs):
        self.service.delete(kind(name), self.id(name, inputs))

    def ids(self):
        text = (self.folder / "resources.json").read_text()
        return {each["id"].rpartition("/")[2] for each in json.loads(text)["resources"].values()}

    def refused(self, operation, name, inputs):
        """The code of the refusal."""
        with pytest.raises(Refused) as caught:
            getattr(self, operation)(name, inputs)
        return caught.value.code


def kind(name):
    (found,) = (each for token, each in KINDS.items() if token.endswith(f":{name}"))
    return found


@pytest.fixture
def empty(tmp_path):
    return Azure(tmp_path)


@pytest.fixture
def azure(empty):
    empty.create("resources:ResourceGroup", RG)
    return empty


@pytest.fixture
def store(azure):
    azure.create("StorageAccount", ACCOUNT)
    return azure


def test_a_parent_that_is_not_there(empty):
    assert empty.refused("create", "StorageAccount", ACCOUNT) == "ResourceGroupNotFound"
    empty.create("resources:ResourceGroup", RG)
    assert empty.refused("create", "BlobContainer", CONTAINER) == "ParentResourceNotFound"
    assert empty.refused("create", "ManagementLockByScope", LOCK) == "ParentResourceNotFound"
    assert empty.refused("create", "Compute", CLUSTER) == "ParentResourceNotFound"
    assert empty.refused("create", "PrivateEndpoint", ENDPOINT) == "InvalidResourceReference"


@pytest.mark.parametrize("name", ["Data", "da--ta", "-data", "d"])
def test_a_name_that_cannot_be(store, name):
    inputs = {**CONTAINER, "containerName": name}
    assert store.refused("create", "BlobContainer", inputs) == "InvalidResourceName"


def test_a_create_of_what_is_there(store):
    with pytest.raises(AlreadyThere, match="cannot create already existing resource"):
        store.create("StorageAccount", ACCOUNT)


def test_a_name_that_the_world_has_already(store):
    store.script(taken_names=["kv-yard", "yardreg"])
    elsewhere = {**ACCOUNT, "resourceGroupName": "other"}
    store.create("resources:ResourceGroup", {**RG, "resourceGroupName": "other"})
    assert store.refused("create", "StorageAccount", elsewhere) == "StorageAccountAlreadyTaken"
    assert store.refused("create", "Vault", VAULT) == "VaultAlreadyExists"
    assert store.refused("create", "Registry", REGISTRY) == "AlreadyInUse"


def test_a_deleted_vault_and_workspace_keep_their_names(azure):
    for name, inputs in (("Vault", VAULT), ("machinelearningservices:Workspace", WORKSPACE)):
        azure.create(name, inputs)
        azure.delete(name, inputs)
    assert azure.refused("create", "Vault", VAULT) == "ConflictError"
    assert azure.refused("create", "machinelearningservices:Workspace", WORKSPACE) == "Conflict"


def test_a_workspace_with_its_users_identities_only_does_not(azure):
    azure.create("UserAssignedIdentity", IDENTITY)
    identity = {"type": "UserAssigned", "userAssignedIdentities": [IDENTITY_ID]}
    inputs = {**WORKSPACE, "identity": identity, "primaryUserAssignedIdentity": IDENTITY_ID}
    for _ in range(2):
        azure.create("machinelearningservices:Workspace", inputs)
        azure.delete("machinelearningservices:Workspace", inputs)


def test_what_is_locked_stays_with_all_that_is_in_it_or_around_it(store):
    store.create("BlobContainer", CONTAINER)
    store.create("ManagementLockByScope", LOCK)
    for name, inputs in (
        ("StorageAccount", ACCOUNT),
        ("BlobContainer", CONTAINER),
        ("resources:ResourceGroup", RG),
    ):
        assert store.refused("delete", name, inputs) == "ScopeLocked"
    store.delete("ManagementLockByScope", LOCK)
    store.delete("StorageAccount", ACCOUNT)
    assert store.ids() == {"rg"}


def test_a_group_takes_all_that_is_in_it_along(store):
    store.create("BlobContainer", CONTAINER)
    store.create("Vault", VAULT)
    store.delete("resources:ResourceGroup", RG)
    assert store.ids() == set()
    store.create("resources:ResourceGroup", RG)
    assert store.refused("create", "Vault", VAULT) == "ConflictError"


def test_a_subnet_in_use(azure):
    azure.create("VirtualNetwork", NETWORK)
    azure.create("Subnet", SUBNET)
    azure.create("PrivateEndpoint", ENDPOINT)
    assert azure.refused("delete", "Subnet", SUBNET) == "InUseSubnetCannotBeDeleted"
    assert azure.refused("delete", "VirtualNetwork", NETWORK) == "InUseSubnetCannotBeDeleted"
    azure.delete("PrivateEndpoint", ENDPOINT)
    azure.delete("VirtualNetwork", NETWORK)


def test_a_role_for_a_principal_that_the_directory_does_not_know_yet(store):
    store.script(replication_s=60)
    store.create("UserAssignedIdentity", IDENTITY)
    assert store.refused("create", "RoleAssignment", ROLE) == "PrincipalNotFound"
    store.create("RoleAssignment", {**ROLE, "principalType": "ServicePrincipal"})


def test_a_role_twice_and_a_role_that_is_changed(store):
    store.create("UserAssignedIdentity", IDENTITY)
    store.create("RoleAssignment", ROLE)
    again = {**ROLE, "roleAssignmentName": "22222222-2222-4222-8222-222222222222"}
    assert store.refused("create", "RoleAssignment", again) == "RoleAssignmentExists"
    changed = {**ROLE, "roleDefinitionId": "other"}
    assert store.refused("update", "RoleAssignment", changed) == "RoleAssignmentUpdateNotPermitted"


@pytest.mark.parametrize(
    "feature",
    [
        {"networkRuleSet": {"defaultAction": "Deny"}},
        {"publicNetworkAccess": "Disabled"},
        {"zoneRedundancy": "Enabled"},
        {"policies": {"retentionPolicy": {"status": "enabled", "days": 15}}},
        {"policies": {"exportPolicy": {"status": "disabled"}}},
    ],
)
def test_premium_features_of_a_standard_registry(azure, feature):
    assert azure.refused("create", "Registry", {**REGISTRY, **feature}) == "SkuNotSupported"
    azure.create("Registry", {**REGISTRY, **feature, "sku": {"name": "Premium"}})


def test_a_registry_stays_premium_while_an_endpoint_leads_to_it(azure):
    premium = {**REGISTRY, "sku": {"name": "Premium"}}
    registry_id = f"{GROUP_ID}/providers/Microsoft.ContainerRegistry/registries/yardreg"
    connection = {"name": "r", "groupIds": ["registry"], "privateLinkServiceId": registry_id}
    endpoint = {**ENDPOINT, "privateLinkServiceConnections": [connection]}
    azure.create("Registry", premium)
    azure.create("VirtualNetwork", NETWORK)
    azure.create("Subnet", SUBNET)
    azure.create("PrivateEndpoint", endpoint)
    assert azure.refused("update", "Registry", REGISTRY) == "SkuNotSupported"
    azure.delete("PrivateEndpoint", endpoint)
    azure.update("Registry", REGISTRY)


@pytest.mark.parametrize("name", ["enablePurgeProtection", "enableSoftDelete"])
def test_a_vaults_protection_is_never_turned_off(azure, name):
    inputs = {**VAULT, "properties": {**VAULT["properties"], name: False}}
    assert azure.refused("create", "Vault", inputs) == "BadRequest"


def test_what_is_set_at_creation_only(store):
    changed = {**ACCOUNT, "encryption": {"requireInfrastructureEncryption": True}}
    code = "InfrastructureEncryptionCannotBeChanged"
    assert store.refused("update", "StorageAccount", changed) == code
    store.create("Vault", VAULT)
    days = {**VAULT, "properties": {**VAULT["properties"], "softDeleteRetentionInDays": 7}}
    assert store.refused("update", "Vault", days) == "BadRequest"


def test_a_resource_does_not_move_to_another_region(store):
    moved = {**ACCOUNT, "location": "northeurope"}
    assert store.refused("update", "StorageAccount", moved) == "InvalidResourceLocation"
    store.update("StorageAccount", {**ACCOUNT, "location": "West Europe"})


def test_a_workspace_keeps_its_account_and_its_vault(store):
    store.create("Vault", VAULT)
    key_vault = f"{GROUP_ID}/providers/Microsoft.KeyVault/vaults/kv-yard"
    store.create("machinelearningservices:Workspace", {**WORKSPACE, "storageAccount": ACCOUNT_ID})
    changed = {**WORKSPACE, "storageAccount": ACCOUNT_ID, "keyVault": key_vault}
    assert store.refused("update", "machinelearningservices:Workspace", changed) == "BadRequest"


@pytest.mark.parametrize("address", ["10.0.0.1", "20.1.2.3/31", "20.1.2.3/32"])
def test_addresses_that_a_storage_firewall_does_not_take(azure, address):
    rules = {"defaultAction": "Deny", "ipRules": [{"iPAddressOrRange": address}]}
    inputs = {**ACCOUNT, "networkRuleSet": rules}
    assert azure.refused("create", "StorageAccount", inputs) == "InvalidValuesForRequestParameters"


@pytest.mark.parametrize(
    "wrong",
    [
        {"enableNodePublicIp": False},
        {"scaleSettings": {"minNodeCount": 3, "maxNodeCount": 2}},
    ],
)
def test_clusters_that_cannot_be(azure, wrong):
    azure.create("machinelearningservices:Workspace", WORKSPACE)
    inner = {**CLUSTER["properties"]["properties"], **wrong}
    inputs = {**CLUSTER, "properties": {"computeType": "AmlCompute", "properties": inner}}
    assert azure.refused("create", "Compute", inputs) == "BadRequest"


def test_a_cluster_of_a_name_that_was_keeps_its_first_size(azure):
    azure.create("machinelearningservices:Workspace", WORKSPACE)

    def sized(size):
        inner = {**CLUSTER["properties"]["properties"], "vmSize": size}
        return {**CLUSTER, "properties": {"computeType": "AmlCompute", "properties": inner}}

    azure.create("Compute", sized("Standard_D2s_v3"))
    azure.delete("Compute", CLUSTER)
    for write in (azure.create, azure.update):
        outputs = write("Compute", sized("Standard_NC6s_v3"))
        assert outputs["properties"]["properties"]["vmSize"] == "Standard_D2s_v3"


def test_a_log_category_that_the_target_does_not_have(store):
    inputs = {
        "resourceUri": f"{ACCOUNT_ID}/blobServices/default",
        "name": "logs",
        "storageAccountId": ACCOUNT_ID,
    }
    logs = [{"category": "AuditEvent", "enabled": True}]
    assert store.refused("create", "DiagnosticSetting", {**inputs, "logs": logs}) == "BadRequest"
    logs = [{"category": "StorageRead", "enabled": True}]
    store.create("DiagnosticSetting", {**inputs, "logs": logs})


def test_quota_once_and_then_not(azure):
    azure.create("machinelearningservices:Workspace", WORKSPACE)
    azure.script(failures=[QUOTA | {"name": "g*"}])
    assert azure.refused("create", "Compute", CLUSTER) == "ClusterCoreQuotaReached"
    azure.create("Compute", CLUSTER)


def test_a_throttled_request_is_repeated_three_times(azure):
    azure.script(failures=[THROTTLED | {"times": 3, "retry_after_s": 0.01}])
    azure.create("StorageAccount", ACCOUNT)
    azure.script(failures=[THROTTLED | {"times": 4, "retry_after_s": 0.01}])
    assert azure.refused("create", "Vault", VAULT) == "TooManyRequests"


def test_a_trouble_that_means_nothing_is_told(azure):
    azure.script(failures=[{"operation": "create", "how": "hnag"}])
    with pytest.raises(AssertionError, match="hnag"):
        azure.create("StorageAccount", ACCOUNT)


def test_what_is_accepted_and_fails_is_there(azure):
    trouble = {"operation": "create", "how": "fail", "status": 500, "code": "E", "message": "m"}
    azure.script(failures=[trouble])
    with pytest.raises(Failed):
        azure.create("StorageAccount", ACCOUNT)
    found = azure.service.read(kind("StorageAccount"), ACCOUNT_ID)
    assert found is not None
    assert found["provisioningState"] == "Failed"


@pytest.mark.parametrize(("how", "left"), [("hang", {"rg"}), ("hang-after", {"rg", "yard"})])
def test_what_hangs_hangs_until_it_is_cancelled(azure, how, left):
    azure.script(failures=[{"operation": "create", "how": how}])
    ended = []

    def create():
        with pytest.raises(Cancelled):
            azure.create("StorageAccount", ACCOUNT)
        ended.append(True)

    thread = threading.Thread(target=create)
    thread.start()
    calls = azure.folder / "calls.jsonl"
    wait_until(
        lambda: calls.exists() and '"hangs": true' in calls.read_text(),
        what=lambda: calls.exists() and calls.read_text(),
        over=lambda: None if thread.is_alive() else "the create came to its end",
    )
    assert thread.is_alive()
    azure.service.stopping.set()
    thread.join()
    assert ended
    assert azure.ids() == left


def test_many_creates_at_once_are_all_kept(store):
    def create(index):
        store.create("BlobContainer", {**CONTAINER, "containerName": f"box{index}"})

    threads = [threading.Thread(target=create, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.ids() == {"rg", "yard", *(f"box{index}" for index in range(16))}
