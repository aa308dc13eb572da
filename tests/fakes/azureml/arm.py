"""Resource Manager: the workspace, what is stored in it, and the place where a client looks first."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.judge import judge
from tests.fakes.azureml.messages import Refusal, Reply, Request, Service, answer, on
from tests.fakes.azureml.records import Records, iso, now, system_data
from tests.fakes.azureml.tokens import MANAGEMENT, Tokens
from tests.fakes.deviations import Deviation

HOST = "management.azure.com"
WS = (
    "/subscriptions/{sub}/resourceGroups/{group}/providers"
    "/Microsoft.MachineLearningServices/workspaces/{ws}"
)
REGISTRY = (
    "/subscriptions/{sub}/resourceGroups/{group}/providers"
    "/Microsoft.ContainerRegistry/registries/{registry}"
)
LOCATION = "/subscriptions/{sub}/providers/Microsoft.MachineLearningServices/locations/{location}"

_IMPORT_KEYS = {"source", "targetTags", "untaggedTargetRepositories", "mode"}

# Those that pulumi-azure-native 3.29.0 lists, from the first that an SDK here sends.
VERSIONS = frozenset(
    [
        "2022-05-01",
        "2022-06-01-preview",
        "2022-10-01",
        "2022-10-01-preview",
        "2022-12-01-preview",
        "2023-02-01-preview",
        "2023-04-01",
        "2023-04-01-preview",
        "2023-06-01-preview",
        "2023-08-01-preview",
        "2023-10-01",
        "2024-01-01-preview",
        "2024-04-01",
        "2024-04-01-preview",
        "2024-07-01-preview",
        "2024-10-01",
        "2024-10-01-preview",
        "2025-01-01-preview",
        "2025-04-01",
        "2025-04-01-preview",
        "2025-06-01",
        "2025-07-01-preview",
        "2025-09-01",
        "2025-10-01-preview",
        "2025-12-01",
        "2026-01-15-preview",
        "2026-03-01",
        "2026-03-15-preview",
        "2026-05-01",
        "2026-05-15-preview",
    ]
)


def check_body(kind: str, request: Request) -> dict[str, Any]:
    """The body, refused as Azure would where the models hold something against it."""
    body = request.json
    if wrong := judge(kind, request.query["api-version"], body):
        raise Refusal(400, "ValidationError", f"{kind}: {'; '.join(wrong)}")
    return body


def check_version(request: Request) -> None:
    """Refuse a request of Resource Manager without an API version that exists."""
    version = request.query.get("api-version", "")
    if not version:
        message = "The api-version query parameter (?api-version=) is required for all requests."
        raise Refusal(400, "MissingApiVersionParameter", message)
    if "/providers/microsoft.machinelearningservices/" not in request.path.lower():
        return
    if version not in VERSIONS or (request.method == "PUT" and version < "2023-04"):
        message = (
            f"No registered resource provider found for API version '{version}'. The supported "
            f"api-versions are '{', '.join(sorted(VERSIONS))}'."
        )
        raise Refusal(400, "NoRegisteredProviderFound", message)


def not_found(kind: str, name: str) -> Refusal:
    return Refusal(404, "UserError", f"{kind} {name} was not found.")


class ArmService(Service):
    """Checks the token and the workspace before any route."""

    def __init__(self, records: Records, tokens: Tokens, blobs: Blobs) -> None:
        super().__init__()
        self.records, self.tokens, self.blobs, self.place = records, tokens, blobs, records.place

    def handle(self, request: Request) -> Reply | None:
        self.tokens.check(request, MANAGEMENT)
        if request.host == HOST:
            check_version(request)
        else:
            _check_host(self.records, request.host)
        check_workspace(self.records, request.path)
        with self.records.lock:
            return super().handle(request)


def _check_host(records: Records, host: str) -> None:
    """Refuse what Azure refuses at a host of the workspace's own services."""
    if Deviation.WRONG_HOST in records.deviations:
        raise Refusal(404, "UserError", "The workspace was not found in this region.")
    place = records.place
    if host != (place.private_api if records.is_private else place.api):
        # azure-docs issue 90426; a service beside it says it in other words, with 401.
        message = "Access to workspace was denied based on workspace private link configuration."
        raise Refusal(403, "UserError", message)


