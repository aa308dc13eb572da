"""Checks the settings of a cloud stack against what Azure takes."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from infra.regions import find_region, why_no_region
from infra.sections import NAME, PROJECT, Section
from infra.skus import SIZES, find_size, why_not

Stage = Literal["dev", "test", "prod"]
Priority = Literal["dedicated", "low_priority"]
NetworkMode = Literal["public", "private"]
STAGES: tuple[str, ...] = ("dev", "test", "prod")

# 17: with the longest prefix and generation a workspace's name then has Azure's 33 characters.
_STACK = re.compile(r"(?=.{1,17}\Z)(dev|test|prod)(-[a-z0-9]+)*")
_LOCATION = re.compile(r"\S.*\S")
_PREFIX = re.compile(r"[a-z][a-z0-9]{1,7}")
# Azure allows 16 characters; a dash and six hex digits of what cannot change come behind.
_CLUSTER = re.compile(r"[a-z]([a-z0-9-]{0,7}[a-z0-9])?")
_MAIL = re.compile(r"(?=.{1,254}\Z)[^@\s]+@[^@\s]+\.[^@\s]+")
_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SECRET = re.compile(r"[0-9a-zA-Z-]{1,127}")
_ADDRESS = re.compile(r"\d+(\.\d+){3}(/\d+)?")
_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_MAX_NODES = 1000
_MAX_PROCESSES_PER_NODE = 256
# Idle nodes are paid for; below a minute a node would go between two ranks' starts.
_IDLE_S = (60, 900)
_MAX_MONTHLY_AMOUNT = 10_000_000
_MAX_CONTACTS = 50
# Rules of a storage account's firewall (learn.microsoft.com, storage-network-security).
_MAX_ADDRESSES = 400
_WIDEST_RANGE = 16
# Of the committed files; nobody can have it (RFC 2606).
_EXAMPLE = "example.com"


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """Amount a month in the subscription's currency, addresses to mail, and the first day."""

    monthly_amount: int
    contacts: tuple[str, ...]
    start: str


@dataclass(frozen=True, kw_only=True)
class CloudClusterSettings:
    """A cluster: `size` in Azure's spelling, idle time in seconds, ranks that a node runs."""

    size: str
    priority: Priority
    min_nodes: int
    max_nodes: int
    idle_s: int
    processes_per_node: int


@dataclass(frozen=True, kw_only=True)
class PeopleSettings:
    """Object ids of the Entra groups that launch runs, that scale clusters, and that look."""

    practitioners: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CloudSettings:
    """Checked settings of a cloud stack."""

    stack: str
    stage: Stage
    location: str
    name: str
    owner: str
    generation: int
    network: NetworkMode
    allowed_ips: tuple[str, ...]
    budget: BudgetSettings
    clusters: Mapping[str, CloudClusterSettings]
    images: Mapping[str, str]
    secrets: tuple[str, ...]
    people: PeopleSettings


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
        size = SIZES[cluster.size]
        if size.retires:
            found.append(
                f"{PROJECT}:clusters.{name}.size: {size.name} goes on {size.retires}, "
                "and new subscriptions do not get it any more"
            )
    return found


def parse_cloud(top: Section, *, stack: str, today: datetime.date) -> CloudSettings:
    """Read the settings; problems are noted in the section.

    `today` tells the month in which a new budget begins: Azure refuses one of the past.
    """
    if not _STACK.fullmatch(stack):
        top.problems.append(
            f"stack {stack}: a stack on Azure is called dev, test or prod, or one of them with more "
            "behind a dash (dev-alice; small letters, digits, 17 in all)"
        )
    stage = cast("Stage", stage_of(stack))
    owner = top.take_text("owner", _MAIL, "mail address")
    network = _parse_network(top, stage)
    settings = CloudSettings(
        stack=stack,
        stage=stage,
        location=_parse_location(top, stage),
        name=_parse_prefix(top),
        owner=owner,
        generation=top.take_number("generation", 1, 99) if top.has("generation") else 1,
        network=network,
        allowed_ips=_parse_allowed_ips(top, network),
        budget=_parse_budget(top.take_section("budget"), owner, today),
        clusters=_parse_clusters(top.take_section("clusters")),
        images=_parse_images(top),
        secrets=top.take_list("secrets", _SECRET, "name of a secret (letters, digits, dashes)"),
        people=_parse_people(top),
    )
    top.close()
    return settings


def _parse_network(top: Section, stage: Stage) -> NetworkMode:
    network = top.take_choice("network", ("public", "private"))
    if network == "public" and stage in {"test", "prod"} and top.has("network"):
        top.refuse("network", f'"public" is for dev alone, {stage} is private')
    return cast("NetworkMode", network)


def _parse_location(top: Section, stage: Stage) -> str:
    location = top.take_text("location", _LOCATION, "location (westeurope)")
    region = find_region(location) if location else None
    if location and region is None:
        top.refuse("location", why_no_region(location))
    if region and stage != "dev" and not region.has_zones:
        top.refuse("location", f"{location} has no availability zones, {stage} wants them")
    elif region and stage == "prod" and region.pair is None:
        top.refuse("location", f"{location} has no paired region, prod keeps a copy there")
    return region.name if region else location


