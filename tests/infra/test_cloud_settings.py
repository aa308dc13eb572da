"""Settings of a cloud stack become types, and everything that Azure would refuse is said at once."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from infra.cloud.settings import (
    AddressSettings,
    AlertSettings,
    BudgetSettings,
    CloudClusterSettings,
    CloudSettings,
    ExistingSettings,
    PeopleSettings,
    doubts,
)
from infra.models import SettingsError
from infra.settings import parse_settings
from infra.skus import Size
from tests.infra.cloud_declared import STACKS, environment_of, settings_of

PINNED = f"crx.azurecr.io/pytorch@sha256:{'0' * 64}"
GROUP = "aaaaaaaa-0000-4000-8000-000000000001"
DECLARE = "keep it and declare its `gpus` and `vcpus` a node (`rdma: true` with InfiniBand)"
SUBSCRIPTION = "/subscriptions/bbbbbbbb-0000-4000-8000-000000000001"
SHARED = f"{SUBSCRIPTION}/resourceGroups/rg-hub/providers"
HUB = f"{SHARED}/Microsoft.Network/virtualNetworks/hub"
SUBNET = f"{HUB}/subnets/endpoints"
BLOB = "privatelink.blob.core.windows.net"
VAULT = "privatelink.vault.azure.net"
ZONES = (
    BLOB,
    "privatelink.file.core.windows.net",
    "privatelink.vaultcore.azure.net",
    "privatelink.azurecr.io",
    "privatelink.api.azureml.ms",
    "privatelink.notebooks.azure.net",
)
TAG = "name of a tag (128 characters, none of <>%&\\?/; microsoft, azure and windows begin none)"
KV = "/subscriptions/ID/resourceGroups/NAME/providers/Microsoft.KeyVault/vaults/NAME"
NEW = {"size": "Standard_NC8x_v9", "gpus": 8, "vcpus": 64}
GPU = {"size": "Standard_NC4as_T4_v3", "priority": "low_priority", "max_nodes": 2, "idle_s": 120}
CONFIG = {
    "engine": "azureml",
    "location": "swedencentral",
    "name": "yard",
    "owner": "ada@example.org",
    "network": "public",
    "allowed_ips": ["8.8.8.8", "9.9.9.0/24"],
    "budget": {"monthly_amount": 200},
    "clusters": {"gpu": GPU},
}


def parse(config, stack):
    encoded = {
        f"trainyard:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in config.items()
    }
    return parse_settings(
        encoded, stack=stack, root=Path("/nowhere"), today=datetime.date(2026, 11, 21)
    )


def problems_of(config, stack="dev"):
    with pytest.raises(SettingsError) as caught:
        parse(config, stack)
    return caught.value.problems


def test_good_settings_become_types():
    more = {
        "generation": 3,
        "budget": {"monthly_amount": 200, "contacts": ["x@example.org", "y@example.org"]},
        "clusters": {
            "gpu": GPU | {"size": "nc4AS_t4_v3"},
            "cpu": GPU
            | {
                "size": "Standard_D4ds_v4",
                "priority": "dedicated",
                "min_nodes": 2,
                "processes_per_node": 4,
                "identity": "jobs",
                "secrets": [],
                "read": ["data", "runs"],
                "write": ["runs", "data"],
            },
        },
        "images": {"pytorch": PINNED},
        "secrets": ["wandb-key"],
        "people": {"practitioners": [GROUP], "operators": [GROUP]},
        "tags": {"cost-center": "42"},
        "alerts": {"mails": ["night@example.org"]},
        "existing": {"registry": f"{SHARED}/Microsoft.ContainerRegistry/registries/shared"},
        "role_wait_s": 0,
    }
    assert parse(CONFIG | more, "dev-alice") == CloudSettings(
        stack="dev-alice",
        stage="dev",
        location="swedencentral",
        name="yard",
        owner="ada@example.org",
        generation=3,
        network="public",
        allowed_ips=("8.8.8.8", "9.9.9.0/24"),
        budget=BudgetSettings(
            monthly_amount=200, contacts=("x@example.org", "y@example.org"), start="2026-11-01"
        ),
        clusters={
            "gpu": CloudClusterSettings(
                size="Standard_NC4as_T4_v3",
                priority="low_priority",
                min_nodes=0,
                max_nodes=2,
                idle_s=120,
                processes_per_node=1,
                identity="gpu",
                secrets=("wandb-key",),
            ),
            "cpu": CloudClusterSettings(
                size="Standard_D4ds_v4",
                priority="dedicated",
                min_nodes=2,
                max_nodes=2,
                idle_s=120,
                processes_per_node=4,
                identity="jobs",
                secrets=(),
                read=("data", "runs"),
                write=("runs", "data"),
            ),
        },
        images={"pytorch": PINNED},
        secrets=("wandb-key",),
        people=PeopleSettings(practitioners=(GROUP,), operators=(GROUP,), readers=()),
        tags={"cost-center": "42"},
        alerts=AlertSettings(mails=("night@example.org",)),
        existing=ExistingSettings(
            registry=f"{SHARED}/Microsoft.ContainerRegistry/registries/shared"
        ),
        role_wait_s=0,
    )


def test_what_may_be_left_out_has_its_default():
    settings = parse(CONFIG, "dev")
    assert settings.generation == 1
    assert settings.budget.contacts == ("ada@example.org",)
    assert (settings.images, settings.secrets, settings.people) == ({}, (), PeopleSettings())
    assert (settings.tags, settings.existing, settings.role_wait_s) == ({}, ExistingSettings(), 300)
    assert settings.alerts == AlertSettings(mails=("ada@example.org",))
    # A public stack makes no network.
    assert settings.addresses == AddressSettings()
    eight = GPU | {"size": "Standard_ND96asr_v4"}
    clusters = parse(CONFIG | {"clusters": {"gpu": eight}}, "dev").clusters
    assert clusters["gpu"].processes_per_node == 8


@pytest.mark.parametrize("stack", STACKS)
def test_the_committed_settings_are_good_and_name_no_size_that_is_going(stack):
    assert doubts(settings_of(stack)) == [
        "trainyard:owner: platform@example.com is the example address, whose mails reach nobody"
    ]


def test_a_size_that_is_going_is_a_doubt_and_no_error():
    settings = parse(CONFIG | {"clusters": {"cpu": GPU | {"size": "Standard_D4s_v3"}}}, "dev")
    (doubt,) = doubts(settings)
    assert doubt.startswith("trainyard:clusters.cpu.size: Standard_D4s_v3 goes on 20")


def test_a_cluster_that_writes_no_runs_is_a_doubt_and_no_error():
    """Jobs with `identity: user` bring their results as their sender."""
    found = parse(CONFIG | {"clusters": {"gpu": GPU | {"write": ["data"]}, "cpu": GPU}}, "dev")
    assert doubts(found) == [
        "trainyard:clusters.gpu.write: runs is not in it, so only jobs with `identity: user` bring "
        "their results; hint: write: [data, runs]"
    ]
    nothing = parse(CONFIG | {"clusters": {"gpu": GPU | {"write": []}}}, "dev")
    assert [each.partition("hint: ")[2] for each in doubts(nothing)] == ["write: [runs]"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"engine": "azure"}, 'engine: "azure" is not one of: azureml, local'),
        ({"location": "West Europe"}, "location: 'West Europe' is not a region of Azure; hint: westeurope"),
        ({"location": "westeuorpe"}, "location: 'westeuorpe' is not a region of Azure; hint: westeurope"),
        ({"name": "y"}, 'name: "y" is not a valid name (2 to 8 small letters and digits, a letter first: it begins names)'),
        ({"name": "windows"}, "name: Azure allows no name with `windows` in it"),
        ({"owner": "ada"}, 'owner: "ada" is not a valid mail address'),
        ({"owner": 250 * "a" + "@b.example"}, f'owner: "{250 * "a"}@b.example" is not a valid mail address'),
        ({"generation": 0}, "generation: 0 is not between 1 and 99"),
        ({"network": "open"}, 'network: "open" is not one of: private, public'),
        ({"network": "private"}, "allowed_ips: a private network has no public access; remove the key"),
        ({"allowed_ips": "8.8.8.8"}, 'allowed_ips: "8.8.8.8" is not a list'),
        ({"allowed_ips": ["x"]}, 'allowed_ips[0]: "x" is not an IPv4 address or range (8.8.8.0/24)'),
        ({"allowed_ips": ["8.8.8.256"]}, 'allowed_ips[0]: "8.8.8.256" is not an IPv4 address or range (8.8.8.0/24)'),
        ({"allowed_ips": ["8.8.8.8", "8.8.8.8"]}, 'allowed_ips[1]: "8.8.8.8" is there twice'),
        ({"allowed_ips": ["10.0.0.0/24"]}, "allowed_ips[0]: 10.0.0.0/24 is not public: Azure sees the address of your way into the internet"),
        ({"allowed_ips": ["8.8.8.8/31"]}, "allowed_ips[0]: 8.8.8.8/31 is too narrow for a range: Azure Storage takes its addresses one by one"),
        ({"allowed_ips": ["8.8.8.8/32"]}, "allowed_ips[0]: 8.8.8.8/32 is too narrow for a range: Azure Storage takes its addresses one by one"),
        ({"allowed_ips": ["0.0.0.0/0"]}, "allowed_ips[0]: 0.0.0.0/0 is too wide: /16 at most"),
        ({"allowed_ips": ["8.8.8.8/24"]}, "allowed_ips[0]: 8.8.8.8/24 is not a range, did you mean `8.8.8.0/24`?"),
        ({"allowed_ips": [f"8.8.{each // 200}.{each % 200 + 1}" for each in range(401)]}, "allowed_ips: 401 are more than Azure's 400"),
        ({"budget": {"monthly_amount": 1, "contacts": [f"a{each}@example.org" for each in range(51)]}}, "budget.contacts: 51 are more than Azure's 50"),
        ({"images": {"py torch": PINNED}}, "images.py torch: is not a valid name (small letters, digits, dashes; 32 at most)"),
        ({"budget": {"monthly_amount": 0}}, "budget.monthly_amount: 0 is not between 1 and 10000000"),
        ({"budget": {"monthly_amount": 1, "amount": 2}}, "budget.amount: unknown key, did you mean `monthly_amount`?"),
        ({"clusters": {}}, "clusters: is empty"),
        ({"clusters": {"tencharsxx": GPU}}, "clusters.tencharsxx: is not a valid cluster name (9 small letters, digits, dashes; a letter first)"),
        ({"clusters": {"gpu-": GPU}}, "clusters.gpu-: is not a valid cluster name (9 small letters, digits, dashes; a letter first)"),
        ({"clusters": {"gpu": GPU | {"max_nodes": 0}}}, "clusters.gpu.max_nodes: 0 is not between 1 and 1000"),
        ({"clusters": {"gpu": GPU | {"min_nodes": 3}}}, "clusters.gpu.min_nodes: 3 is more than max_nodes, 2"),
        ({"clusters": {"gpu": GPU | {"idle_s": 59}}}, "clusters.gpu.idle_s: 59 is not between 60 and 900"),
        ({"clusters": {"gpu": GPU | {"idle_s": 901}}}, "clusters.gpu.idle_s: 901 is not between 60 and 900"),
        ({"clusters": {"gpu": GPU | {"priority": "spot"}}}, 'clusters.gpu.priority: "spot" is not one of: dedicated, low_priority'),
        ({"clusters": {"gpu": GPU | {"sise": 1}}}, "clusters.gpu.sise: unknown key, did you mean `size`?"),
        ({"clusters": {"gpu": GPU | {"size": "Standard_NC6"}}}, "clusters.gpu.size: Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3"),
        ({"clusters": {"gpu": GPU | {"size": "Standard_NC4as_T4_v2"}}}, f"clusters.gpu.size: 'Standard_NC4as_T4_v2' is not in the table of sizes; hint: Standard_NC4as_T4_v3, or {DECLARE}"),
        ({"images": {"pytorch": "crx.azurecr.io/pytorch:1"}}, "images.pytorch: crx.azurecr.io/pytorch:1 is not pinned (`launch image push` prints NAME@sha256:...)"),
        ({"secrets": ["a_b"]}, 'secrets[0]: "a_b" is not a valid name of a secret (letters, digits, dashes)'),
        ({"secrets": ["key", "KEY"]}, 'secrets[1]: "KEY" is there twice'),
        ({"people": {"readers": ["ada"]}}, 'people.readers[0]: "ada" is not a valid object id of an Entra group (a GUID)'),
        ({"people": {"writers": []}}, "people.writers: unknown key, did you mean `practitioners`?"),
        ({"secrets": ["a", "B", "b"]}, 'secrets[2]: "b" is there twice'),
        ({"role_wait_s": -1}, "role_wait_s: -1 is not between 0 and 3600"),
        ({"tags": {"cost": 42}}, 'tags.cost: 42 is not a valid text of a tag (1 to 256 characters; a number in quotes)'),
        ({"tags": {"a/b": "x"}}, f"tags.a/b: is not a valid {TAG}"),
        ({"tags": {"Microsoft.x": "x"}}, f"tags.Microsoft.x: is not a valid {TAG}"),
        ({"tags": {129 * "a": "x"}}, f"tags.{129 * 'a'}: is not a valid {TAG}"),
        ({"tags": {"Owner": "x"}}, "tags.Owner: the stack sets this tag itself"),
        ({"tags": {"a": "x", "A": "x"}}, "tags.A: is there twice: Azure compares names of tags without case"),
        ({"tags": {f"t{each}": "x" for each in range(45)}}, "tags: 45 are more than the 44 that Azure takes beside the stack's"),
        ({"addresses": {"network": "10.20.0.0/24"}}, "addresses.network: a public stack has no network of its own; remove the key"),
        ({"existing": {"endpoints_subnet": SUBNET}}, "existing.endpoints_subnet: a public stack has no network of its own; remove the key"),
        ({"existing": {"key_vault": HUB}}, f'existing.key_vault: "{HUB}" is not a valid id of such a resource ({KV})'),
        ({"existing": {"resource_group": HUB}}, f'existing.resource_group: "{HUB}" is not a valid id of a resource group (/subscriptions/ID/resourceGroups/NAME)'),
        ({"existing": {"vault": HUB}}, "existing.vault: unknown key, did you mean `key_vault`?"),
        ({"alerts": {"mails": ["ada"]}}, 'alerts.mails[0]: "ada" is not a valid mail address'),
        ({"clusters": {"gpu": GPU | {"gpus": 4}}}, "clusters.gpu.gpus: Standard_NC4as_T4_v3 has 1 by the table; remove the key"),
        ({"clusters": {"gpu": GPU | {"rdma": "yes"}}}, 'clusters.gpu.rdma: "yes" is not true or false'),
        ({"clusters": {"gpu": GPU | NEW | {"size": "NC8x_v9"}}}, "clusters.gpu.size: 'NC8x_v9' does not begin with Standard_"),
        ({"clusters": {"gpu": GPU | NEW | {"size": "Standard_NC6"}}}, "clusters.gpu.size: Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3"),
        ({"clusters": {"gpu": GPU | {"identity": "A"}}}, 'clusters.gpu.identity: "A" is not a valid name of an identity (24 small letters, digits, dashes; a letter first)'),
        ({"clusters": {"gpu": GPU | {"identity": "workspace"}}}, "clusters.gpu.identity: the workspace has this one; name another"),
        ({"clusters": {"gpu": GPU | {"read": ["models"]}}}, 'clusters.gpu.read[0]: "models" is not one of: data, runs'),
        ({"clusters": {"gpu": GPU, "cpu": GPU | {"identity": "gpu", "secrets": ["k"]}}}, "clusters.cpu.secrets: differs from clusters.gpu.secrets, and both act as identity gpu"),
        ({"clusters": {"gpu": GPU | {"secrets": ["a"]}, "cpu": GPU | {"identity": "gpu", "secrets": ["b"]}}}, "clusters.cpu.secrets: differs from clusters.gpu.secrets, and both act as identity gpu"),
        ({"clusters": {"gpu": GPU | {"secrets": ["data"]}, "big": GPU | {"identity": "gpu-secret"}}}, "clusters.big.identity: the roles of gpu-secret and of clusters.gpu's identity gpu would both be named gpu-secret-data; name another identity"),
        ({"clusters": {"big": GPU | {"identity": "gpu-secret-a", "secrets": ["z"]}, "gpu": GPU | {"secrets": ["a-secret-z"]}}}, "clusters.gpu.identity: the roles of gpu and of clusters.big's identity gpu-secret-a would both be named gpu-secret-a-secret-z; name another identity"),
        ({"secrets": ["runs"], "clusters": {"gpu": GPU, "big": GPU | {"identity": "gpu-secret", "secrets": []}}}, "clusters.big.identity: the roles of gpu-secret and of clusters.gpu's identity gpu would both be named gpu-secret-runs; name another identity"),
        ({"clustres": {}}, "clustres: unknown key, did you mean `clusters`?"),
    ],
)  # fmt: skip
def test_one_wrong_setting_is_one_problem(change, problem):
    assert problems_of(CONFIG | change) == [f"trainyard:{problem}"]


def test_identities_with_names_that_begin_alike_are_taken_where_their_roles_differ_in_name():
    beside = GPU | {"identity": "gpu-secret", "read": [], "write": ["runs"]}
    clusters = {"gpu": GPU | {"secrets": ["data", "wandb-key"]}, "big": beside, "same": beside}
    assert list(parse(CONFIG | {"clusters": clusters}, "dev").clusters) == ["gpu", "big", "same"]


PRIVATE = CONFIG | {"network": "private", "allowed_ips": []}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"addresses": {"network": "10.20.0.0/15"}}, "addresses.network: 10.20.0.0/15 is not between /16 and /28"),
        ({"addresses": {"network": "10.20.0.0"}}, 'addresses.network: "10.20.0.0" is not an IPv4 range (10.20.0.0/24)'),
        ({"addresses": {"network": "10.20.0.1/24"}}, "addresses.network: 10.20.0.1/24 is not a range, did you mean `10.20.0.0/24`?"),
        ({"addresses": {"network": "8.8.8.0/24"}}, "addresses.network: 8.8.8.0/24 belongs to the internet: a network takes private addresses"),
        ({"addresses": {"network": "127.0.0.0/24"}}, "addresses.network: 127.0.0.0/24 is a range that Azure gives to no network"),
        ({"addresses": {"network": "10.20.0.0/24", "endpoints": "10.21.0.0/26"}}, "addresses.endpoints: 10.21.0.0/26 is not inside 10.20.0.0/24"),
        ({"addresses": {"endpoints": "10.21.0.0/26"}}, "addresses.endpoints: 10.21.0.0/26 is not inside 10.81.0.0/24"),
        ({"addresses": {"network": "10.20.0.0/24"}, "existing": {"network": HUB, "endpoints_subnet": SUBNET}}, "addresses: existing.endpoints_subnet has addresses already; remove the key"),
        ({"addresses": {"network": "10.20.0.0/24"}, "existing": {"network": HUB}}, "addresses.network: existing.network has addresses already; remove the key"),
        ({"existing": {"network": HUB}}, "existing.endpoints_subnet: is missing; or name addresses.endpoints, a free range for a new subnet"),
        ({"existing": {"network": f"{HUB}2", "endpoints_subnet": SUBNET}}, f"existing.endpoints_subnet: {SUBNET} is not a subnet of {HUB}2"),
        ({"existing": {"dns_zones": {BLOB: f"{SHARED}/Microsoft.Network/privateDnsZones/x.y"}}}, f"existing.dns_zones.{BLOB}: {SHARED}/Microsoft.Network/privateDnsZones/x.y is another zone"),
        ({"existing": {"dns_zones": {VAULT: f"{SHARED}/Microsoft.Network/privateDnsZones/{VAULT}"}}}, f"existing.dns_zones.{VAULT}: no endpoint of a stack uses this zone; remove it, or did you mean `privatelink.vaultcore.azure.net`?"),
        ({"existing": {"dns_zones": {"privatelink.x": f"{SHARED}/Microsoft.Network/privateDnsZones/privatelink.x"}}}, f"existing.dns_zones.privatelink.x: no endpoint of a stack uses this zone; remove it, known: {', '.join(ZONES)}"),
        ({"tags": {f"t{each}": "x" for each in range(12)}}, "tags: 12 are more than the 11 that Azure takes beside the stack's"),
    ],
)  # fmt: skip
def test_one_wrong_setting_of_a_private_stack_is_one_problem(change, problem):
    assert problems_of(PRIVATE | change) == [f"trainyard:{problem}"]


def test_a_private_stack_has_addresses_unless_its_network_is_there():
    def addresses(**change):
        found = parse(PRIVATE | change, "test").addresses
        return found.network, found.endpoints

    assert addresses() == ("10.82.0.0/24", "10.82.0.0/25")
    assert addresses(addresses={"network": "10.20.0.0/28"}) == ("10.20.0.0/28", "10.20.0.0/28")
    asked = {"network": "10.20.0.0/24", "endpoints": "10.20.0.64/26"}
    assert addresses(addresses=asked) == ("10.20.0.0/24", "10.20.0.64/26")
    assert addresses(existing={"endpoints_subnet": SUBNET}) == (None, None)


def test_ids_of_what_is_there_are_taken_in_any_case_and_zones_are_found_by_name():
    zone = f"{SHARED}/Microsoft.Network/privateDnsZones/{BLOB}"
    group = f"{SUBSCRIPTION}/resourcegroups/rg-dns"
    found = parse(PRIVATE | {"existing": {"endpoints_subnet": SUBNET, "dns_zones": group}}, "dev")
    # The subnet says its network.
    assert found.existing == ExistingSettings(network=HUB, endpoints_subnet=SUBNET, dns_zones=group)
    assert found.existing.zone_id(BLOB) == (
        f"{group}/providers/Microsoft.Network/privateDnsZones/{BLOB}"
    )
    some = parse(PRIVATE | {"existing": {"dns_zones": {BLOB: zone}}}, "dev").existing
    assert (some.zone_id(BLOB), some.zone_id("privatelink.azurecr.io")) == (zone, None)


def test_a_group_of_another_subscription_is_refused():
    config = {
        **{f"trainyard:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in CONFIG.items()},
        "trainyard:existing": json.dumps({"resource_group": f"{SUBSCRIPTION}/resourceGroups/rg"}),
        "azure-native:subscriptionId": "cccccccc-0000-4000-8000-000000000001",
    }  # fmt: skip
    with pytest.raises(SettingsError) as caught:
        parse_settings(config, stack="dev", root=Path("/nowhere"), today=datetime.date(2026, 11, 1))
    assert caught.value.problems == [
        "trainyard:existing.resource_group: is in subscription "
        "bbbbbbbb-0000-4000-8000-000000000001, azure-native:subscriptionId is "
        "cccccccc-0000-4000-8000-000000000001"
    ]


def test_a_size_that_the_table_lacks_is_taken_as_declared_and_a_doubt():
    settings = parse(CONFIG | {"clusters": {"gpu": GPU | NEW | {"rdma": True}}}, "dev")
    cluster = settings.clusters["gpu"]
    assert cluster.hardware == Size(name="Standard_NC8x_v9", vcpus=64, gpus=8, rdma=True)
    assert cluster.processes_per_node == 8
    assert doubts(settings) == [
        "trainyard:clusters.gpu.size: Standard_NC8x_v9 is not in the table; taken as declared: "
        "8 GPUs, 64 vCPUs"
    ]


def test_the_environment_has_the_hardware_of_a_size_as_declared():
    cluster = environment_of("dev", clusters={"gpu": GPU | NEW | {"rdma": True}})["clusters"]["gpu"]
    told = {
        key: cluster[key] for key in ("size", "gpus_per_node", "cpus_per_node", "rdma", "family")
    }
    assert told == {
        "size": "Standard_NC8x_v9",
        "gpus_per_node": 8,
        "cpus_per_node": 64,
        "rdma": True,
        "family": None,
    }


@pytest.mark.parametrize("stack", ["staging", "Dev", "dev_alice", "dev-", "dev-" + 14 * "a"])
def test_a_stack_that_is_no_stage_is_refused_by_name(stack):
    assert problems_of(CONFIG, stack) == [
        f"stack {stack}: a stack on Azure is called dev, test or prod, or one of them with more "
        "behind a dash (dev-alice; small letters, digits, 17 in all)"
    ]


@pytest.mark.parametrize("word", ["microsoft", "windows"])
def test_a_word_that_azure_keeps_for_itself_is_refused_in_a_stacks_name(word):
    assert problems_of(CONFIG, f"dev-{word}") == [
        f"stack dev-{word}: Azure allows no name with `{word}` in it"
    ]
    assert parse(CONFIG, "dev-window").stack == "dev-window"


def test_what_only_dev_may_be_is_refused_in_test_and_prod():
    closed = CONFIG | {"network": "private", "allowed_ips": []}
    assert problems_of(CONFIG, "test") == [
        'trainyard:network: "public" is for dev alone, test is private'
    ]
    assert problems_of(closed | {"location": "westus"}, "test") == [
        "trainyard:location: westus has no availability zones, test wants them"
    ]
    assert problems_of(closed | {"location": "polandcentral"}, "prod-eu") == [
        "trainyard:location: polandcentral has no paired region, prod keeps a copy there"
    ]
    assert parse(CONFIG | {"location": "westus"}, "dev").location == "westus"


def test_all_that_is_wrong_is_said_at_once():
    assert problems_of({"clusters": {"gpu": {"size": "NC6"}}, "color": "red"}) == [
        "trainyard:engine: is missing",
        "trainyard:location: is missing",
        "trainyard:name: is missing",
        "trainyard:owner: is missing",
        "trainyard:network: is missing",
        "trainyard:budget: is missing",
        "trainyard:clusters.gpu.priority: is missing",
        "trainyard:clusters.gpu.max_nodes: is missing",
        "trainyard:clusters.gpu.idle_s: is missing",
        "trainyard:clusters.gpu.size: Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3",
        "trainyard:color: unknown key, known: addresses, alerts, allowed_ips, budget, clusters, "
        "engine, existing, generation, images, location, name, network, owner, people, "
        "role_wait_s, secrets, tags",
    ]
