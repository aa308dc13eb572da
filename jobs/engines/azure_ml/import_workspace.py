"""Make the environment of a workspace that no stack made, from Azure's answers.

Only reads. Data and runs lie in containers that the workspace has datastores for: jobs name their
places by datastore, `launch` names them by container.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from jobs.contracts.errors import LaunchError, NotFound
from jobs.contracts.spec import (
    ENVIRONMENT_SCHEMA,
    CloudEngine,
    Cluster,
    Containers,
    Environment,
    KeyVault,
    Registry,
    Storage,
    Workspace,
)
from jobs.engines.azure_ml.names import resource_name
from jobs.engines.azure_ml.sizes import cluster_of, read_sizes
from jobs.engines.azure_ml.states import mapping, text_in
from jobs.host import console
from jobs.host.untrusted import parse, parse_rows

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

# The containers that stacks of ours have.
DATA, RUNS = "data", "runs"
REGISTRY_API_VERSION = "2023-07-01"
_WORKSPACE_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)/providers"
    r"/Microsoft\.MachineLearningServices/workspaces/(?P<name>[^/]+)/?",
    re.IGNORECASE,
)


def import_workspace(
    resource_id: str,
    *,
    data: str | None,
    runs: str | None,
    engine: CloudEngine,
    credential: Any = None,
) -> Environment:
    """Read the environment of a workspace; `data` and `runs` are containers of one account.

    Where neither is named and the workspace has none of stacks of ours, both are its own. Raises
    LaunchError for what is no workspace's id, NotFound for containers without a datastore,
    CloudRefusal where Azure does not answer.
    """
    from jobs.engines.azure_ml.client import ArmClient

    known = _parse_id(resource_id)
    client = ArmClient(known, credential=credential)
    what = "asking for the workspace"
    found = parse(client.get(known.workspace.id, what=what), _WorkspaceRow, what=what)
    url = urlsplit(found.properties.discovery_url)
    environment = msgspec.structs.replace(
        known,
        engine=engine,
        location=found.location,
        workspace=Workspace(
            name=resource_name(found.id), id=found.id, endpoint=f"https://{url.hostname}"
        ),
        storage=_find_storage(client, data, runs),
        registry=_find_registry(client, found.properties.container_registry),
        key_vault=_key_vault(found.properties.key_vault),
    )
    if found.properties.v1_legacy_mode and engine == "azureml":
        console.warn("the workspace is in v1 legacy mode: --engine azureml_v1 is for that")
    return msgspec.structs.replace(environment, clusters=_find_clusters(ArmClient(environment)))


def _parse_id(resource_id: str) -> Environment:
    """Make as much of the environment as the id says."""
    parts = _WORKSPACE_ID.fullmatch(resource_id.strip())
    if parts is None:
        message = f"`{resource_id}` is not the resource id of a workspace"
        hint = "az ml workspace show --name NAME --resource-group GROUP --query id --output tsv"
        raise LaunchError(message, hint=hint)
    containers = Containers(data="", runs="")
    return Environment(
        schema=ENVIRONMENT_SCHEMA,
        stack=parts["name"],
        engine="azureml",
        location="",
        subscription_id=parts["subscription"],
        resource_group=parts["group"],
        workspace=Workspace(name=parts["name"], id=resource_id.strip().rstrip("/"), endpoint=""),
        storage=Storage(account="", blob_endpoint="", containers=containers),
        registry=None,
        key_vault=None,
        clusters={},
        images={},
    )


class _WorkspaceProperties(Struct, frozen=True, kw_only=True, rename="camel"):
    discovery_url: str
    container_registry: str | None = None
    key_vault: str | None = None
    v1_legacy_mode: bool = False


class _WorkspaceRow(Struct, frozen=True, kw_only=True):
    id: str
    location: str
    properties: _WorkspaceProperties


class _Compute(Struct, frozen=True, kw_only=True, rename="camel"):
    compute_type: str


class _ComputeRow(Struct, frozen=True, kw_only=True):
    name: str
    properties: _Compute


class _Store(Struct, frozen=True, kw_only=True, rename="camel"):
    datastore_type: str
    account_name: str = ""
    container_name: str = ""
    endpoint: str = "core.windows.net"
    protocol: str = "https"
    is_default: bool = False


class _StoreRow(Struct, frozen=True, kw_only=True):
    name: str
    properties: _Store


def _find_storage(client: ArmClient, data: str | None, runs: str | None) -> Storage:
    """Find the account that has both containers behind datastores."""
    listed = client.pages(f"{client.workspace}/datastores", what="listing datastores")
    rows = parse_rows(listed, _StoreRow)
    blobs = [each for each in rows if each.properties.datastore_type == "AzureBlob"]
    wanted = Containers(data=data or DATA, runs=runs or RUNS)
    for account in dict.fromkeys(each.properties.account_name for each in blobs):
        stores = [each for each in blobs if each.properties.account_name == account]
        if {wanted.data, wanted.runs} <= {each.properties.container_name for each in stores}:
            return _storage(stores, wanted)
    own = next((each for each in blobs if each.properties.is_default), None)
    if data is None and runs is None and own is not None:
        name = own.properties.container_name
        console.say(f"datasets and runs go to the workspace's own container `{name}`")
        return _storage([own], Containers(data=name, runs=name))
    raise _no_storage(client.environment, blobs, wanted, own)


def _storage(stores: Sequence[_StoreRow], containers: Containers) -> Storage:
    """Make the storage of datastores of one account."""
    datastores: dict[str, str] = {}
    for name in dict.fromkeys((containers.data, containers.runs)):
        called = sorted(each.name for each in stores if each.properties.container_name == name)
        if name.replace("-", "_") not in called:
            datastores[name] = called[0]
    account = stores[0].properties
    return Storage(
        account=account.account_name,
        blob_endpoint=f"{account.protocol}://{account.account_name}.blob.{account.endpoint}/",
        containers=containers,
        datastores=datastores,
    )


def _no_storage(
    environment: Environment, rows: Sequence[_StoreRow], wanted: Containers, own: _StoreRow | None
) -> NotFound:
    """Make the error of missing datastores; names the account if one of the two is there."""
    workspace = environment.workspace.name
    there = sorted(
        {(each.properties.container_name, each.properties.account_name) for each in rows}
    )
    named = ", ".join(f"{container} in {account}" for container, account in there) or "none"
    message = (
        f"workspace `{workspace}` has no datastores for the containers `{wanted.data}` and "
        f"`{wanted.runs}` of one account; it has: {named}"
    )
    beside = [each for name, each in there if name in (wanted.data, wanted.runs)]
    account = beside[0] if beside else own.properties.account_name if own else "ACCOUNT"
    lines = [f"--data CONTAINER --runs CONTAINER, or make them, in account {account} say:"]
    missing = [each for each in (wanted.data, wanted.runs) if (each, account) not in there]
    for name in dict.fromkeys(missing):
        store = name.replace("-", "_")
        if any(each.name == store for each in rows):
            store = f"{store}_{account}"  # theirs is of another account
        lines += [
            f"  az storage container create --name {name} --account-name {account} "
            "--auth-mode login",
            f"  printf '%s\\n' 'name: {store}' 'type: azure_blob' 'account_name: {account}' "
            f"'container_name: {name}' > {store}.yml",
            f"  az ml datastore create --file {store}.yml --workspace-name {workspace} "
            f"--resource-group {environment.resource_group}",
        ]
    return NotFound(message, hint="\n".join(lines))


def _find_registry(client: ArmClient, resource_id: str | None) -> Registry | None:
    """Find the registry's address, which may hold more than its name."""
    from jobs.engines.azure_ml.refusals import CloudRefusal

    if not resource_id:
        return None
    try:
        found = client.get(
            resource_id, api_version=REGISTRY_API_VERSION, what="asking the registry"
        )
    except CloudRefusal as refusal:
        server = f"{resource_name(resource_id).lower()}.azurecr.io"
        console.warn(f"the registry's address `{server}` is taken from its name: {refusal.message}")
        return Registry(login_server=server)
    server = text_in(mapping(found.get("properties")), "loginServer")
    return Registry(login_server=server) if server else None


def _key_vault(resource_id: str | None) -> KeyVault | None:
    return (
        KeyVault(uri=f"https://{resource_name(resource_id)}.vault.azure.net/")
        if resource_id
        else None
    )


def _find_clusters(client: ArmClient) -> dict[str, Cluster]:
    """Read the workspace's AmlComputes, by their own names."""
    computes = f"{client.workspace}/computes"
    rows = parse_rows(client.pages(computes, what="listing clusters"), _ComputeRow)
    names = sorted(each.name for each in rows if each.properties.compute_type == "AmlCompute")
    if not names:
        return {}
    sizes = read_sizes(client)
    found: dict[str, Cluster] = {}
    for name in names:
        compute = client.get(f"{computes}/{name}", what=f"looking at cluster `{name}`")
        live = mapping(mapping(compute.get("properties")).get("properties"))
        cluster = cluster_of(name, live, sizes)
        if cluster is None:
            console.warn(
                f"cluster `{name}` is left out: Azure does not describe the hardware of its nodes"
            )
        else:
            found[name] = cluster
    return found
