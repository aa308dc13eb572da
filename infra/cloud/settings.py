"""Tells a cloud stack's settings: their types, what Azure takes of each, rules over several."""

from __future__ import annotations

import datetime
import difflib
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, structs

from infra.cloud import values
from infra.cloud.zones import ZONES
from infra.models import NAME, PROJECT, Problem, Rule, read_model, text
from infra.naming import CLUSTER_TAG, MIN_NODES_TAG, TAGS
from infra.regions import find_region
from infra.skus import Size, find_size, why_declared, why_not

Stage = Literal["dev", "test", "prod"]
Priority = Literal["dedicated", "low_priority"]
NetworkMode = Literal["public", "private"]
STAGES: tuple[str, ...] = ("dev", "test", "prod")

# A stage each, so that one hub can be peered with all three. Endpoints take the lower half; the
# upper one is free for a gateway or for machines of people.
_ADDRESSES: Mapping[Stage, str] = {
    "dev": "10.81.0.0/24",
    "test": "10.82.0.0/24",
    "prod": "10.83.0.0/24",
}
_OUR_TAGS = (*TAGS, CLUSTER_TAG, MIN_NODES_TAG)
# Azure's most on a resource, and on a private DNS zone (tag-resources, as in values.py).
_MAX_TAGS, _MAX_ZONE_TAGS = 50, 15
# Names of zones begin alike.
_NEAR_ZONE = 0.8
# Of the committed files; nobody can have it (RFC 2606).
_EXAMPLE = "example.com"

Contacts = Annotated[tuple[values.Mail, ...], Meta(max_length=50)]


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """Amount a month in the subscription's currency, addresses to mail, and the first day."""

    monthly_amount: Annotated[int, Meta(ge=1, le=10_000_000)]
    contacts: Contacts = ()
    start: str


class AlertSettings(Struct, frozen=True, kw_only=True):
    """Addresses that alerts are mailed to; those of the budget by default."""

    mails: Contacts = ()


class AddressSettings(Struct, frozen=True, kw_only=True):
    """Ranges of the network that the stack makes, and of its subnet of private endpoints."""

    network: values.PrivateRange | None = None
    endpoints: values.PrivateRange | None = None


def _subnet_of_network(network: str | None, endpoints_subnet: str | None) -> Iterator[Problem]:
    inside = (endpoints_subnet or "").rpartition("/subnets/")[0].lower()
    if network and endpoints_subnet and inside != network.lower():
        yield "endpoints_subnet", f"{endpoints_subnet} is not a subnet of {network}"


def _zones_of_our_endpoints(dns_zones: str | Mapping[str, str] | None) -> Iterator[Problem]:
    known = [zone for zones in ZONES.values() for zone in zones]
    for name, zone in dns_zones.items() if isinstance(dns_zones, dict) else ():
        if name not in known:
            # Ignored, it would leave the stack to make the zone that was meant.
            near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR_ZONE)
            hint = f"or did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
            yield f"dns_zones.{name}", f"no endpoint of a stack uses this zone; remove it, {hint}"
        elif zone.rpartition("/")[2].lower() != name:
            yield f"dns_zones.{name}", f"{zone} is another zone"


class ExistingSettings(Struct, frozen=True, kw_only=True):
    """Azure ids of what is there already: used, never deleted, changed by additions only.

    `dns_zones` is the resource group that holds all zones, or the id of each by its name.
    """

    resource_group: values.ResourceGroupId | None = None
    network: values.NetworkId | None = None
    endpoints_subnet: values.SubnetId | None = None
    dns_zones: values.ResourceGroupId | dict[values.ZoneName, values.ZoneId] | None = None
    log_analytics: values.LogAnalyticsId | None = None
    registry: values.RegistryId | None = None
    key_vault: values.KeyVaultId | None = None
    rules: ClassVar[tuple[Rule, ...]] = (_subnet_of_network, _zones_of_our_endpoints)

    def zone_id(self, name: str) -> str | None:
        """Find the id of the private DNS zone of this name; None where the stack makes it."""
        if isinstance(self.dns_zones, str):
            return f"{self.dns_zones}/providers/Microsoft.Network/privateDnsZones/{name}"
        return (self.dns_zones or {}).get(name)


