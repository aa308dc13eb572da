"""Finds Azure's public regions with their availability zones and paired regions.

The table, `infra/tables/regions.csv`, is made by tools/azure_tables.py, which names its source.
Which sizes a region has is Azure's answer to each subscription, not a table's.
"""

from __future__ import annotations

import csv
import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).with_name("tables") / "regions.csv"


@dataclass(frozen=True, kw_only=True)
class Region:
    """One region; `pair` is where geo-redundant storage keeps its copy, None without one."""

    name: str
    has_zones: bool
    pair: str | None


@functools.cache
def read_regions() -> Mapping[str, Region]:
    """Read the table: regions by their names."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if line[0] != "#")
        regions = [
            Region(name=row["name"], has_zones=row["zones"] == "yes", pair=row["pair"] or None)
            for row in rows
        ]
    return {region.name: region for region in regions}


def find_region(name: str) -> Region | None:
    """Find the region of exactly this name."""
    return read_regions().get(name)


def why_no_region(name: str) -> str:
    """Explain why a name is no region, and what to write instead."""
    key = re.sub(r"[\W_]", "", name.lower())
    near = difflib.get_close_matches(key, read_regions(), n=1)
    hint = near[0] if near else "a name that `az account list-locations` prints, swedencentral say"
    return f"{name!r} is not a region of Azure; hint: {hint}"