def check_workspace(records: Records, path: str) -> None:
    """Refuse a path below another workspace than ours, or below ours once it is deleted."""
    place, parts = records.place, path.lower().split("/")
    if "workspaces" not in parts:
        return
    asked = path.split("/")[parts.index("workspaces") + 1]
    there = place.workspace_id.lower() in path.lower() and not records.is_workspace_deleted
    if not there:
        message = (
            f"The Resource 'Microsoft.MachineLearningServices/workspaces/{asked}' under resource "
            f"group '{place.resource_group}' was not found. For more details please go to "
            "https://aka.ms/ARMResourceNotFoundFix"
        )
        raise Refusal(404, "ResourceNotFound", message)


class Metadata(Service):
    """What Azure tells of itself to anyone."""

    @on("GET", "/metadata/endpoints")
    def endpoints(self, request: Request) -> Reply:
        return answer(
            [
                {
                    "name": "AzureCloud",
                    "portal": "https://portal.azure.com",
                    "resourceManager": f"https://{HOST}/",
                    "authentication": {
                        "loginEndpoint": "https://login.microsoftonline.com",
                        "audiences": ["https://management.core.windows.net/", f"https://{HOST}/"],
                        "tenant": "common",
                        "identityProvider": "AAD",
                    },
                    "graphAudience": "https://graph.windows.net/",
                    "graph": "https://graph.windows.net/",
                    "suffixes": {
                        "storage": "core.windows.net",
                        "keyVaultDns": "vault.azure.net",
                        "acrLoginServer": "azurecr.io",
                    },
                }
            ]
        )