def _size_can_be_had(
    size: str, gpus: int | None, vcpus: int | None, rdma: bool | None
) -> Iterator[Problem]:
    known = find_size(size)
    if known is None and (reason := why_not(size, is_declared=None not in (gpus, vcpus))):
        yield "size", reason
    for key, declared in (("gpus", gpus), ("vcpus", vcpus), ("rdma", rdma)):
        if known and declared is not None and declared != getattr(known, key):
            yield key, why_declared(known, key)


def _nodes_in_order(min_nodes: int, max_nodes: int) -> Iterator[Problem]:
    if min_nodes > max_nodes:
        yield "min_nodes", f"{min_nodes} is more than max_nodes, {max_nodes}"


class CloudClusterSettings(Struct, frozen=True, kw_only=True):
    """A cluster: `size` in Azure's spelling, idle time in seconds, ranks that a node runs.

    `gpus`, `vcpus` and `rdma` declare a size that the table lacks; `hardware` has them for every
    size. `identity` names whom its nodes act as: the cluster's key by default, and clusters with
    one identity share it. It reads the `secrets` (the stack's by default) and the containers of
    `read` and `write`.
    """

    size: values.SizeName
    priority: Priority
    min_nodes: Annotated[int, Meta(ge=0, le=1000)] = 0
    max_nodes: Annotated[int, Meta(ge=1, le=1000)]
    # Idle nodes are paid for; below a minute a node would go between two ranks' starts.
    idle_s: Annotated[int, Meta(ge=60, le=900)]
    processes_per_node: Annotated[int, Meta(ge=1, le=256)] = 0
    gpus: Annotated[int, Meta(ge=0, le=64)] | None = None
    vcpus: Annotated[int, Meta(ge=1, le=4096)] | None = None
    rdma: bool | None = None
    identity: values.IdentityName = ""
    secrets: tuple[values.Secret, ...] | None = None
    read: tuple[values.Container, ...] = ("data",)
    write: tuple[values.Container, ...] = ("runs",)
    rules: ClassVar[tuple[Rule, ...]] = (_size_can_be_had, _nodes_in_order)

    @property
    def hardware(self) -> Size:
        """The size as the table has it or as it is declared here."""
        known = find_size(self.size)
        return known or Size(
            name=self.size, vcpus=self.vcpus or 1, gpus=self.gpus or 0, rdma=bool(self.rdma)
        )

    def complete(self, key: str, secrets: tuple[str, ...]) -> CloudClusterSettings:
        """Fill in what is left out, from the cluster's key and the stack's secrets."""
        return structs.replace(
            self,
            size=self.hardware.name,
            processes_per_node=self.processes_per_node or self.hardware.gpus or 1,
            identity=self.identity or key,
            secrets=secrets if self.secrets is None else self.secrets,
        )


class PeopleSettings(Struct, frozen=True, kw_only=True):
    """Object ids of the Entra groups that launch runs, that scale clusters, and that look."""

    practitioners: tuple[values.GroupId, ...] = ()
    operators: tuple[values.GroupId, ...] = ()
    readers: tuple[values.GroupId, ...] = ()


def _stage_location(location: str, stage: Stage) -> Iterator[Problem]:
    region = find_region(location)
    assert region
    if stage != "dev" and not region.has_zones:
        yield "location", f"{location} has no availability zones, {stage} wants them"
    elif stage == "prod" and region.pair is None:
        yield "location", f"{location} has no paired region, prod keeps a copy there"


def _stage_network(network: NetworkMode, stage: Stage) -> Iterator[Problem]:
    if network == "public" and stage != "dev":
        yield "network", f'"public" is for dev alone, {stage} is private'


def _what_a_network_has(
    network: NetworkMode,
    allowed_ips: tuple[str, ...],
    addresses: AddressSettings,
    existing: ExistingSettings,
) -> Iterator[Problem]:
    if network == "private":
        if allowed_ips:
            yield "allowed_ips", "a private network has no public access; remove the key"
        return
    made = {"addresses.network": addresses.network, "addresses.endpoints": addresses.endpoints}
    for key in ("network", "endpoints_subnet", "dns_zones"):
        made[f"existing.{key}"] = getattr(existing, key)
    for key in (key for key, value in made.items() if value):
        yield key, "a public stack has no network of its own; remove the key"


