"""Read the stack's clusters in Azure (nodes, runs on them), and change how far they scale.

Only the scale is ever written, as a PATCH: a PUT would have to repeat all the rest of a cluster
(identity, closed ports), and what it forgets is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound, Refused
from jobs.contracts.spec import Cluster, Environment
from jobs.host.parallel import parallel
from jobs.host.units import parse_iso_duration
from jobs.host.untrusted import parse
from jobs.jobfile.resolve import require_cluster

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

HOURS_A_MONTH = 730
# A PATCH of a scale is known to answer at once; the nodes follow in their own time.
CHANGE_S = 120.0
POLL_S = 10.0


class NodeCounts(Struct, frozen=True, kw_only=True):
    """Numbers of nodes by state; `leaving` nodes are still paid for."""

    idle: int
    running: int
    preparing: int
    leaving: int
    unusable: int
    preempted: int


class LiveCluster(Struct, frozen=True, kw_only=True):
    """A cluster now. `nodes` are all that are there and paid for; costs are in `currency`.

    `errors` is why it cannot have more nodes, in Azure's words.
    """

    name: str
    compute: str
    size: str
    priority: Literal["dedicated", "low_priority"]
    state: str
    min_nodes: int
    max_nodes: int
    idle_s: int
    nodes: int
    wanted_nodes: int
    counts: NodeCounts
    errors: tuple[str, ...]
    price_per_node_hour: float | None
    currency: str | None

    @property
    def cost_per_hour(self) -> float | None:
        """Cost of the nodes that are there; None if the price is not known."""
        return self.price(self.nodes)

    def price(self, num_nodes: int) -> float | None:
        """Give the price of so many nodes an hour."""
        return None if self.price_per_node_hour is None else self.price_per_node_hour * num_nodes


class Node(Struct, frozen=True, kw_only=True):
    """One node; `run` is the Azure ML job on it."""

    id: str
    state: str
    address: str | None
    run: str | None


def find_cluster(environment: Environment, name: str) -> Cluster:
    """Find the cluster by its stable or physical name."""
    for key, cluster in environment.clusters.items():
        if name in (key, cluster.compute):
            return cluster
    return require_cluster(environment, name, error=NotFound)


def require_scaling(environment: Environment) -> None:
    """Raise LaunchError where clusters are no machines that come and go."""
    if environment.engine == "local":
        message = (
            f"the clusters of stack `{environment.stack}` are this machine, which cannot be scaled"
        )
        raise LaunchError(message, hint="launch env show; for a stack on Azure: -s STACK")


def read_clusters(client: ArmClient) -> list[LiveCluster]:
    """Read all clusters of the environment; one that Azure lacks is in the state `missing`."""
    return parallel(partial(read_cluster, client), list(client.environment.clusters.values()))


def read_cluster(client: ArmClient, cluster: Cluster) -> LiveCluster:
    """Read the state of a cluster; raises CloudRefusal."""
    name = _name_of(client.environment, cluster)
    path = f"{client.workspace}/computes/{cluster.compute}"
    what = f"looking at cluster `{name}`"
    found = client.find(path, what=what)
    if found is None:
        return _missing(name, cluster)
    compute = parse(found, _Resource, what=what).properties
    live = compute.properties
    counts, scale = live.node_state_counts, live.scale_settings
    return LiveCluster(
        name=name,
        compute=cluster.compute,
        size=live.vm_size or cluster.size,
        priority="low_priority" if live.vm_priority == "LowPriority" else "dedicated",
        state=_state(compute),
        min_nodes=scale.min_node_count,
        max_nodes=scale.max_node_count,
        idle_s=idle_seconds(scale.node_idle_time_before_scale_down),
        nodes=live.current_node_count,
        wanted_nodes=live.target_node_count,
        counts=NodeCounts(
            idle=counts.idle_node_count,
            running=counts.running_node_count,
            preparing=counts.preparing_node_count,
            leaving=counts.leaving_node_count,
            unusable=counts.unusable_node_count,
            preempted=counts.preempted_node_count,
        ),
        errors=tuple(each.text for each in live.errors or ()),
        price_per_node_hour=cluster.price_per_node_hour,
        currency=cluster.currency,
    )


def list_nodes(client: ArmClient, cluster: Cluster) -> list[Node]:
    """List the nodes that are there, and the job on each; raises CloudRefusal."""
    path = f"{client.workspace}/computes/{cluster.compute}/listNodes"
    what = "listing nodes"
    page = parse(client.post(path, what=what).body, _Nodes, what=what)
    rows = list(page.nodes)
    while page.next_link:
        following = urlsplit(page.next_link)
        query = dict(parse_qsl(following.query))
        answer = client.get(following.path, api_version=None, query=query, what=what)
        page = parse(answer, _Nodes, what=what)
        rows += page.nodes
    return [
        Node(
            id=each.node_id,
            state=each.node_state,
            address=each.private_ip_address,
            run=each.run_id,
        )
        for each in rows
    ]


def set_scale(
    client: ArmClient, cluster: Cluster, live: LiveCluster, *, min_nodes: int, max_nodes: int
) -> None:
    """Change how few and how many nodes a cluster may have; returns when Azure has taken it."""
    stack = client.environment.stack
    if min_nodes > max_nodes:
        message = (
            f"cluster `{live.name}` cannot keep {min_nodes} nodes and have {max_nodes} at most"
        )
        raise Refused(message, hint=f"launch cluster resize {live.name} {min_nodes} -s {stack}")
    scale = {
        "minNodeCount": min_nodes,
        "maxNodeCount": max_nodes,
        # Left out, it would go back to Azure's own.
        "nodeIdleTimeBeforeScaleDown": f"PT{live.idle_s}S",
    }
    what = f"changing the scale of cluster `{live.name}`"
    path = f"{client.workspace}/computes/{cluster.compute}"
    reply = client.patch(path, {"properties": {"properties": {"scaleSettings": scale}}}, what=what)
    if not client.wait(reply, timeout_s=CHANGE_S, what=what):
        message = f"Azure did not confirm the new scale within {CHANGE_S:.0f} s"
        raise EnvironmentFailure(message, hint=f"launch cluster show {live.name} -s {stack}")


def wait_until_empty(
    client: ArmClient, cluster: Cluster, tell: Callable[[LiveCluster], None]
) -> LiveCluster:
    """Wait until no node is left; `tell` hears of each change on the way."""
    told = None
    while True:
        live = read_cluster(client, cluster)
        if live.nodes == 0 and live.wanted_nodes == 0:
            return live
        if (live.nodes, live.counts) != told:
            told = live.nodes, live.counts
            tell(live)
        time.sleep(POLL_S)


def idle_seconds(duration: str | None) -> int:
    """Parse a duration as Azure writes it (`PT2M`); 0 if it is none."""
    return parse_iso_duration(duration or "") or 0


def _name_of(environment: Environment, cluster: Cluster) -> str:
    """Find the stable name of a cluster."""
    named = (key for key, each in environment.clusters.items() if each.compute == cluster.compute)
    return next(named, cluster.compute)


def _missing(name: str, cluster: Cluster) -> LiveCluster:
    return LiveCluster(
        name=name,
        compute=cluster.compute,
        size=cluster.size,
        priority=cluster.priority,
        state="missing",
        min_nodes=0,
        max_nodes=0,
        idle_s=0,
        nodes=0,
        wanted_nodes=0,
        counts=NodeCounts(idle=0, running=0, preparing=0, leaving=0, unusable=0, preempted=0),
        errors=(),
        price_per_node_hour=cluster.price_per_node_hour,
        currency=cluster.currency,
    )


class _Scale(Struct, frozen=True, kw_only=True, rename="camel"):
    max_node_count: int = 0
    min_node_count: int = 0
    node_idle_time_before_scale_down: str | None = None


class _Counts(Struct, frozen=True, kw_only=True, rename="camel"):
    idle_node_count: int = 0
    running_node_count: int = 0
    preparing_node_count: int = 0
    leaving_node_count: int = 0
    unusable_node_count: int = 0
    preempted_node_count: int = 0


class _Reason(Struct, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""


class _Error(Struct, frozen=True, kw_only=True):
    error: _Reason | None = None
    code: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        """Error as one line."""
        inner = self.error or _Reason(code=self.code, message=self.message)
        return (inner.message.strip().splitlines() or [inner.code])[0]


class _Live(Struct, frozen=True, kw_only=True, rename="camel"):
    vm_size: str = ""
    vm_priority: str | None = None
    scale_settings: _Scale = _Scale()
    current_node_count: int = 0
    target_node_count: int = 0
    allocation_state: str | None = None
    node_state_counts: _Counts = _Counts()
    errors: tuple[_Error, ...] | None = None


class _Compute(Struct, frozen=True, kw_only=True, rename="camel"):
    provisioning_state: str | None = None
    properties: _Live = _Live()


class _Resource(Struct, frozen=True, kw_only=True):
    properties: _Compute


class _NodeRow(Struct, frozen=True, kw_only=True, rename="camel"):
    node_id: str = ""
    node_state: str = ""
    private_ip_address: str | None = None
    run_id: str | None = None


class _Nodes(Struct, frozen=True, kw_only=True, rename="camel"):
    nodes: tuple[_NodeRow, ...] = ()
    next_link: str | None = None


def _state(compute: _Compute) -> str:
    """`steady` or `resizing`; what is being made or deleted says so instead."""
    if compute.provisioning_state not in {None, "Succeeded"}:
        return str(compute.provisioning_state).lower()
    return (compute.properties.allocation_state or "unknown").lower()