class Workspace(ArmService):
    """The workspace itself, its datastores and its secrets."""

    @on("GET", "/subscriptions")
    def subscriptions(self, request: Request) -> Reply:
        subscription = {
            "id": f"/subscriptions/{self.place.subscription_id}",
            "subscriptionId": self.place.subscription_id,
            "displayName": "stand-in",
            "tenantId": self.place.tenant_id,
            "state": "Enabled",
            "authorizationSource": "RoleBased",
        }
        return answer({"value": [subscription]})

    @on("GET", WS)
    def workspace(self, request: Request, **_: str) -> Reply:
        place = self.place
        group = f"{place.group_id}/providers"
        storage = f"{group}/Microsoft.Storage/storageAccounts/{place.workspace_account}"
        return answer(
            {
                "id": place.workspace_id,
                "name": place.workspace,
                "type": "Microsoft.MachineLearningServices/workspaces",
                "location": place.location,
                "tags": {},
                "kind": "Default",
                "sku": {"name": "Basic", "tier": "Basic"},
                "identity": {
                    "type": "SystemAssigned",
                    "principalId": place.cluster_client_id,
                    "tenantId": place.tenant_id,
                },
                "systemData": system_data(now()),
                "properties": {
                    "friendlyName": place.workspace,
                    "description": "",
                    "storageAccount": storage,
                    "keyVault": f"{group}/Microsoft.KeyVault/vaults/{place.key_vault}",
                    "containerRegistry": (
                        f"{group}/Microsoft.ContainerRegistry/registries/{place.registry}"
                    ),
                    "applicationInsights": f"{group}/Microsoft.Insights/components/appi",
                    "hbiWorkspace": False,
                    "tenantId": place.tenant_id,
                    "imageBuildCompute": None,
                    "provisioningState": "Succeeded",
                    "creationTime": iso(now()),
                    "workspaceId": place.workspace_guid,
                    "discoveryUrl": f"https://{self.records.api}/discovery",
                    "mlFlowTrackingUri": (
                        f"azureml://{self.records.api}/mlflow/v1.0{place.workspace_id}"
                    ),
                    "publicNetworkAccess": "Disabled" if self.records.is_private else "Enabled",
                    "privateEndpointConnections": self._connections(),
                    "managedNetwork": self._managed_network(),
                    "v1LegacyMode": False,
                },
            }
        )

    def _connections(self) -> list[dict[str, Any]]:
        state = {"status": "Approved", "description": "Auto-Approved", "actionsRequired": ""}
        told = {"privateLinkServiceConnectionState": state, "provisioningState": "Succeeded"}
        return [{"name": "one", "properties": told}] if self.records.is_private else []

    def _managed_network(self) -> dict[str, Any]:
        """Its rule leads to the data account."""
        deviations = self.records.deviations
        status = "Active"
        if deviations & {Deviation.NETWORK_INACTIVE, Deviation.NETWORK_PROVISIONING}:
            status = "Inactive"
        rule = "Provisioning" if Deviation.NETWORK_PROVISIONING in deviations else status
        if Deviation.NETWORK_FAILED in deviations:
            rule = "Failed"
        account = f"{self.place.group_id}/providers/Microsoft.Storage/storageAccounts"
        destination = {
            "serviceResourceId": f"{account}/{self.place.data_account}",
            "subresourceTarget": "blob",
            "sparkEnabled": False,
            "sparkStatus": "Inactive",
        }
        return {
            "isolationMode": "AllowInternetOutbound",
            "networkId": str(uuid.uuid5(uuid.NAMESPACE_URL, self.place.workspace_id)),
            "outboundRules": {
                "data-blob": {
                    "type": "PrivateEndpoint",
                    "category": "UserDefined",
                    "status": rule,
                    "destination": destination,
                }
            },
            "status": {"status": status, "sparkReady": False},
        }

    @on("GET", REGISTRY)
    def registry(self, request: Request, registry: str, **_: str) -> Reply:
        if registry != self.place.registry:
            raise Refusal(404, "ResourceNotFound", f"The Resource '{registry}' was not found.")
        return answer({"properties": {"loginServer": self.records.registry_address}})

    @on("POST", REGISTRY + "/importImage")
    def import_image(self, request: Request, registry: str, **_: str) -> Reply:
        """Takes a while, as the service does; by then the registry has the manifest and the tags."""
        if registry != self.place.registry:
            raise Refusal(404, "ResourceNotFound", f"The Resource '{registry}' was not found.")
        body = request.json
        source = body["source"]
        if not ("resourceId" in source) ^ ("registryUri" in source) or set(body) - _IMPORT_KEYS:
            raise Refusal(400, "InvalidRequest", "The request body is invalid.")
        self.records.imported.append(body)
        where = f"https://{HOST}{request.path}/operationResults/1?api-version=2023-07-01"
        return answer(None, 202, {"Location": where, "Retry-After": "0"})

    @on("GET", REGISTRY + "/importImage/operationResults/1")
    def import_result(self, request: Request, **_: str) -> Reply:
        return answer(None, 200)

    @on("GET", WS + "/datastores")
    def list_datastores(self, request: Request, **_: str) -> Reply:
        wanted = request.query.get("isDefault", "").lower()
        found = [
            self._datastore(name)
            for name, each in self.records.datastores.items()
            if not self._is_missing(name)
            if wanted != "true" or each["isDefault"]
        ]
        return answer({"value": found})

    @on("GET", WS + "/datastores/{name}")
    def datastore(self, request: Request, name: str, **_: str) -> Reply:
        return answer(self._datastore(name))

    @on("POST", WS + "/datastores/{name}/listSecrets")
    def list_secrets(self, request: Request, name: str, **_: str) -> Reply:
        store = self._datastore(name)["properties"]
        if store["credentials"]["credentialsType"] == "None":
            message = f"Datastore {name} holds no credentials."
            raise Refusal(400, "UserError", message)
        key = self.blobs.keys[store["accountName"]]
        return answer({"secretsType": "AccountKey", "key": key})

    def _is_missing(self, name: str) -> bool:
        """Whether Azure could not make a default datastore, as of a role that came late."""
        deviations = self.records.deviations
        if Deviation.ARTIFACT_STORE_MISSING in deviations and name == "workspaceartifactstore":
            return True
        is_file = self.records.datastores[name]["datastoreType"] == "AzureFile"
        return Deviation.DATASTORES_MISSING in deviations and is_file

    def _datastore(self, name: str) -> dict[str, Any]:
        if name not in self.records.datastores or self._is_missing(name):
            raise not_found("Datastore", name)
        return {
            "id": f"{self.place.workspace_id}/datastores/{name}",
            "name": name,
            "type": "Microsoft.MachineLearningServices/workspaces/datastores",
            "properties": self.records.datastores[name],
            "systemData": system_data(now()),
        }


