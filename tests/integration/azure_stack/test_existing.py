"""Stacks on what others have made: used, added to, and left as it was by `destroy`."""

from __future__ import annotations

import copy

import pytest

from infra.cloud.zones import ZONES
from tests.fakes.azure_native import FOLDER, SUBSCRIPTION_ID, existing
from tests.integration.azure_stack.conftest import fresh_project
from tools.gate import SKIP

HUB = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/hub/providers"
NETWORK = f"{HUB}/Microsoft.Network/virtualNetworks/hub"
SETTINGS = {
    "resource_group": f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/training",
    "endpoints_subnet": f"{NETWORK}/subnets/endpoints",
    "dns_zones": f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/hub",
    "log_analytics": f"{HUB}/Microsoft.OperationalInsights/workspaces/central",
    "registry": f"{HUB}/Microsoft.ContainerRegistry/registries/central",
    "key_vault": f"{HUB}/Microsoft.KeyVault/vaults/central",
}


@pytest.fixture
def landing_zone(tmp_path):
    """A project of the stack `test` in a subscription with a hub, and what was there before."""
    with fresh_project(tmp_path / "test", "test") as project:
        hub = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/hub"
        zones = [
            f"{HUB}/Microsoft.Network/privateDnsZones/{zone}"
            for zones in ZONES.values()
            for zone in zones
        ]
        links = [f"{zone}/virtualNetworkLinks/hub" for zone in zones]
        subnet = SETTINGS["endpoints_subnet"]
        named = [SETTINGS[key] for key in existing.READ]
        existing.put(project.azure, hub, NETWORK, subnet, *named, *zones, *links, linked=NETWORK)
        yield project, project.live()


def made_in(project, before):
    """Types of what came to be beside what was there."""
    return {
        each["token"].removeprefix("azure-native:")
        for name, each in project.live().items()
        if name not in before
    }


def test_a_stack_on_what_is_there_adds_to_it_and_destroy_takes_back_only_that(landing_zone):
    project, before = landing_zone
    project.settings |= {"existing": SETTINGS, "tags": {"cost-center": "42"}}
    # The rules are asked as well.
    project.variables[SKIP] = "dev"
    project.up()
    assert {name: project.live()[name] for name in before} == before
    assert not made_in(project, before) & {
        "resources:ResourceGroup",
        "network:VirtualNetwork",
        "network:Subnet",
        "privatedns:PrivateZone",
        "privatedns:VirtualNetworkLink",
        "operationalinsights:Workspace",
        "containerregistry:Registry",
        "keyvault:Vault",
    }
    owned, live = project.owned(), project.live()
    workspace = live[owned["cloud-workspace"]]["inputs"]
    assert workspace["containerRegistry"] == SETTINGS["registry"]
    assert workspace["keyVault"] == SETTINGS["key_vault"]
    assert workspace["tags"]["cost-center"] == "42"
    assert project.preview("--expect-no-changes") == {}
    checked = project.launch("env", "check", "-s", "test", "--only", "changes").stdout
    assert "no resource changes" in checked

    project.destroy()
    assert project.live() == before


@pytest.mark.faults
def test_two_private_stacks_share_a_hub_and_its_zones(landing_zone, tmp_path):
    first, before = landing_zone
    shared = {key: SETTINGS[key] for key in ("endpoints_subnet", "dns_zones")}
    first.settings["existing"] = shared
    first.up()
    with fresh_project(tmp_path / "second", "test-b") as second:
        second.variables[FOLDER] = str(first.azure)
        second.settings["existing"] = shared
        second.up()
        first.destroy()
        assert first.live().keys() == before.keys() | set(second.owned().values())
        second.destroy()
    assert first.live() == before


@pytest.mark.faults
def test_a_network_that_is_there_gets_a_subnet_and_zones_of_the_stack(landing_zone):
    project, before = landing_zone
    project.settings |= {
        "existing": {"network": NETWORK},
        "addresses": {"endpoints": "10.20.1.0/26"},
    }
    said = project.up(check=False)
    # The hub has zones of these names already.
    assert "overlapping namespaces" in said

    project.settings["existing"]["dns_zones"] = SETTINGS["dns_zones"]
    project.up()
    subnet = project.live()[project.owned()["cloud-network-endpoints"]]
    assert subnet["id"] == f"{NETWORK}/subnets/snet-yard-test"
    assert subnet["inputs"]["addressPrefix"] == "10.20.1.0/26"
    project.destroy()
    assert project.live() == before


@pytest.mark.faults
def test_names_of_existing_resources_in_another_subscription_are_used_as_they_are(landing_zone):
    project, _ = landing_zone
    elsewhere = copy.deepcopy(SETTINGS)
    other = SUBSCRIPTION_ID.replace("5b1c7d1e", "00000000")
    named = ("log_analytics", "registry", "key_vault")
    for key in named:
        elsewhere[key] = elsewhere[key].replace(SUBSCRIPTION_ID, other)
    existing.put(project.azure, f"/subscriptions/{other}/resourceGroups/hub")
    existing.put(project.azure, *(elsewhere[key] for key in named))
    before = project.live()
    project.settings["existing"] = elsewhere
    project.up()
    assert {name: project.live()[name] for name in before} == before
