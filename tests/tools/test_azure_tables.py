"""The tables of Azure come from their sources by one tool: as it makes them, so they are committed.

tests/tools/azure_tables holds a few entries of each source, as its file had them at the commit that
the committed table names.
"""

from __future__ import annotations

import csv
import re
import subprocess
from pathlib import Path

import pytest

from tests.busy import HANG_S
from tools import azure_tables
from tools.azure_tables import (
    Source,
    guide_with_sizes,
    prices_table,
    regions_table,
    sizes_table,
    without_cloud_services,
)

CUT = Path(__file__).parent / "azure_tables"
REPO = Path(__file__).parents[2]
SIZES = Source("s at 1", (CUT / "azure_instance_types.go.txt").read_text())
REGIONS = Source("r at 2", (CUT / "locations.json").read_text())
PRICES = Source("p at 3", (CUT / "zz_generated.pricing.go.txt").read_text())
BEGIN, END = "<!-- sizes: written by tools/azure_tables.py -->", "<!-- /sizes -->"


def test_sizes_that_clusters_may_have_are_taken_with_their_gpus():
    """No burstable, confidential, Arm or constrained size, none of a retired family, and none
    whose number of GPUs the source does not say (ND96is_MI300X_v5)."""
    assert sizes_table(SIZES) == (
        "# Made by tools/azure_tables.py from s at 1\n"
        "name,family,vcpus,memory_gb,gpus,gpu,gpu_memory_gb,rdma\n"
        "Standard_NC24ads_A100_v4,StandardNCADSA100v4Family,24,220,1,A100,80,no\n"
        "Standard_ND96isr_H100_v5,standardNDSH100v5Family,96,1900,8,H100,80,yes\n"
        "Standard_NV6ads_A10_v5,StandardNVADSA10v5Family,6,55,1,A10,4,no\n"
        "Standard_D4ds_v4,standardDDSv4Family,4,16,0,,0,no\n"
        "Standard_D4s_v6,StandardDsv6Family,4,16,0,,0,no\n"
        "Standard_HB176rs_v4,standardHBv4Family,176,768,0,,0,yes\n"
        "Standard_M8ms,standardMSFamily,8,218,0,,0,no\n"
    )


def test_regions_are_taken_without_geographies_and_test_regions():
    assert regions_table(REGIONS) == (
        "# Made by tools/azure_tables.py from r at 2\n"
        "name,zones,pair\n"
        "denmarkeast,yes,\n"
        "italynorth,yes,\n"
        "swedencentral,yes,swedensouth\n"
        "westus,no,eastus\n"
    )


def test_prices_are_a_line_a_region_and_a_column_a_size():
    assert prices_table(PRICES, SIZES, REGIONS) == (
        "# USD an hour and node: pay as you go, Linux. Made by tools/azure_tables.py\n"
        "# from p at 3\n"
        "date,2026-06-18\n"
        "region,Standard_D4ds_v4,Standard_D4s_v6,Standard_HB176rs_v4,Standard_M8ms,"
        "Standard_NC24ads_A100_v4,Standard_ND96isr_H100_v5,Standard_NV6ads_A10_v5\n"
        "swedencentral,0.24,0.214,9.36,2.151,4.775,127.816,0.59\n"
        "westus,0.266,0.235,,1.997,4.775,127.816,0.59\n"
    )


def test_prices_of_cloud_services_are_left_out():
    """Those of swedencentral and, of a family whose prices are all wrong, of malaysiawest."""
    amd = ("D4as_v5", "D8as_v5", "D4ads_v5", "E4as_v5", "E112ias_v5")
    sizes = (*amd, "D4s_v5", "D4ds_v5", "M8ms", "M32ms")
    vcpus = {f"Standard_{size}": int(re.findall(r"\d+", size)[0]) for size in sizes}

    def kept(**prices):
        named = {f"Standard_{name}": price for name, price in prices.items()}
        there = without_cloud_services(named, vcpus)
        assert there.items() <= named.items()
        return {name.removeprefix("Standard_") for name in there}

    others = {"E4as_v5": 0.242, "E112ias_v5": 7.454, "M8ms": 2.151, "M32ms": 5.8, "B2s": 9.0}
    dear, right = {"D4as_v5": 0.368, "D4ads_v5": 0.404}, {"D8as_v5": 0.368, "D4ds_v5": 0.24}
    assert kept(**dear, **right, **others) == {*right, *others}
    assert kept(D4as_v5=0.378, D8as_v5=0.757, D4s_v5=0.216) == {"D4s_v5"}
    assert kept(E112ias_v5=12.809, E4as_v5=0.248) == {"E4as_v5"}