class Assets(ArmService):
    """Versions of code, environments and data."""

    @on("GET", WS + "/codes/{name}/versions")
    def list_codes(self, request: Request, **_: str) -> Reply:
        wanted = request.query.get("hash")
        found = [
            self._version("codes", key, each)
            for key, each in self.records.codes.items()
            if wanted in {None, each["properties"].get("properties", {}).get("hash_sha256")}
        ]
        return answer({"value": found})

    @on("GET", WS + "/codes/{name}/versions/{version}")
    def code(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._get("codes", name, version)

    @on("POST", WS + "/codes/{name}/versions/{version}/startPendingUpload")
    @on("POST", WS + "/data/{name}/versions/{version}/startPendingUpload")
    def start_upload(self, request: Request, name: str, **_: str) -> Reply:
        check_body("pending-upload", request)
        # A container of its own for each upload, as the service does.
        account, container = self.place.workspace_account, f"{secrets.token_hex(4)}-{uuid.uuid4()}"
        self.blobs.container(account, container)
        storage = "providers/Microsoft.Storage/storageAccounts"
        return answer(
            {
                "pendingUploadId": str(uuid.uuid4()),
                "pendingUploadType": "TemporaryBlobReference",
                "blobReferenceForConsumption": {
                    "blobUri": self.blobs.address(account, container),
                    "storageAccountArmId": f"{self.place.group_id}/{storage}/{account}",
                    "credential": {
                        "credentialType": "SAS",
                        "sasUri": self.blobs.sas(account, container, "rcwl"),
                    },
                },
            }
        )

    @on("PUT", WS + "/codes/{name}/versions/{version}")
    def put_code(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._put("code", "codes", request, name, version)

    @on("GET", WS + "/environments/{name}/versions/{version}")
    def environment(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._get("environments", name, version)

    @on("PUT", WS + "/environments/{name}/versions/{version}")
    def put_environment(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._put("environment", "environments", request, name, version)

    @on("GET", WS + "/data/{name}/versions/{version}")
    def data(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._get("data", name, version)

    @on("PUT", WS + "/data/{name}/versions/{version}")
    def put_data(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._put("data", "data", request, name, version)

    @on("GET", WS + "/models/{name}/versions/{version}")
    def model(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._get("models", name, version)

    @on("PUT", WS + "/models/{name}/versions/{version}")
    def put_model(self, request: Request, name: str, version: str, **_: str) -> Reply:
        return self._put("model", "models", request, name, version)

    def _put(self, kind: str, folder: str, request: Request, name: str, version: str) -> Reply:
        body = check_body(kind, request)
        kept, key = getattr(self.records, folder), (name, version)
        status = 200 if key in kept else 201
        stored = {"properties": body["properties"], "created": now()}
        if key in kept and not _same(kept[key]["properties"], body["properties"]):
            message = f"A resource with this name and version already exists: {name}:{version}."
            raise Refusal(409, "UserError", message)
        kept[key] = {**kept.get(key, stored), "properties": body["properties"]}
        return answer(self._version(folder, key, kept[key]), status)

    def _get(self, folder: str, name: str, version: str) -> Reply:
        found = getattr(self.records, folder).get((name, version))
        if found is None:
            raise not_found(folder, f"{name}:{version}")
        return answer(self._version(folder, (name, version), found))

    def _version(self, folder: str, key: tuple[str, str], kept: dict[str, Any]) -> dict[str, Any]:
        name, version = key
        return {
            "id": f"{self.place.workspace_id}/{folder}/{name}/versions/{version}",
            "name": version,
            "type": f"Microsoft.MachineLearningServices/workspaces/{folder}/versions",
            "properties": {**kept["properties"], "provisioningState": "Succeeded"},
            "systemData": system_data(kept["created"]),
        }


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether what cannot be changed later is equal."""
    fixed = ("codeUri", "image", "build", "dataUri", "dataType")
    return all(one.get(key) == other.get(key) for key in fixed)
