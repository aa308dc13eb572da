"""Holds rules W, C and I: workspace, datastores, clusters, and monitoring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from infra.naming import MIN_NODES_TAG
from infra.policy.conditions import (
    absent,
    between,
    equal,
    lasting_at_most,
    one_of,
)
from infra.policy.rules import (
    Resource,
    ResourceRule,
    Stage,
    in_private,
    in_prod,
    look_up,
    property_rule,
)

WORKSPACE = "azure-native:machinelearningservices:Workspace"
COMPUTE = "azure-native:machinelearningservices:Compute"
DATASTORE = "azure-native:machinelearningservices:Datastore"
INSIGHTS = "azure-native:applicationinsights:Component"
SCALE = "properties.properties.scaleSettings"
# A stack of many small clusters is no small stack, whatever it is called.
NODES_TOGETHER: Mapping[Stage, int] = {"dev": 8, "test": 32}

_workspace = partial(property_rule, WORKSPACE)
_cluster = partial(property_rule, COMPUTE)


def _has_private_outbound_rule(workspace: Resource) -> Iterable[str]:
    rules = cast(
        "Mapping[str, Any]", look_up(workspace.inputs, "managedNetwork.outboundRules") or {}
    )
    targets = [
        look_up(rule, "destination.serviceResourceId")
        for rule in rules.values()
        if rule.get("type") == "PrivateEndpoint"
    ]
    if not any(targets):
        yield "managedNetwork.outboundRules has no rule of type PrivateEndpoint with a target"


def _has_identities(resource: Resource) -> Iterable[str]:
    if look_up(resource.inputs, "identity.type") != "UserAssigned":
        yield "identity.type is not UserAssigned"
    elif not look_up(resource.inputs, "identity.userAssignedIdentities"):
        yield "identity.userAssignedIdentities is empty"


def _no_password_or_key(store: Resource) -> Iterable[str]:
    kind = look_up(store.inputs, "properties.credentials.credentialsType")
    if kind != "None":
        yield f"properties.credentials are of type {kind!r}: identities alone read data"


RULES: tuple[ResourceRule, ...] = (
    _workspace(
        "workspace-public-network",
        "W1",
        "publicNetworkAccess",
        {
            "dev": one_of("Enabled", "Disabled"),
            "test": equal("Disabled"),
            "prod": equal("Disabled"),
        },
        sources="CKV2_AZURE_49, CKV_AZURE_144 (TF), AZR-000406, 438c38d2, AVM",
    ),
    _workspace(
        "workspace-managed-network",
        "W2",
        "managedNetwork.isolationMode",
        {
            "dev": one_of("AllowInternetOutbound", "AllowOnlyApprovedOutbound"),
            "test": equal("AllowOnlyApprovedOutbound"),
            "prod": equal("AllowOnlyApprovedOutbound"),
        },
        sources="6ddb1705, AVM",
    ),
    ResourceRule(
        name="workspace-reaches-data-privately",
        row="W3",
        says="The managed network reaches storage through a private endpoint of its own",
        sources="CKV_AZURE_243, 45e05259",
        types=(WORKSPACE,),
        check=_has_private_outbound_rule,
        stages=("test", "prod"),
    ),
    ResourceRule(
        name="workspace-identity",
        row="W4",
        says="A workspace acts as an identity that was made for it",
        sources="AZR-000407, 5f0c7d88, MCSB IM-3",
        types=(WORKSPACE,),
        check=_has_identities,
    ),
    _workspace(
        "workspace-datastores-by-identity",
        "W5",
        "systemDatastoresAuthMode",
        equal("Identity"),
        sources="AVM",
    ),
    ResourceRule(
        name="datastore-without-key",
        row="W5",
        says="A datastore holds no key, SAS or password",
        sources="own",
        types=(DATASTORE,),
        check=_no_password_or_key,
    ),
    _workspace(
        "workspace-high-impact",
        "W8",
        "hbiWorkspace",
        in_prod(equal(True)),
        sources="CKV2_AZURE_50 (TF)",
    ),
    _cluster(
        "cluster-is-amlcompute",
        "C1",
        "properties.computeType",
        equal("AmlCompute"),
        sources="own",
        why="no other kind scales to zero and is judged here",
    ),
    _cluster(
        "cluster-no-local-auth",
        "C1",
        "properties.disableLocalAuth",
        equal(True),
        sources="AZR-000404, e96a9a5f, CKV_AZURE_142 (TF)",
    ),
    _cluster(
        "cluster-no-ssh-port",
        "C2",
        "properties.properties.remoteLoginPortPublicAccess",
        equal("Disabled"),
        sources="own",
        why="left out means open",
    ),
    _cluster(
        "cluster-no-ssh-user",
        "C3",
        "properties.properties.userAccountCredentials",
        absent(),
        sources="own",
    ),
    _cluster(
        "cluster-no-public-ip",
        "C4",
        "properties.properties.enableNodePublicIp",
        in_private(equal(False)),
        sources="own",
    ),
    _cluster(
        "cluster-scales-to-zero",
        "C6",
        f"tags.{MIN_NODES_TAG}",
        one_of("0"),
        sources="CKV_AZURE_150 (TF)",
        why="the tag holds the declared minimum",
    ),
    _cluster(
        "cluster-max-nodes",
        "C7",
        f"{SCALE}.maxNodeCount",
        {"dev": between(1, 2), "test": between(1, 4), "prod": between(1, 1000)},
        sources="own (cost)",
    ),
    _cluster(
        "cluster-idle-time",
        "C7",
        f"{SCALE}.nodeIdleTimeBeforeScaleDown",
        {
            "dev": lasting_at_most("PT2M"),
            "test": lasting_at_most("PT5M"),
            "prod": lasting_at_most("PT15M"),
        },
        sources="own (cost)",
    ),
    _cluster(
        "cluster-priority",
        "C8",
        "properties.properties.vmPriority",
        {
            "dev": equal("LowPriority"),
            "test": equal("LowPriority"),
            "prod": one_of("LowPriority", "Dedicated"),
        },
        sources="own (cost)",
    ),
    ResourceRule(
        name="cluster-identity",
        row="C9",
        says="The nodes of a cluster act as an identity that was made for them",
        sources="MCSB IM-3",
        types=(COMPUTE,),
        check=_has_identities,
    ),
    property_rule(
        INSIGHTS,
        "insights-no-local-auth",
        "I1",
        "disableLocalAuth",
        in_private(equal(True)),
        sources="AZR-000484",
    ),
)
