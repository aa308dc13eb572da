"""The table of prices in jobs is about the sizes and regions that infra offers, and of Linux."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from infra.regions import read_regions
from infra.skus import read_sizes

TABLE = Path(__file__).parents[2] / "jobs" / "stacks" / "list_prices.csv"


# Sizes that the price service lists as "CloudServices", too, at the rate of Windows.
LISTED_TWICE = re.compile(r"Standard_([DE]\d+)i?a(d?s)_v5")


def test_the_table_has_a_column_for_each_size_and_rows_for_regions_only():
    lines = TABLE.read_text().splitlines()
    _, sizes, *rows = csv.reader(line for line in lines if line[0] != "#")
    assert sizes[1:] == sorted(size.name for size in read_sizes().values())
    assert {row[0] for row in rows} <= read_regions().keys()
    assert {len(row) for row in rows} == {len(sizes)}
    assert all(float(cell) > 0 for row in rows for cell in row[1:] if cell)


def test_no_size_costs_much_more_per_vcpu_than_its_family_or_its_twin_of_intel():
    """A size of AMD that does has the price of "CloudServices"; both are left unknown."""
    lines = TABLE.read_text().splitlines()
    _, names, *rows = csv.reader(line for line in lines if line[0] != "#")
    vcpus = {size.name: size.vcpus for size in read_sizes().values()}
    too_dear: list[tuple[str, str, float]] = []
    num_compared = 0
    for region, *cells in rows:
        rates = {
            name: float(cell) / vcpus[name]
            for name, cell in zip(names[1:], cells, strict=True)
            if cell
        }
        families: dict[str, dict[str, float]] = {}
        for name, rate in rates.items():
            twin = LISTED_TWICE.sub(r"Standard_\1\2_v5", name)
            families.setdefault(re.sub(r"\d+", "", twin, count=1), {})[name] = rate
        for family in families.values():
            twice = [name for name in family if LISTED_TWICE.fullmatch(name)]
            num_compared += len(twice)
            too_dear += [
                (region, name, family[name] / min(family.values()))
                for name in twice
                if family[name] > 1.2 * min(family.values())
            ]
    assert too_dear == []
    assert num_compared > 500
