"""Check a workspace's managed network and the private endpoints around it, from Azure's answers."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.contracts.spec import Environment
from jobs.host.console import count_text
from jobs.host.untrusted import parse_rows
from jobs.stacks.reachability import PartCheck

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

NETWORK_API_VERSION = "2024-05-01"
NETWORK, ENDPOINTS = "managed network", "private endpoints"


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """The network's own state: Inactive until it was provisioned, then Active."""

    status: str = "Inactive"


class OutboundRule(Struct, frozen=True, kw_only=True):
    """A rule of the network: what nodes may reach."""

    status: str = ""


class ManagedNetwork(Struct, frozen=True, kw_only=True, rename="camel"):
    """The network that a workspace's nodes are in."""

    isolation_mode: str = "Disabled"
    status: NetworkStatus = NetworkStatus()
    outbound_rules: dict[str, OutboundRule] = {}


class LinkState(Struct, frozen=True, kw_only=True):
    """The state that a target's owner has given a connection."""

    status: str = ""
    description: str = ""


class Link(Struct, frozen=True, kw_only=True, rename="camel"):
    """A connection to a target; from the target's side it names none."""

    private_link_service_id: str = ""
    private_link_service_connection_state: LinkState = LinkState()


class LinkRow(Struct, frozen=True, kw_only=True):
    """A connection as Azure lists it."""

    properties: Link = Link()


class _EndpointProperties(Struct, frozen=True, kw_only=True, rename="camel"):
    private_link_service_connections: tuple[LinkRow, ...] = ()
    manual_private_link_service_connections: tuple[LinkRow, ...] = ()


class _Endpoint(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    properties: _EndpointProperties


def check_network(environment: Environment, network: ManagedNetwork | None) -> list[PartCheck]:
    """Check that the network is active, and each of its rules; nothing where there is none."""
    if network is None or network.isolation_mode == "Disabled":
        return []
    rules, status = network.outbound_rules, network.status.status
    group = quote(environment.resource_group or "")
    place = f"{quote(environment.workspace.name)} --resource-group {group}"
    bad = {rule: each.status for rule, each in rules.items() if each.status not in {"", "Active"}}
    told = ", ".join(f"{rule} {word}" for rule, word in sorted(bad.items()))
    detail, mend = "", ""
    if "Provisioning" in bad.values() and "Failed" not in bad.values():
        detail, mend = f"Azure is making it: {told}", "wait up to 30 minutes, then the same again"
    elif status != "Active":
        detail = f"it is {status}: no node can start in it"
        mend = f"`az ml workspace provision-network --name {place}`, which takes about 30 minutes"
    elif bad:
        detail = f"rules that do not work: {told}"
        mend = (
            "give the workspace's identity the role Azure AI Enterprise Network Connection Approver "
            f"on each rule's target, then `az ml workspace provision-network --name {place}`"
        )
    if detail:
        return [PartCheck(part=NETWORK, ok=False, detail=detail, mend=mend)]
    detail = f"active, {network.isolation_mode}, {count_text(len(rules), 'rule')}"
    return [PartCheck(part=NETWORK, ok=True, detail=detail)]


def check_endpoints(
    client: ArmClient, connections: Sequence[LinkRow], *, is_private: bool
) -> list[PartCheck]:
    """Check that each private endpoint of the resource group was approved by its target's owner.

    `connections` are those to the workspace, which needs one where it `is_private`.
    """
    environment = client.environment
    group = (
        f"/subscriptions/{environment.subscription_id}/resourceGroups/{environment.resource_group}"
    )
    listed = client.pages(
        f"{group}/providers/Microsoft.Network/privateEndpoints",
        api_version=NETWORK_API_VERSION,
        what="listing private endpoints",
    )
    endpoints = parse_rows(listed, _Endpoint)
    found = [
        _waiting(each, link, environment.stack)
        for each in endpoints
        for link in _links(each)
        if not _is_approved(link)
    ]
    if not found and is_private and not any(map(_is_approved, connections)):
        detail = "the workspace is private, and no approved endpoint leads to it"
        mend = f"pulumi up --refresh -s {environment.stack}"
        found.append(PartCheck(part=ENDPOINTS, ok=False, detail=detail, mend=mend))
    if found or not endpoints:
        return found
    return [PartCheck(part=ENDPOINTS, ok=True, detail=f"all {len(endpoints)} approved")]


def _links(endpoint: _Endpoint) -> tuple[LinkRow, ...]:
    properties = endpoint.properties
    return (
        *properties.private_link_service_connections,
        *properties.manual_private_link_service_connections,
    )


def _is_approved(link: LinkRow) -> bool:
    return link.properties.private_link_service_connection_state.status == "Approved"


def _waiting(endpoint: _Endpoint, link: LinkRow, stack: str) -> PartCheck:
    """Make the check of an endpoint that its target's owner has not let in."""
    state = link.properties.private_link_service_connection_state
    target = link.properties.private_link_service_id
    why = f" ({state.description})" if state.description else ""
    detail = f"{state.status or 'in no state'}{why}: it leads to {target.rpartition('/')[2]}"
    if state.status == "Pending":
        mend = (
            "the target's owner finds the connection by `az network private-endpoint-connection list "
            f"--id {quote(target)}`, then `az network private-endpoint-connection approve --id CONNECTION`"
        )
    else:
        mend = (
            f"`az network private-endpoint delete --ids {quote(endpoint.id)}`, then "
            f"`pulumi up --refresh -s {stack}`"
        )
    return PartCheck(part=f"endpoint {endpoint.name}", ok=False, detail=detail, mend=mend)