def _parse_prefix(top: Section) -> str:
    name = top.take_text(
        "name", _PREFIX, "name (2 to 8 small letters and digits, a letter first: it begins names)"
    )
    # https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-reserved-resource-name
    if "windows" in name:
        top.refuse("name", "Azure allows no name with `windows` in it")
    return name


def _parse_allowed_ips(top: Section, network: NetworkMode) -> tuple[str, ...]:
    addresses = top.take_list("allowed_ips", _ADDRESS, "IPv4 address or range (8.8.8.0/24)")
    if addresses and network == "private":
        top.refuse("allowed_ips", "a private network has no public access; remove the key")
    if len(addresses) > _MAX_ADDRESSES:
        top.refuse("allowed_ips", f"{len(addresses)} are more than Azure's {_MAX_ADDRESSES}")
    for index, address in enumerate(addresses):
        if problem := _why_no_range(address):
            top.refuse(f"allowed_ips[{index}]", f"{address} {problem}")
    return addresses


def _why_no_range(address: str) -> str | None:
    try:
        network = ipaddress.IPv4Network(address, strict=False)
    except ValueError:
        return "is not a valid IPv4 address or range"
    prefix = network.prefixlen
    if "/" in address and prefix >= 31:
        return "is too narrow for a range: Azure Storage takes its addresses one by one"
    if prefix < _WIDEST_RANGE:
        return f"is too wide: /{_WIDEST_RANGE} at most"
    if "/" in address and str(network) != address:
        return f"is not a range, did you mean `{network}`?"
    if not network.is_global:
        return "is not public: Azure sees the address of your way into the internet"
    return None


def _parse_budget(section: Section, owner: str, today: datetime.date) -> BudgetSettings:
    amount = section.take_number("monthly_amount", 1, _MAX_MONTHLY_AMOUNT)
    contacts = section.take_list("contacts", _MAIL, "mail address")
    if len(contacts) > _MAX_CONTACTS:
        section.refuse("contacts", f"{len(contacts)} are more than Azure's {_MAX_CONTACTS}")
    section.close()
    return BudgetSettings(
        monthly_amount=amount,
        contacts=contacts or (owner,),
        start=today.replace(day=1).isoformat(),
    )


def _parse_clusters(section: Section) -> dict[str, CloudClusterSettings]:
    clusters: dict[str, CloudClusterSettings] = {}
    for name in section.mapping or ():
        if not _CLUSTER.fullmatch(name):
            section.refuse(
                name,
                "is not a valid cluster name (9 small letters, digits, dashes; a letter first)",
            )
        clusters[name] = _parse_cluster(section.take_section(name))
    if section.mapping is not None and not clusters:
        section.refuse("", "names no cluster")
    return clusters


def _parse_cluster(section: Section) -> CloudClusterSettings:
    wanted = section.take_text("size", re.compile(r"\S+"), "size of a virtual machine")
    size = find_size(wanted) if wanted else None
    if wanted and size is None:
        section.refuse("size", why_not(wanted))
    priority = section.take_choice("priority", ("dedicated", "low_priority"))
    max_nodes = section.take_number("max_nodes", 1, _MAX_NODES)
    min_nodes = section.take_number("min_nodes", 0, _MAX_NODES) if section.has("min_nodes") else 0
    if min_nodes > max_nodes:
        section.refuse("min_nodes", f"{min_nodes} is more than max_nodes, {max_nodes}")
    processes = size.gpus or 1 if size else 1
    if section.has("processes_per_node"):
        processes = section.take_number("processes_per_node", 1, _MAX_PROCESSES_PER_NODE)
    idle_s = section.take_number("idle_s", *_IDLE_S)
    section.close()
    return CloudClusterSettings(
        size=size.name if size else wanted,
        priority=cast("Priority", priority),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        idle_s=idle_s,
        processes_per_node=processes,
    )


def _parse_images(top: Section) -> dict[str, str]:
    images = top.take_texts("images")
    for name, reference in images.items():
        if not NAME.fullmatch(name):
            top.refuse(
                f"images.{name}", "is not a valid name (small letters, digits, dashes; 32 at most)"
            )
        if not _DIGEST.fullmatch(reference):
            top.refuse(
                f"images.{name}",
                f"{reference} is not pinned (`launch image push` prints NAME@sha256:...)",
            )
    return images


def _parse_people(top: Section) -> PeopleSettings:
    if not top.has("people"):
        return PeopleSettings()
    section = top.take_section("people")
    wanted = "object id of an Entra group (a GUID)"
    people = PeopleSettings(
        practitioners=section.take_list("practitioners", _GUID, wanted),
        operators=section.take_list("operators", _GUID, wanted),
        readers=section.take_list("readers", _GUID, wanted),
    )
    section.close()
    return people
