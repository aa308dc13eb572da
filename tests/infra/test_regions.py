"""The table of regions, and what a wrong name is answered with."""

from __future__ import annotations

from infra.regions import Region, find_region, read_regions, why_no_region


def test_a_region_is_known_with_its_zones_and_its_pair():
    assert find_region("westeurope") == Region(
        name="westeurope", has_zones=True, pair="northeurope"
    )
    assert find_region("italynorth") == Region(name="italynorth", has_zones=True, pair=None)
    assert find_region("westus") == Region(name="westus", has_zones=False, pair="eastus")
    assert find_region("West Europe") is None


def test_a_wrong_name_is_answered_with_the_nearest_region():
    assert (
        why_no_region("West Europe") == "'West Europe' is not a region of Azure; hint: westeurope"
    )
    assert why_no_region("westeurop") == "'westeurop' is not a region of Azure; hint: westeurope"
    assert why_no_region("atlantis").endswith(
        "hint: a name that `az account list-locations` prints, swedencentral say"
    )


def test_pairs_lead_to_regions_of_the_table_or_to_those_that_hold_copies_only():
    strangers = {
        region.pair
        for region in read_regions().values()
        if region.pair and region.pair not in read_regions()
    }
    # Not in the list of regions itself: it is for copies of swedencentral alone.
    assert strangers == {"swedensouth"}
