"""Ask Azure, signed in, whether an environment's parts are there and whole: `launch env check`.

A question that nobody may ask, or that gets no answer, is `unknown`: it is neither ok nor failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from jobs.blobs.credentials import MANAGEMENT_SCOPE
from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import Cluster, Environment
from jobs.engines.azure_ml.clusters import read_cluster
from jobs.engines.azure_ml.names import HISTORY, resource_name
from jobs.engines.azure_ml.networks import (
    ENDPOINTS,
    NETWORK,
    LinkRow,
    ManagedNetwork,
    check_endpoints,
    check_network,
)
from jobs.engines.azure_ml.refusals import CloudRefusal, PrivateWorkspace
from jobs.engines.azure_ml.roles import ROLES, Grants, check_roles
from jobs.host.console import count_text
from jobs.host.parallel import parallel
from jobs.host.untrusted import parse, parse_rows
from jobs.stacks.reachability import PartCheck

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

# Azure makes them with the workspace: learn.microsoft.com/azure/machine-learning/how-to-datastore
DEFAULT_DATASTORES = (
    "workspaceblobstore",
    "workspaceartifactstore",
    "workspacefilestore",
    "workspaceworkingdirectory",
)
_WORKSPACE, _DATASTORES = "workspace", "default datastores"
_GOOD_COMPUTE = {"steady", "resizing"}


class _Properties(Struct, frozen=True, kw_only=True, rename="camel"):
    workspace_id: str = ""
    discovery_url: str = ""
    storage_account: str = ""
    public_network_access: str = "Enabled"
    managed_network: ManagedNetwork | None = None
    private_endpoint_connections: tuple[LinkRow, ...] = ()

    @property
    def host(self) -> str:
        """The host that the workspace says it is at."""
        return urlsplit(self.discovery_url).hostname or ""

    @property
    def account(self) -> str:
        """The name of the workspace's own storage account."""
        return resource_name(self.storage_account)


class _Workspace(Struct, frozen=True, kw_only=True):
    properties: _Properties


class _Store(Struct, frozen=True, kw_only=True, rename="camel"):
    account_name: str = ""


class _StoreRow(Struct, frozen=True, kw_only=True):
    name: str
    properties: _Store


def check_deployed(client: ArmClient, grants: Grants | None) -> list[PartCheck]:
    """Check the workspace, its datastores, network, endpoints, roles and clusters.

    `grants` reads the roles that the stack has given; None where only a copy of its outputs is
    there. Changes nothing; blocks for some seconds. A part that is wrong is a check of its own.
    """
    environment = client.environment
    clusters = [f"cluster {name}" for name in environment.clusters]
    try:
        client.tokens.header(MANAGEMENT_SCOPE)
    except EnvironmentFailure as failure:
        unasked = f"not asked: {failure.message}"
        hint = failure.hint or ""
        parts = [_WORKSPACE, _DATASTORES, NETWORK, ENDPOINTS, ROLES, *clusters]
        return [_unknown(part, unasked, hint) for part in parts]
    try:
        workspace = _read_workspace(client)
    except EnvironmentFailure as failure:
        behind = f"not asked: the {_WORKSPACE} cannot be read"
        parts = (_DATASTORES, NETWORK, ENDPOINTS, ROLES)
        unasked = [_unknown(part, behind) for part in parts]
        return [_troubled(part, failure) for part in (_WORKSPACE, *clusters)] + unasked
    questions: list[tuple[str, Callable[[], list[PartCheck]]]] = [
        (_WORKSPACE, lambda: _check_host(client, workspace)),
        (_DATASTORES, lambda: _check_datastores(client, workspace)),
        (NETWORK, lambda: check_network(environment, workspace.managed_network)),
        (ENDPOINTS, lambda: _check_endpoints(client, workspace)),
        (ROLES, lambda: check_roles(client, grants)),
        *(
            (f"cluster {name}", lambda name=name, each=each: [_check_cluster(client, name, each)])
            for name, each in environment.clusters.items()
        ),
    ]
    found = parallel(lambda question: _answered(*question), questions)
    return [check for checks in found for check in checks]


def _answered(part: str, ask: Callable[[], list[PartCheck]]) -> list[PartCheck]:
    try:
        return ask()
    except EnvironmentFailure as failure:
        return [_troubled(part, failure)]


def _troubled(part: str, failure: EnvironmentFailure) -> PartCheck:
    """Make the check of a question that was refused, or not answered."""
    hint = failure.hint or ""
    if isinstance(failure, Unreached):
        return _unknown(part, f"not asked: {failure.message}", hint)
    if isinstance(failure, CloudRefusal) and failure.code == "AuthorizationFailed":
        return _unknown(part, f"not allowed to look: {failure.message}", hint)
    return PartCheck(part=part, ok=False, detail=failure.message, mend=hint)


def _unknown(part: str, detail: str, mend: str = "") -> PartCheck:
    return PartCheck(part=part, ok=False, known=False, detail=detail, mend=mend)


