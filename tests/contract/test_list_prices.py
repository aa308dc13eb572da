"""The table of prices in jobs is about the sizes and regions that infra offers."""

from __future__ import annotations

import csv
from pathlib import Path

from infra.regions import read_regions
from infra.skus import read_sizes

TABLE = Path(__file__).parents[2] / "jobs" / "stacks" / "list_prices.csv"


def test_the_table_has_a_column_for_each_size_and_rows_for_regions_only():
    lines = TABLE.read_text().splitlines()
    _, sizes, *rows = csv.reader(line for line in lines if line[0] != "#")
    assert sizes[1:] == sorted(size.name for size in read_sizes().values())
    assert {row[0] for row in rows} <= read_regions().keys()
    assert {len(row) for row in rows} == {len(sizes)}
    assert all(float(cell) > 0 for row in rows for cell in row[1:] if cell)
