"""Compare jobs and clusters with Azure's quota: vCPUs a family, dedicated and low priority apart.

Quotas are the subscription's in a region; a workspace may have been given a smaller share.
https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from jobs.contracts.errors import LaunchError, Refused
from jobs.contracts.spec import Cluster, Environment, JobSpec
from jobs.engines.azure_ml.clusters import read_cluster
from jobs.host import console
from jobs.host.console import count_text
from jobs.host.untrusted import parse_rows
from jobs.stacks.cost import money_text

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

Priority = Literal["dedicated", "low_priority"]
LIMITS_PAGE = "https://ml.azure.com/quota"
_WORKSPACE = "/workspaces/"
_TOTALS = {"dedicated": "dedicatedCores", "low_priority": "lowPriorityCores"}
_SUFFIXES = {"dedicated": "dedicated", "low_priority": "lowpriority"}
_WORDS = {"dedicated": "dedicated", "low_priority": "low priority"}


class Quota(Struct, frozen=True, kw_only=True):
    """One limit on vCPUs, by Azure's name for it, and how much of it is used."""

    name: str
    used: int
    limit: int

    @property
    def free(self) -> int:
        """Free vCPUs; none if the limit was lowered below the usage."""
        return max(self.limit - self.used, 0)


class _Name(Struct, frozen=True, kw_only=True, rename="camel"):
    value: str
    localized_value: str = ""


class _Usage(Struct, frozen=True, kw_only=True, rename="camel"):
    """One count. Azure spells a family's in two ways, both seen: all in `name.value`, as
    `Standard NCSv3 Family Cluster Dedicated vCPUs`; or the family alone, as
    `standardNCSv3Family`, with the words in `localizedValue` and the priority in `type`.
    """

    name: _Name
    limit: int
    id: str = ""
    type: str = ""
    current_value: int = 0

    @property
    def words(self) -> str:
        """Name of the count for people."""
        return self.name.localized_value or self.name.value

    def is_total(self, priority: Priority) -> bool:
        """Tell whether all the region's nodes of a priority count in it."""
        is_of_family = "family" in self.type.lower() or "family" in _plain(self.name.value)
        return not is_of_family and _TOTALS[priority].lower() in self.type.lower().split("/")

    def is_of(self, family: str, priority: Priority) -> bool:
        """Tell whether a family's nodes of a priority count in it."""
        whole = f"{_plain(family)}cluster{_SUFFIXES[priority]}vcpus"
        if whole in (_plain(self.name.value), _plain(self.name.localized_value)):
            return True
        is_priority = _TOTALS[priority].lower() in self.type.lower().split("/")
        return is_priority and _plain(self.name.value) == _plain(family)


def read_quotas(client: ArmClient) -> list[_Usage]:
    """Read all counts of Azure ML in the environment's region; raises CloudRefusal."""
    environment = client.environment
    path = (
        f"/subscriptions/{environment.subscription_id}/providers"
        f"/Microsoft.MachineLearningServices/locations/{environment.location}/usages"
    )
    return parse_rows(client.pages(path), _Usage)


def quotas_of(cluster: Cluster, environment: Environment, usages: Iterable[_Usage]) -> list[Quota]:
    """Pick the limits that a cluster's nodes count against; leaves out those without a number."""
    workspace = f"{environment.workspace.id}/usages".lower()
    found: list[Quota] = []
    for row in usages:
        is_ours = row.id.lower().startswith(workspace)
        if (_WORKSPACE in row.id.lower() and not is_ours) or row.limit < 0:
            continue
        if row.is_total(cluster.priority) or _is_of(row, cluster):
            name = f"{row.words} of this workspace" if is_ours else row.words
            found.append(Quota(name=name, used=row.current_value, limit=row.limit))
    return found


def _is_of(row: _Usage, cluster: Cluster) -> bool:
    return cluster.family is not None and row.is_of(cluster.family, cluster.priority)


def check_job(spec: JobSpec, environment: Environment, client: ArmClient) -> None:
    """Refuse a job that no quota will ever hold; say so where it only has to wait.

    Who may not look at the subscription's quota learns that it was not looked at.
    """
    from jobs.engines.azure_ml.refusals import CloudRefusal

    cluster = environment.clusters[spec.cluster]
    try:
        usages = read_quotas(client)
    except CloudRefusal as refusal:
        console.say(f"the quota was not checked: {refusal.message}")
        return
    quotas = quotas_of(cluster, environment, usages)
    if cluster.priority == "dedicated" and not any(_is_of(row, cluster) for row in usages):
        told = f"Azure reports no quota of `{cluster.family or cluster.size}`"
        console.say(f"{told}: if it is 0, the job waits forever; see {LIMITS_PAGE}")
    needed = spec.nodes * cluster.cpus_per_node
    if never := [each for each in quotas if needed > each.limit]:
        others = [*_fitting(spec, environment, environment, usages), *_elsewhere(spec, environment)]
        raise _refusal(spec, cluster, never, others)
    if short := [each for each in quotas if needed > each.free]:
        # Nodes that wait count as used, and the job would get them.
        idle = read_cluster(client, cluster).counts.idle
        more = (spec.nodes - idle) * cluster.cpus_per_node
        for quota in short:
            if more > quota.free:
                console.warn(f"it may wait in the queue: {_shortage(more, quota)}")