def _addresses_of_our_network(
    addresses: AddressSettings, existing: ExistingSettings, stage: Stage
) -> Iterator[Problem]:
    if existing.endpoints_subnet and (addresses.network or addresses.endpoints):
        yield "addresses", "existing.endpoints_subnet has addresses already; remove the key"
    elif existing.network and addresses.network:
        yield "addresses.network", "existing.network has addresses already; remove the key"
    elif existing.network and not addresses.endpoints:
        yield (
            "existing.endpoints_subnet",
            ("is missing; or name addresses.endpoints, a free range for a new subnet"),
        )
    elif addresses.endpoints and not existing.network:
        whole = ipaddress.IPv4Network(addresses.network or _ADDRESSES[stage])
        if not ipaddress.IPv4Network(addresses.endpoints).subnet_of(whole):
            yield "addresses.endpoints", f"{addresses.endpoints} is not inside {whole}"


def _group_in_the_subscription(
    existing: ExistingSettings, subscription: str | None
) -> Iterator[Problem]:
    of_group = (existing.resource_group or "//").split("/")[2].lower()
    if subscription and of_group and of_group != subscription.lower():
        yield (
            "existing.resource_group",
            (f"is in subscription {of_group}, azure-native:subscriptionId is {subscription}"),
        )


def _tags_that_azure_takes(
    tags: dict[str, str], network: NetworkMode, existing: ExistingSettings
) -> Iterator[Problem]:
    names = [name.lower() for name in tags]
    for index, name in enumerate(tags):
        if names[index] in _OUR_TAGS:
            yield f"tags.{name}", "the stack sets this tag itself"
        elif names[index] in names[:index]:
            yield f"tags.{name}", "is there twice: Azure compares names of tags without case"
    most = _MAX_TAGS - len(_OUR_TAGS)
    if network == "private" and not isinstance(existing.dns_zones, str):
        # No cluster's tags are on a zone.
        most = _MAX_ZONE_TAGS - len(TAGS)
    if len(tags) > most:
        yield "tags", f"{len(tags)} are more than the {most} that Azure takes beside the stack's"


def _identities_do_not_mix(
    clusters: dict[str, CloudClusterSettings], secrets: tuple[str, ...]
) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for key, found in clusters.items():
        cluster = found.complete(key, secrets)
        if cluster.identity == "workspace":
            yield f"clusters.{key}.identity", "the workspace has this one; name another"
        other = first.setdefault(cluster.identity, key)
        for right in ("secrets", "read", "write"):
            theirs = getattr(clusters[other].complete(other, secrets), right)
            if set(getattr(cluster, right) or ()) != set(theirs or ()):
                yield (
                    f"clusters.{key}.{right}",
                    (
                        f"differs from clusters.{other}.{right}, and both act as identity "
                        f"{cluster.identity}"
                    ),
                )


def _roles_have_names_of_their_own(
    clusters: dict[str, CloudClusterSettings], secrets: tuple[str, ...]
) -> Iterator[Problem]:
    # As access.py names them in Pulumi's state, by identity and right, where dashes part both.
    given: dict[str, tuple[str, str]] = {}
    for key, found in clusters.items():
        cluster = found.complete(key, secrets)
        identity = cluster.identity
        of_secrets = (f"secret-{each}" for each in cluster.secrets or ())
        for right in ("workspace", "images", *cluster.read, *cluster.write, *of_secrets):
            name = f"{identity}-{right}"
            other, theirs = given.setdefault(name, (key, identity))
            if theirs != identity:
                yield (
                    f"clusters.{key}.identity",
                    (
                        f"the roles of {identity} and of clusters.{other}'s identity {theirs} "
                        f"would both be named {name}; name another identity"
                    ),
                )


class CloudSettings(Struct, frozen=True, kw_only=True):
    """Checked settings of a cloud stack."""

    engine: Literal["azureml", "local"] = "azureml"
    stack: str
    stage: Stage
    location: values.Location
    name: values.Prefix
    owner: values.Mail
    generation: Annotated[int, Meta(ge=1, le=99)] = 1
    network: NetworkMode
    # Rules of a storage account's firewall (learn.microsoft.com, storage-network-security).
    allowed_ips: Annotated[tuple[values.PublicRange, ...], Meta(max_length=400)] = ()
    addresses: AddressSettings = AddressSettings()
    existing: ExistingSettings = ExistingSettings()
    tags: dict[values.TagName, values.TagValue] = {}
    budget: BudgetSettings
    alerts: AlertSettings = AlertSettings()
    clusters: Annotated[
        dict[values.ClusterName, CloudClusterSettings],
        Meta(min_length=1),
    ]
    images: dict[
        Annotated[str, text(NAME, "name (small letters, digits, dashes; 32 at most)")],
        values.PinnedImage,
    ] = {}
    secrets: tuple[values.Secret, ...] = ()
    people: PeopleSettings = PeopleSettings()
    role_wait_s: Annotated[int, Meta(ge=0, le=3600)] = 300
    rules: ClassVar[tuple[Rule, ...]] = (
        _stage_location,
        _stage_network,
        _what_a_network_has,
        _addresses_of_our_network,
        _group_in_the_subscription,
        _tags_that_azure_takes,
        _identities_do_not_mix,
        _roles_have_names_of_their_own,
    )


