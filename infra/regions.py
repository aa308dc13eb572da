"""Lists Azure's public regions with their availability zones and paired regions.

Names, zones and pairs: "List of Azure regions" (learn.microsoft.com/azure/reliability/regions-list,
2025-09-23), read 2026-11-21, without the one that was still to come (denmarkeast). Storage over
zones and both regions (GZRS) was listed for exactly those with zones and a pair but japanwest,
whose zones are newer than that list (learn.microsoft.com/azure/storage/common/redundancy-regions-gzrs,
2024-02-12). Which sizes a region has is Azure's answer to each subscription, not a table's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Region:
    """One region; `pair` is where geo-redundant storage keeps its copy, None without one."""

    name: str
    has_zones: bool
    pair: str | None


def find_region(name: str) -> Region | None:
    """Find the region of exactly this name."""
    return REGIONS.get(name)


def why_no_region(name: str) -> str:
    """Explain why a name is no region, and what to write instead."""
    key = re.sub(r"[\W_]", "", name.lower())
    near = [key] if key in REGIONS else difflib.get_close_matches(key, REGIONS, n=1)
    hint = near[0] if near else "a name that `az account list-locations` prints, westeurope say"
    return f"{name!r} is not a region of Azure; hint: {hint}"


def _table(text: str) -> Mapping[str, Region]:
    """Parse rows of name, `zones` or `-`, pair or `-`."""
    regions: dict[str, Region] = {}
    for row in text.split("\n"):
        name, zones, pair = row.split()
        regions[name] = Region(
            name=name, has_zones=zones == "zones", pair=None if pair == "-" else pair
        )
    return regions


REGIONS = _table(
    """australiacentral - australiacentral2
australiacentral2 - australiacentral
australiaeast zones australiasoutheast
australiasoutheast - australiaeast
austriaeast zones -
belgiumcentral zones -
brazilsouth zones southcentralus
brazilsoutheast - brazilsouth
canadacentral zones canadaeast
canadaeast - canadacentral
centralindia zones southindia
centralus zones eastus2
chilecentral zones -
eastasia zones southeastasia
eastus zones westus
eastus2 zones centralus
francecentral zones francesouth
francesouth - francecentral
germanynorth - germanywestcentral
germanywestcentral zones germanynorth
indonesiacentral zones -
israelcentral zones -
italynorth zones -
japaneast zones japanwest
japanwest zones japaneast
koreacentral zones koreasouth
koreasouth - koreacentral
malaysiawest zones -
mexicocentral zones -
newzealandnorth zones -
northcentralus - southcentralus
northeurope zones westeurope
norwayeast zones norwaywest
norwaywest - norwayeast
polandcentral zones -
qatarcentral zones -
southafricanorth zones southafricawest
southafricawest - southafricanorth
southcentralus zones northcentralus
southeastasia zones eastasia
southindia - centralindia
spaincentral zones -
swedencentral zones swedensouth
switzerlandnorth zones switzerlandwest
switzerlandwest - switzerlandnorth
uaecentral - uaenorth
uaenorth zones uaecentral
uksouth zones ukwest
ukwest - uksouth
westcentralus - westus2
westeurope zones northeurope
westindia - southindia
westus - eastus
westus2 zones westcentralus
westus3 zones eastus"""
)