def _read_workspace(client: ArmClient) -> _Properties:
    what = "looking at the workspace"
    return parse(client.get(client.workspace, what=what), _Workspace, what=what).properties


def _check_endpoints(client: ArmClient, workspace: _Properties) -> list[PartCheck]:
    is_private = workspace.public_network_access == "Disabled"
    return check_endpoints(client, workspace.private_endpoint_connections, is_private=is_private)


def _check_host(client: ArmClient, workspace: _Properties) -> list[PartCheck]:
    """Ask the environment's host for this workspace's experiments."""
    host = urlsplit(client.endpoint).hostname or client.endpoint
    path = f"{HISTORY}{client.workspace}/experiments"
    name, stack = client.environment.workspace.name, client.environment.stack
    try:
        # The list of experiments: learn.microsoft.com/azure/machine-learning/v1/how-to-export-delete-data
        answer = client.get(
            path, api_version=None, query={"$top": "1"}, host=client.endpoint, what=f"asking {host}"
        )
    except Unreached:
        raise
    except CloudRefusal as refusal:
        if isinstance(refusal, PrivateWorkspace) and workspace.host == host:
            detail = f"{refusal.message}; Azure itself names this host"
            mend = _own_host(workspace, client.environment)
            return [PartCheck(part=_WORKSPACE, ok=False, detail=detail, mend=mend)]
        if not workspace.host or workspace.host == host:
            raise
        detail = f"{refusal.message}; the workspace answers at {workspace.host}"
        return [PartCheck(part=_WORKSPACE, ok=False, detail=detail, mend=_newer_host(stack))]
    if not isinstance(answer.get("value"), list):
        detail = f"{host} answers, but not as the workspace `{name}`"
        return [PartCheck(part=_WORKSPACE, ok=False, detail=detail, mend=_newer_host(stack))]
    return [PartCheck(part=_WORKSPACE, ok=True, detail=f"{host} answers as `{name}`")]


def _own_host(workspace: _Properties, environment: Environment) -> str:
    """Word how to use a private workspace's own host where Azure names its region's.

    https://learn.microsoft.com/azure/machine-learning/how-to-custom-dns
    """
    own = f"https://{workspace.workspace_id}.workspace.{environment.location}.api.azureml.ms"
    return (
        f"`launch env export -s {environment.stack} --output FILE`, in FILE make {own} the "
        "`workspace.endpoint`, then `launch env check --env FILE`"
    )


def _newer_host(stack: str) -> str:
    return (
        f"`pulumi up -s {stack}`, then `launch env show -s {stack} --refresh`; a copy (--env): "
        "export or import it again"
    )


def _check_datastores(client: ArmClient, workspace: _Properties) -> list[PartCheck]:
    """Check that each default datastore is there, on the workspace's own account."""
    listed = client.pages(f"{client.workspace}/datastores", what="listing datastores")
    accounts = {each.name: each.properties.account_name for each in parse_rows(listed, _StoreRow)}
    found: list[PartCheck] = []
    for name in DEFAULT_DATASTORES:
        account = accounts.get(name)
        if account is None:
            detail = (
                "the workspace lacks it; Azure makes it with the workspace where the roles of the "
                "workspace's identity are in force"
            )
        elif workspace.account and account.lower() != workspace.account.lower():
            detail = (
                f"it is on the account {account}, and the workspace's own is {workspace.account}"
            )
        else:
            continue
        mend = _again(client.environment.stack)
        found.append(PartCheck(part=f"datastore {name}", ok=False, detail=detail, mend=mend))
    if found:
        return found
    detail = f"all {len(DEFAULT_DATASTORES)} on the account {workspace.account}"
    return [PartCheck(part=_DATASTORES, ok=True, detail=detail)]


def _again(stack: str) -> str:
    """Word the commands that make the workspace once more, now that its roles are there."""
    return (
        "before the first run make the workspace again, which forgets its history: "
        f"`pulumi destroy -s {stack} --target '**Workspace::cloud-workspace' --target-dependents`, "
        f"then `pulumi up -s {stack}`; later: docs/azure.md#what-env-check-finds"
    )


def _check_cluster(client: ArmClient, name: str, cluster: Cluster) -> PartCheck:
    live = read_cluster(client, cluster)
    part, stack = f"cluster {name}", client.environment.stack
    if live.state == "missing":
        mend = f"pulumi up --refresh -s {stack}"
        return PartCheck(part=part, ok=False, detail=f"Azure has no `{cluster.compute}`", mend=mend)
    if live.errors or live.state not in _GOOD_COMPUTE:
        detail = "; ".join([live.state, *live.errors])
        return PartCheck(
            part=part, ok=False, detail=detail, mend=f"launch cluster show {name} -s {stack}"
        )
    detail = (
        f"{live.state}, {live.nodes} of up to {count_text(live.max_nodes, 'node')} of {live.size}"
    )
    return PartCheck(part=part, ok=True, detail=detail)
