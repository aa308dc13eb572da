"""Describes single values of a cloud stack's settings as Azure takes them, for the structs' types."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from infra.models import Wrong, checked, shown, text
from infra.regions import find_region, why_no_region

_GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GROUP = rf"/subscriptions/{_GUID}/resourceGroups/[^/\s]{{1,90}}"
# Of the firewall of a storage account: it takes no wider range.
_WIDEST = 16
# The endpoints of a stack take about ten addresses, Azure five of every subnet.
_NARROWEST = 28

# In names of what has an endpoint:
# https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-reserved-resource-name
_RESERVED = ("microsoft", "windows")

# 17: with the longest prefix and generation a workspace's name then has Azure's 33 characters.
STACK = re.compile(r"(?=.{1,17}\Z)(dev|test|prod)(-[a-z0-9]+)*")

Mail = Annotated[str, text(r"(?=.{1,254}\Z)[^@\s]+@[^@\s]+\.[^@\s]+", "mail address")]
Secret = Annotated[str, text(r"[0-9a-zA-Z-]{1,127}", "name of a secret (letters, digits, dashes)")]
GroupId = Annotated[str, text(rf"{_GUID}", "object id of an Entra group (a GUID)")]
# Azure allows a compute 16 characters; a dash and six hex digits of what cannot change come behind.
ClusterName = Annotated[
    str,
    text(
        r"[a-z]([a-z0-9-]{0,7}[a-z0-9])?",
        "cluster name (9 small letters, digits, dashes; a letter first)",
    ),
]
IdentityName = Annotated[
    str,
    text(
        r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?",
        "name of an identity (24 small letters, digits, dashes; a letter first)",
    ),
]
# Those that a stack makes (infra/cloud/platform.py): no datastore leads to another.
Container = Literal["data", "runs"]
# Limits on tags: learn.microsoft.com/azure/azure-resource-manager/management/tag-resources. A name
# may have 512 characters, on a storage account 128, and every stack has storage accounts.
TagName = Annotated[
    str,
    text(
        r"(?i:(?!microsoft|azure|windows))[^<>%&\\?/\x00-\x1f]{1,128}",
        "name of a tag (128 characters, none of <>%&\\?/; microsoft, azure and windows begin none)",
    ),
]
TagValue = Annotated[
    str, text(r"[^\x00-\x1f]{1,256}", "text of a tag (1 to 256 characters; a number in quotes)")
]
SizeName = Annotated[
    str, text(r"[A-Za-z0-9_-]{1,80}", "size of a virtual machine (Standard_D4ds_v4)")
]


def _check_region(name: str, _: Mapping[str, Any]) -> str | Wrong:
    return name if find_region(name) else Wrong(why_no_region(name))


def why_reserved(name: str) -> str | None:
    """Tell which word in a name Azure keeps for itself; None where it takes the name."""
    word = next((each for each in _RESERVED if each in name), None)
    return word and f"Azure allows no name with `{word}` in it"


def _check_prefix(name: str, _: Mapping[str, Any]) -> str | Wrong:
    reason = why_reserved(name)
    return Wrong(reason) if reason else name


def _check_public_range(address: str, _: Mapping[str, Any]) -> str | Wrong:
    network = _network(address)
    if network is None:
        return Wrong(f"{shown(address)} is not an IPv4 address or range (8.8.8.0/24)")
    if "/" in address and network.prefixlen >= 31:
        return Wrong(
            f"{address} is too narrow for a range: Azure Storage takes its addresses one by one"
        )
    if network.prefixlen < _WIDEST:
        return Wrong(f"{address} is too wide: /{_WIDEST} at most")
    if "/" in address and str(network) != address:
        return Wrong(f"{address} is not a range, did you mean `{network}`?")
    if not network.is_global:
        return Wrong(
            f"{address} is not public: Azure sees the address of your way into the internet"
        )
    return address


def _check_private_range(address: str, _: Mapping[str, Any]) -> str | Wrong:
    network = _network(address)
    if network is None or "/" not in address:
        return Wrong(f"{shown(address)} is not an IPv4 range (10.20.0.0/24)")
    if not _WIDEST <= network.prefixlen <= _NARROWEST:
        return Wrong(f"{address} is not between /{_WIDEST} and /{_NARROWEST}")
    if str(network) != address:
        return Wrong(f"{address} is not a range, did you mean `{network}`?")
    if network.is_global:
        return Wrong(f"{address} belongs to the internet: a network takes private addresses")
    if network.is_loopback or network.is_link_local or network.is_multicast:
        return Wrong(f"{address} is a range that Azure gives to no network")
    return address


def _network(address: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(address, strict=False)
    except ValueError:
        return None


def _check_pinned(reference: str, _: Mapping[str, Any]) -> str | Wrong:
    if re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", reference):
        return reference
    return Wrong(f"{reference} is not pinned (`launch image push` prints NAME@sha256:...)")


def _id_of(kind: str) -> Meta:
    """Describe the id of a resource of this type (`Microsoft.Network/virtualNetworks/subnets`)."""
    space, *types = kind.split("/")
    form = f"/subscriptions/ID/resourceGroups/NAME/providers/{space}" + "".join(
        f"/{each}/NAME" for each in types
    )
    pattern = rf"(?i:{_GROUP}/providers/{re.escape(space)})" + "".join(
        rf"/(?i:{each})/[^/\s]+" for each in types
    )

    return text(pattern, f"id of such a resource ({form})")


Location = Annotated[str, checked(_check_region)]
_PREFIX = "name (2 to 8 small letters and digits, a letter first: it begins names)"
Prefix = Annotated[str, text(r"[a-z][a-z0-9]{1,7}", _PREFIX, _check_prefix)]
PublicRange = Annotated[str, checked(_check_public_range)]
PrivateRange = Annotated[str, checked(_check_private_range)]
PinnedImage = Annotated[str, checked(_check_pinned)]
ResourceGroupId = Annotated[
    str,
    text(rf"(?i:{_GROUP})", "id of a resource group (/subscriptions/ID/resourceGroups/NAME)"),
]
NetworkId = Annotated[str, _id_of("Microsoft.Network/virtualNetworks")]
SubnetId = Annotated[str, _id_of("Microsoft.Network/virtualNetworks/subnets")]
ZoneId = Annotated[str, _id_of("Microsoft.Network/privateDnsZones")]
ZoneName = Annotated[str, text(r"privatelink(\.[a-z0-9-]+)+", "name of a privatelink zone")]
LogAnalyticsId = Annotated[str, _id_of("Microsoft.OperationalInsights/workspaces")]
RegistryId = Annotated[str, _id_of("Microsoft.ContainerRegistry/registries")]
KeyVaultId = Annotated[str, _id_of("Microsoft.KeyVault/vaults")]
