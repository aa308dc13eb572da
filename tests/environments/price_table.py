"""Makes jobs/stacks/list_prices.csv: Azure's list prices of the sizes that a cluster can have.

    .venv/bin/python -m tests.environments.price_table zz_generated.pricing.go COMMIT

The file is pkg/providers/pricing/zz_generated.pricing.go of github.com/Azure/karpenter-provider-azure,
which is generated from Azure's retail-price service (pay as you go, Linux, USD an hour).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from infra.regions import REGIONS
from infra.skus import SIZES

TABLE = Path(__file__).parents[2] / "jobs" / "stacks" / "list_prices.csv"
_DATE = re.compile(r"// generated at (\d{4}-\d\d-\d\d)T")
_REGION = re.compile(r'initialOnDemandPrices\["(\w+)"\] = map')
_PRICE = re.compile(r'"(\w+)":\s+([0-9.]+),')


def main(generated: str, commit: str) -> None:
    """Write the table."""
    text = Path(generated).read_text(encoding="utf-8")
    dated = _DATE.search(text)
    assert dated
    sizes = sorted(SIZES)
    lines = [
        "# USD an hour and node: pay as you go, Linux. Made by tests/environments/price_table.py",
        f"# from github.com/Azure/karpenter-provider-azure at {commit}",
        f"date,{dated[1]}",
        ",".join(["region", *sizes]),
    ]
    prices = _read(text)
    for region in sorted(prices.keys() & REGIONS.keys()):
        cells = [f"{prices[region][size]:g}" if size in prices[region] else "" for size in sizes]
        if any(cells):
            lines.append(",".join([region, *cells]))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read(text: str) -> dict[str, dict[str, float]]:
    prices: dict[str, dict[str, float]] = {}
    of_region: dict[str, float] = {}
    for line in text.splitlines():
        if found := _REGION.search(line):
            of_region = prices.setdefault(found[1], {})
        elif found := _PRICE.search(line):
            of_region[found[1]] = float(found[2])
    return prices


if __name__ == "__main__":
    main(*sys.argv[1:])