def test_the_guide_lists_the_sizes_with_gpus():
    assert guide_with_sizes(f"a\n{BEGIN}\nold\n{END}\nb\n", SIZES, PRICES) == (
        f"a\n{BEGIN}\n"
        "| size | GPUs | GB each | vCPUs | GB | InfiniBand | USD/h, swedencentral, 2026-06-18 |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| Standard_NC24ads_A100_v4 | 1 A100 | 80 | 24 | 220 | | 4.775 |\n"
        "| Standard_ND96isr_H100_v5 | 8 H100 | 80 | 96 | 1900 | yes | 127.816 |\n"
        "| Standard_NV6ads_A10_v5 | part of 1 A10 | 4 | 6 | 55 | | 0.590 |\n"
        f"{END}\nb\n"
    )


def rows(table: str) -> dict[str, dict[str, str]]:
    """Parse a table: its rows by their first cells."""
    lines = [line for line in table.splitlines() if line[0] != "#" and line[:5] != "date,"]
    return {next(iter(row.values())): row for row in csv.DictReader(lines)}


@pytest.mark.parametrize(
    ("committed", "made"),
    [
        ("infra/tables/sizes.csv", sizes_table(SIZES)),
        ("infra/tables/regions.csv", regions_table(REGIONS)),
        ("jobs/stacks/list_prices.csv", prices_table(PRICES, SIZES, REGIONS)),
    ],
)
def test_the_committed_tables_are_the_tools_own(committed, made):
    ours = rows((REPO / committed).read_text())
    wanted = rows(made)
    found = {name: {key: ours[name][key] for key in row} for name, row in wanted.items()}
    assert found == wanted


def test_the_committed_guide_is_the_tools_own():
    def listed(text: str) -> list[str]:
        return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()

    made = listed(guide_with_sizes(f"{BEGIN}\n{END}", SIZES, PRICES))
    assert set(made) <= set(listed((REPO / "docs" / "azure.md").read_text()))


def test_the_tool_reads_clones_and_writes_each_table_with_its_commit(tmp_path, monkeypatch):
    clones = {
        "autoscaler": {azure_tables.SIZES_FILE: SIZES.text},
        "karpenter": {
            azure_tables.REGIONS_FILE: REGIONS.text,
            azure_tables.PRICES_FILE: PRICES.text,
        },
    }
    when = {"GIT_AUTHOR_DATE": "2026-01-02T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-02T00:00:00Z"}
    for variable, value in when.items():
        monkeypatch.setenv(variable, value)
    commits: dict[str, str] = {}
    for clone, files in clones.items():
        for path, text in files.items():
            target = tmp_path / clone / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        git = ["git", "-C", str(tmp_path / clone), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
            subprocess.run([*git, *words], check=True, timeout=HANG_S)
        said = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True
        )
        commits[clone] = said.stdout.decode().strip()
    root = tmp_path / "root"
    for folder in ("docs", "infra/tables", "jobs/stacks"):
        (root / folder).mkdir(parents=True)
    (root / "docs" / "azure.md").write_text(f"{BEGIN}\n{END}\n")
    monkeypatch.setattr(azure_tables, "ROOT", root)
    azure_tables.main(str(tmp_path / "autoscaler"), str(tmp_path / "karpenter"))
    heads = {
        path.relative_to(root).as_posix(): [line for line in path.read_text().split("\n") if "at " in line]
        for path in (root / "infra/tables").iterdir()
    }  # fmt: skip
    made = "# Made by tools/azure_tables.py from github.com"
    assert heads == {
        "infra/tables/sizes.csv": [
            f"{made}/kubernetes/autoscaler/{azure_tables.SIZES_FILE} at {commits['autoscaler']} (2026-01-02)"
        ],
        "infra/tables/regions.csv": [
            f"{made}/Azure/karpenter-provider-azure/{azure_tables.REGIONS_FILE} at {commits['karpenter']} (2026-01-02)"
        ],
    }  # fmt: skip
    assert (root / "jobs/stacks/list_prices.csv").read_text().count("\n") == 6
    assert "Standard_NV6ads_A10_v5" in (root / "docs/azure.md").read_text()
