"""Read the place, the clusters and the size of each that a preview of a stack declares (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, structs

from jobs.contracts.spec import (
    ENVIRONMENT_SCHEMA,
    Cluster,
    Containers,
    Environment,
    Storage,
    Workspace,
)
from jobs.engines.azure_ml.sizes import Size, cluster_of
from jobs.host.structs import prepared
from jobs.stacks.preview import Preview, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

Inputs = TypeVar("Inputs")
_AZURE = re.compile(r"azure-native:(?P<module>\w+)(/\w+)?:(?P<kind>\w+)")
_SUBSCRIPTION = re.compile(r"/subscriptions/([0-9a-fA-F-]{36})/")


class Group(Struct, frozen=True, kw_only=True, rename="camel"):
    """Describe the resource group as the stack declares it."""

    resource_group_name: str
    location: str
    tags: dict[str, str] = {}


class Identity(Struct, frozen=True, kw_only=True, rename="camel"):
    """A managed identity as the stack declares it."""

    resource_name: str
    location: str
    tags: dict[str, str] = {}


class Declared(Struct, frozen=True, kw_only=True):
    """A stack on Azure as `pulumi up` would make it; `environment` has no clusters yet.

    `is_new`: the workspace is not there. `group` is None where the stack lies in a group of others.
    `computes` are sorted by their cluster's name.
    """

    environment: Environment
    is_new: bool
    group: Group | None
    identity: Identity | None
    computes: tuple[Compute, ...]

    def with_clusters(self, sizes: Mapping[str, Size]) -> Environment:
        """Give the environment with each cluster whose size is among `sizes`."""
        clusters: dict[str, Cluster] = {}
        for each in self.computes:
            cluster = cluster_of(each.compute_name, each.properties.properties, sizes)
            if cluster is not None:
                clusters[each.cluster] = cluster
        return structs.replace(self.environment, clusters=clusters)


class _Size(Struct, frozen=True, kw_only=True, rename="camel"):
    vm_size: str = ""


class _Inner(Struct, frozen=True, kw_only=True):
    properties: Any = None


class Compute(Struct, frozen=True, kw_only=True, rename="camel"):
    """Inputs of an AmlCompute that a stack declares."""

    compute_name: str
    properties: _Inner
    tags: dict[str, str] = {}

    @property
    def cluster(self) -> str:
        """Name the cluster as job files do."""
        return self.tags.get("cluster", self.compute_name)

    @property
    def vm_size(self) -> str:
        """Name the size of its nodes."""
        try:
            return msgspec.convert(self.properties.properties, type=prepared(_Size)).vm_size
        except msgspec.ValidationError:
            return ""


class _Workspace(Struct, frozen=True, kw_only=True, rename="camel"):
    workspace_name: str
    resource_group_name: str
    location: str


class _Platform(Struct, frozen=True, kw_only=True, rename="camel"):
    subscription_id: str = ""


def read_declared(preview: bytes, stack: str) -> Declared | None:
    """Read a preview's JSON; None where it declares no workspace on Azure.

    A resource that the stack only reads is of others, and declares nothing.
    """
    steps = [
        (_kind(each), each)
        for each in msgspec.json.decode(preview, type=prepared(Preview)).steps
        if each.new_state and "delete" not in each.op and "read" not in each.op
    ]
    workspaces = list(_inputs(steps, "machinelearningservices:Workspace", _Workspace))
    subscription = _subscription(steps, preview)
    if not workspaces or not subscription:
        return None
    (op, workspace) = workspaces[0]
    computes = [each for _, each in _inputs(steps, "machinelearningservices:Compute", Compute)]
    # Pulumi registers clusters in the order in which their identities' roles are ready.
    computes.sort(key=lambda each: each.cluster)
    groups = [each for _, each in _inputs(steps, "resources:ResourceGroup", Group)]
    identities = [
        each for _, each in _inputs(steps, "managedidentity:UserAssignedIdentity", Identity)
    ]
    return Declared(
        environment=_place(workspace, subscription, stack),
        is_new=op == "create",
        group=groups[0] if groups else None,
        identity=identities[0] if identities else None,
        computes=tuple(computes),
    )


def _kind(step: Step) -> str:
    """Name a resource's kind without the API version that it may be pinned to."""
    kind = step.new_state.type if step.new_state else ""
    parts = _AZURE.fullmatch(kind)
    return f"{parts['module']}:{parts['kind']}" if parts else kind


def _inputs(
    steps: list[tuple[str, Step]], wanted: str, kind: type[Inputs]
) -> Iterator[tuple[str, Inputs]]:
    """Yield the operation on each resource of a kind, and its inputs."""
    for name, step in steps:
        if name == wanted and step.new_state:
            yield step.op, msgspec.json.decode(step.new_state.inputs, type=prepared(kind))


def _subscription(steps: list[tuple[str, Step]], preview: bytes) -> str:
    """Find the subscription: as the platform names it, in older states in the first id."""
    for _, platform in _inputs(steps, "trainyard:cloud:Platform", _Platform):
        if platform.subscription_id:
            return platform.subscription_id
    found = _SUBSCRIPTION.search(preview.decode(errors="replace"))
    return found[1] if found else ""


def _place(declared: _Workspace, subscription: str, stack: str) -> Environment:
    """Make an environment without clusters at the place of a workspace."""
    group, name = declared.resource_group_name, declared.workspace_name
    workspace = (
        f"/subscriptions/{subscription}/resourceGroups/{group}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{name}"
    )
    return Environment(
        schema=ENVIRONMENT_SCHEMA,
        stack=stack,
        engine="azureml",
        location=declared.location,
        subscription_id=subscription,
        resource_group=group,
        workspace=Workspace(name=name, id=workspace, endpoint=""),
        storage=Storage(account="", blob_endpoint="", containers=Containers(data="", runs="")),
        registry=None,
        key_vault=None,
        clusters={},
        images={},
    )