def most_nodes(cluster: Cluster, quotas: Iterable[Quota]) -> int | None:
    """Count the nodes that the limits leave the cluster, were it alone; None without a limit."""
    return min((each.limit // cluster.cpus_per_node for each in quotas), default=None)


def cluster_text(cluster: Cluster, max_nodes: int, quotas: Sequence[Quota]) -> str:
    """Tell whether the limits hold so many nodes, or by how many vCPUs they fall short."""
    needed = max_nodes * cluster.cpus_per_node
    told = (
        f"{count_text(max_nodes, 'node')} x {cluster.cpus_per_node} = {needed} vCPUs "
        f"({_WORDS[cluster.priority]})"
    )
    if not quotas:
        return f"{told}: Azure reports no limit for them"
    least = min(quotas, key=lambda each: each.limit)
    if needed <= least.limit:
        return f"{told}: within {least.limit} of `{least.name}`, {least.used} used"
    fitting = least.limit // cluster.cpus_per_node
    return (
        f"{told}: {needed - least.limit} more than the {least.limit} of `{least.name}`; "
        f"{count_text(fitting, 'node')} can start; ask for more at {LIMITS_PAGE}"
    )


def _plain(text: str) -> str:
    """Azure writes the same name with blanks, dashes and capitals as it likes."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _shortage(needed: int, quota: Quota) -> str:
    return (
        f"{needed} vCPUs are needed, and of `{quota.name}` {quota.free} are free "
        f"({quota.used} of {quota.limit} used): {needed - quota.free} short"
    )


def _refusal(
    spec: JobSpec, cluster: Cluster, never: Sequence[Quota], others: Sequence[str]
) -> Refused:
    worst = min(never, key=lambda each: each.limit)
    needed = spec.nodes * cluster.cpus_per_node
    message = (
        f"`{spec.name}` needs {needed} vCPUs ({count_text(spec.nodes, 'node')} of "
        f"{cluster.size}, {_WORDS[cluster.priority]}), and the limit of `{worst.name}` is "
        f"{worst.limit}: {needed - worst.limit} short"
    )
    fitting = worst.limit // cluster.cpus_per_node
    hints = [f"--nodes {fitting} fits"] if fitting else []
    hints += others
    hints.append(f"ask for more at {LIMITS_PAGE}")
    return Refused(message, hint="; ".join(hints))


def _fitting(
    spec: JobSpec, planned: Environment, environment: Environment, usages: Iterable[_Usage]
) -> Iterable[str]:
    """Yield what to type for each other cluster of the same kind that holds the job, and its price."""
    from jobs.jobfile.resolve import process_slots

    mine = planned.clusters[spec.cluster]
    rows = list(usages)
    for name, cluster in environment.clusters.items():
        if cluster is mine or bool(mine.gpus_per_node) != bool(cluster.gpus_per_node):
            continue
        if cluster.max_nodes < spec.nodes or process_slots(cluster) < spec.processes_per_node:
            continue
        most = most_nodes(cluster, quotas_of(cluster, environment, rows))
        if most is None or most >= spec.nodes:
            stack = "" if environment is planned else f"-s {environment.stack} "
            yield f"{stack}--cluster {name} fits ({_price(cluster, spec.nodes)})"


def _price(cluster: Cluster, num_nodes: int) -> str:
    price = cluster.price_per_node_hour
    if price is None:
        return "at an unknown price"
    return f"{money_text(price * num_nodes, cluster.currency)}/h"


def _elsewhere(spec: JobSpec, planned: Environment) -> list[str]:
    """List fitting clusters of other Azure stacks that are up and answer."""
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.stacks.prices import with_list_prices
    from jobs.stacks.read import list_stacks, load_environment

    found: list[str] = []
    try:
        stacks = [name for name, is_up in list_stacks() if is_up is not False]
    except LaunchError:  # an environment's file is all that there is
        return found
    for stack in stacks:
        if stack in {planned.stack, "local"}:
            continue
        try:
            environment = with_list_prices(load_environment(stack))
            usages = read_quotas(ArmClient(environment))
        except LaunchError:
            continue
        found += _fitting(spec, planned, environment, usages)
    return found


class QuotaCheck(Struct, frozen=True, kw_only=True):
    """One limit on vCPUs against the largest that the clusters it counts may become.

    Not `ok` is one that keeps a cluster from having even one node.
    """

    quota: str
    clusters: tuple[str, ...]
    needed: int
    used: int
    limit: int
    short: int
    ok: bool


def check_clusters(client: ArmClient) -> list[QuotaCheck]:
    """Check every limit that the environment's clusters count against; raises EnvironmentFailure."""
    environment = client.environment
    if not environment.clusters:
        return []
    usages = read_quotas(client)
    counted: dict[Quota, list[str]] = {}
    for name, cluster in environment.clusters.items():
        for quota in quotas_of(cluster, environment, usages):
            counted.setdefault(quota, []).append(name)
    return [_check(quota, names, environment.clusters) for quota, names in counted.items()]


def _check(quota: Quota, names: Sequence[str], clusters: Mapping[str, Cluster]) -> QuotaCheck:
    needed = sum(clusters[name].max_nodes * clusters[name].cpus_per_node for name in names)
    return QuotaCheck(
        quota=quota.name,
        clusters=tuple(names),
        needed=needed,
        used=quota.used,
        limit=quota.limit,
        short=max(needed - quota.limit, 0),
        ok=all(clusters[name].cpus_per_node <= quota.limit for name in names),
    )