def stage_of(stack: str) -> str:
    """Cut the stage off a stack's name: `dev` of `dev` and of `dev-alice`."""
    return stack.partition("-")[0]


def doubts(settings: CloudSettings) -> list[str]:
    """List settings that are allowed but hardly meant, one line each."""
    found: list[str] = []
    if settings.owner.endswith(f"@{_EXAMPLE}"):
        found.append(
            f"{PROJECT}:owner: {settings.owner} is the example address, whose mails reach nobody"
        )
    for name, cluster in settings.clusters.items():
        if "runs" not in cluster.write:
            found.append(
                f"{PROJECT}:clusters.{name}.write: runs is not in it, so only jobs with "
                "`identity: user` bring their results; "
                f"hint: write: [{', '.join((*cluster.write, 'runs'))}]"
            )
        size = cluster.hardware
        if size.retires:
            found.append(
                f"{PROJECT}:clusters.{name}.size: {size.name} goes on {size.retires}, "
                "and new subscriptions do not get it any more"
            )
        elif find_size(size.name) is None:
            found.append(
                f"{PROJECT}:clusters.{name}.size: {size.name} is not in the table; taken as "
                f"declared: {size.gpus} GPUs, {size.vcpus} vCPUs"
            )
        elif (size.gpu or "").startswith("MI"):
            found.append(
                f"{PROJECT}:clusters.{name}.size: {size.name} has AMD GPUs, which the images' CUDA "
                "cannot use"
            )
    return found


def parse_cloud(
    config: Mapping[str, Any],
    *,
    stack: str,
    subscription: str | None,
    today: datetime.date,
    problems: list[str],
) -> CloudSettings | None:
    """Read the settings; with any problem, noted in `problems`, None.

    `today` tells the month in which a new budget begins: Azure refuses one of the past.
    """
    if not values.STACK.fullmatch(stack):
        problems.append(
            f"stack {stack}: a stack on Azure is called dev, test or prod, or one of them with more "
            "behind a dash (dev-alice; small letters, digits, 17 in all)"
        )
    elif reason := values.why_reserved(stack):
        # The workspace's name has all of it.
        problems.append(f"stack {stack}: {reason}")
    given = {
        "stack": stack,
        # A name that says no stage is wrong already; the rest is judged as in the mildest one.
        "stage": stage_of(stack) if stage_of(stack) in STAGES else "dev",
        "start": today.replace(day=1).isoformat(),
        "subscription": subscription,
    }
    settings = read_model(CloudSettings, config, given, problems)
    return settings and _complete(settings)


def _complete(settings: CloudSettings) -> CloudSettings:
    """Fill in what is left out."""
    contacts = settings.budget.contacts or (settings.owner,)
    existing = settings.existing
    if existing.endpoints_subnet:
        network = existing.endpoints_subnet.rpartition("/subnets/")[0]
        existing = structs.replace(existing, network=network)
    return structs.replace(
        settings,
        addresses=_complete_addresses(settings),
        existing=existing,
        budget=structs.replace(settings.budget, contacts=contacts),
        alerts=AlertSettings(mails=settings.alerts.mails or contacts),
        clusters={
            key: cluster.complete(key, settings.secrets)
            for key, cluster in settings.clusters.items()
        },
    )


def _complete_addresses(settings: CloudSettings) -> AddressSettings:
    addresses, existing = settings.addresses, settings.existing
    if settings.network == "public" or existing.network or existing.endpoints_subnet:
        return addresses
    network = addresses.network or _ADDRESSES[settings.stage]
    whole = ipaddress.IPv4Network(network)
    lower_half = str(next(whole.subnets())) if whole.prefixlen < 28 else network
    return AddressSettings(network=network, endpoints=addresses.endpoints or lower_half)
