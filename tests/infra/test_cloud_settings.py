"""Settings of a cloud stack become types, and everything that Azure would refuse is said at once."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from infra.cloud.settings import (
    BudgetSettings,
    CloudClusterSettings,
    CloudSettings,
    PeopleSettings,
    doubts,
)
from infra.sections import SettingsError
from infra.settings import parse_settings
from tests.infra.cloud_declared import STACKS, settings_of

PINNED = f"crx.azurecr.io/pytorch@sha256:{'0' * 64}"
GROUP = "aaaaaaaa-0000-4000-8000-000000000001"
GPU = {"size": "Standard_NC4as_T4_v3", "priority": "low_priority", "max_nodes": 2, "idle_s": 120}
CONFIG = {
    "engine": "azureml",
    "location": "westeurope",
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
            },
        },
        "images": {"pytorch": PINNED},
        "secrets": ["wandb-key"],
        "people": {"practitioners": [GROUP], "operators": [GROUP]},
    }
    assert parse(CONFIG | more, "dev-alice") == CloudSettings(
        stack="dev-alice",
        stage="dev",
        location="westeurope",
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
            ),
            "cpu": CloudClusterSettings(
                size="Standard_D4ds_v4",
                priority="dedicated",
                min_nodes=2,
                max_nodes=2,
                idle_s=120,
                processes_per_node=4,
            ),
        },
        images={"pytorch": PINNED},
        secrets=("wandb-key",),
        people=PeopleSettings(practitioners=(GROUP,), operators=(GROUP,), readers=()),
    )


def test_what_may_be_left_out_has_its_default():
    settings = parse(CONFIG, "dev")
    assert settings.generation == 1
    assert settings.budget.contacts == ("ada@example.org",)
    assert (settings.images, settings.secrets, settings.people) == ({}, (), PeopleSettings())
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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"engine": "azure"}, 'engine: "azure" is not one of: local, azureml'),
        ({"location": "West Europe"}, "location: 'West Europe' is not a region of Azure; hint: westeurope"),
        ({"location": "westeuorpe"}, "location: 'westeuorpe' is not a region of Azure; hint: westeurope"),
        ({"name": "y"}, 'name: "y" is not a valid name (2 to 8 small letters and digits, a letter first: it begins names)'),
        ({"name": "windows"}, "name: Azure allows no name with `windows` in it"),
        ({"owner": "ada"}, 'owner: "ada" is not a valid mail address'),
        ({"owner": 250 * "a" + "@b.example"}, f'owner: "{250 * "a"}@b.example" is not a valid mail address'),
        ({"generation": 0}, "generation: 0 is not between 1 and 99"),
        ({"network": "open"}, 'network: "open" is not one of: public, private'),
        ({"network": "private"}, "allowed_ips: a private network has no public access; remove the key"),
        ({"allowed_ips": "8.8.8.8"}, 'allowed_ips: "8.8.8.8" is not a list'),
        ({"allowed_ips": ["x"]}, 'allowed_ips[0]: "x" is not a valid IPv4 address or range (8.8.8.0/24)'),
        ({"allowed_ips": ["8.8.8.256"]}, "allowed_ips[0]: 8.8.8.256 is not a valid IPv4 address or range"),
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
        ({"clusters": {}}, "clusters: names no cluster"),
        ({"clusters": {"tencharsxx": GPU}}, "clusters.tencharsxx: is not a valid cluster name (9 small letters, digits, dashes; a letter first)"),
        ({"clusters": {"gpu-": GPU}}, "clusters.gpu-: is not a valid cluster name (9 small letters, digits, dashes; a letter first)"),
        ({"clusters": {"gpu": GPU | {"max_nodes": 0}}}, "clusters.gpu.max_nodes: 0 is not between 1 and 1000"),
        ({"clusters": {"gpu": GPU | {"min_nodes": 3}}}, "clusters.gpu.min_nodes: 3 is more than max_nodes, 2"),
        ({"clusters": {"gpu": GPU | {"idle_s": 59}}}, "clusters.gpu.idle_s: 59 is not between 60 and 900"),
        ({"clusters": {"gpu": GPU | {"idle_s": 901}}}, "clusters.gpu.idle_s: 901 is not between 60 and 900"),
        ({"clusters": {"gpu": GPU | {"priority": "spot"}}}, 'clusters.gpu.priority: "spot" is not one of: dedicated, low_priority'),
        ({"clusters": {"gpu": GPU | {"sise": 1}}}, "clusters.gpu.sise: unknown key, did you mean `size`?"),
        ({"clusters": {"gpu": GPU | {"size": "Standard_NC6"}}}, "clusters.gpu.size: Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3"),
        ({"clusters": {"gpu": GPU | {"size": "Standard_NC4as_T4_v2"}}}, "clusters.gpu.size: 'Standard_NC4as_T4_v2' is not a size that clusters can have; hint: Standard_NC4as_T4_v3"),
        ({"images": {"pytorch": "crx.azurecr.io/pytorch:1"}}, "images.pytorch: crx.azurecr.io/pytorch:1 is not pinned (`launch image push` prints NAME@sha256:...)"),
        ({"secrets": ["a_b"]}, 'secrets[0]: "a_b" is not a valid name of a secret (letters, digits, dashes)'),
        ({"secrets": ["key", "KEY"]}, 'secrets[1]: "KEY" is there twice'),
        ({"people": {"readers": ["ada"]}}, 'people.readers[0]: "ada" is not a valid object id of an Entra group (a GUID)'),
        ({"people": {"writers": []}}, "people.writers: unknown key, did you mean `practitioners`?"),
        ({"clustres": {}}, "clustres: unknown key, did you mean `clusters`?"),
    ],
)  # fmt: skip
def test_one_wrong_setting_is_one_problem(change, problem):
    assert problems_of(CONFIG | change) == [f"trainyard:{problem}"]


@pytest.mark.parametrize("stack", ["staging", "Dev", "dev_alice", "dev-", "dev-" + 14 * "a"])
def test_a_stack_that_is_no_stage_is_refused_by_name(stack):
    assert problems_of(CONFIG, stack) == [
        f"stack {stack}: a stack on Azure is called dev, test or prod, or one of them with more "
        "behind a dash (dev-alice; small letters, digits, 17 in all)"
    ]


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
        "trainyard:owner: is missing",
        "trainyard:network: is missing",
        "trainyard:location: is missing",
        "trainyard:name: is missing",
        "trainyard:budget: is missing",
        "trainyard:clusters.gpu.size: Standard_NC6 retired on 2023-08-31; hint: Standard_NC4as_T4_v3",
        "trainyard:clusters.gpu.priority: is missing",
        "trainyard:clusters.gpu.max_nodes: is missing",
        "trainyard:clusters.gpu.idle_s: is missing",
        "trainyard:color: unknown key, known: allowed_ips, budget, clusters, engine, generation, "
        "images, location, name, network, owner, people, secrets",
    ]
