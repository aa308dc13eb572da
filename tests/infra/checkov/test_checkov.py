"""Somebody else's verdict: Checkov on what the three stacks declare, written as ARM templates, and on images.

It sees 23 of our 136 rules (docs/policy.md). What it can see, prod keeps but for the
written waivers; a copy of prod with every safe value flipped keeps next to nothing.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.policy.waivers import WAIVERS
from jobs.images.recipes import VARIANTS
from jobs.images.runtimes import list_images
from tests import needs
from tests.campaign import mutants
from tests.fakes.azure_native import SUBSCRIPTION_ID
from tests.fakes.azure_native.judge import rest_body
from tests.fakes.azure_native.kinds import KINDS, fill_path
from tests.images.checkov import BROKEN, checkov_environment, lay_dockerfiles
from tests.infra.cloud_declared import declare_stack

REPO = Path(__file__).parents[3]
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
PREFIX = "azure-native:"
# What Checkov has to say about the kinds of resources that prod declares, in its own words.
RULES = {
    "CKV_AZURE_3": "storage: https only",
    "CKV_AZURE_9": "network: RDP restricted",
    "CKV_AZURE_10": "network: SSH restricted",
    "CKV_AZURE_34": "container: private",
    "CKV_AZURE_35": "storage: network rules deny",
    "CKV_AZURE_36": "storage: trusted services let in",
    "CKV_AZURE_42": "vault: recoverable",
    "CKV_AZURE_43": "storage: name",
    "CKV_AZURE_44": "storage: TLS",
    "CKV_AZURE_59": "storage: no public network",
    "CKV_AZURE_109": "vault: network rules deny",
    "CKV_AZURE_110": "vault: purge protection",
    "CKV_AZURE_111": "vault: soft delete",
    "CKV_AZURE_137": "registry: no admin",
    "CKV_AZURE_138": "registry: no anonymous pulls",
    "CKV_AZURE_139": "registry: no public network",
    "CKV_AZURE_160": "network: HTTP restricted",
    "CKV_AZURE_163": "registry: a SKU that can be scanned",
    "CKV_AZURE_166": "registry: quarantine",
    "CKV_AZURE_182": "network: two DNS servers",
    "CKV_AZURE_183": "network: own DNS",
    "CKV_AZURE_189": "vault: no public network",
    "CKV_AZURE_206": "storage: replicated to another region",
    "CKV_AZURE_233": "registry: zone redundant",
    "CKV_AZURE_243": "workspace: private endpoint",
    "CKV2_AZURE_49": "workspace: no public network",
}
# By the checklist's own values: dev is reached by `allowed_ips` and is thrown away in one go.
OF_DEV = {
    *("CKV_AZURE_59", "CKV_AZURE_139", "CKV_AZURE_189", "CKV2_AZURE_49"),
    *("CKV_AZURE_42", "CKV_AZURE_110", "CKV_AZURE_206", "CKV_AZURE_233"),
}
OF_TEST = {"CKV_AZURE_206", "CKV_AZURE_233"}
OPEN_TO_ALL = {
    "name": "all",
    "access": "Allow",
    "direction": "Inbound",
    "priority": 100,
    "protocol": "*",
    "sourceAddressPrefix": "*",
    "sourcePortRange": "*",
    "destinationAddressPrefix": "*",
    "destinationPortRange": "*",
}
# Path of an input -> the value that somebody in a hurry would give it.
FLIPPED: Mapping[str, Mapping[str, Any]] = {
    "storage:StorageAccount": {
        "enableHttpsTrafficOnly": False,
        "minimumTlsVersion": "TLS1_0",
        "publicNetworkAccess": "Enabled",
        "networkRuleSet": {"defaultAction": "Allow", "bypass": "None"},
        "sku": {"name": "Standard_LRS"},
    },
    "storage:BlobContainer": {"publicAccess": "Blob"},
    "keyvault:Vault": {
        "properties.enableSoftDelete": False,
        "properties.enablePurgeProtection": False,
        "properties.networkAcls": {"defaultAction": "Allow", "bypass": "AzureServices"},
        "properties.publicNetworkAccess": "Enabled",
    },
    "containerregistry:Registry": {
        "adminUserEnabled": True,
        "anonymousPullEnabled": True,
        "publicNetworkAccess": "Enabled",
        "sku": {"name": "Basic"},
        "zoneRedundancy": "Disabled",
    },
    "machinelearningservices:Workspace": {
        "publicNetworkAccess": "Enabled",
        "managedNetwork.outboundRules": {},
    },
    "network:NetworkSecurityGroup": {"securityRules": [OPEN_TO_ALL]},
}
# What the values above hide from Checkov: it asks neither for trusted services where all are let
# in, nor for anonymous pulls where the SKU has none.
FLIPPED_ALONE: Mapping[str, Mapping[str, Any]] = {
    "storage:StorageAccount": {"networkRuleSet.bypass": "None"},
    "containerregistry:Registry": {"anonymousPullEnabled": True},
}
# No value of ours is behind these: a name's form, and DNS servers that we leave to Azure.
KEPT_BY_THE_UNSAFE = {"CKV_AZURE_43", "CKV_AZURE_182", "CKV_AZURE_183"}


def template(resources: list[tuple[str, dict[str, Any]]]) -> str:
    """An ARM template of (type, inputs), in the names that Microsoft's own models give them."""
    found = []
    for token, inputs in resources:
        arm_type, api_version, _, body = rest_body(token, inputs)
        path = fill_path(KINDS[token], inputs, SUBSCRIPTION_ID)
        # In a template a container is called `account/default/container`.
        name = "/".join(path.rpartition("/providers/")[2].split("/")[2::2])
        found.append({"type": arm_type, "apiVersion": api_version, "name": name, **body})
    return json.dumps(
        {"$schema": SCHEMA, "contentVersion": "1.0.0.0", "resources": found}, indent=1
    )


def resources_of(stack: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (each.type, each.inputs) for each in declare_stack(stack) if each.type.startswith(PREFIX)
    ]


def flip(
    resources: list[tuple[str, dict[str, Any]]], values: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """Copy the resources with weak values in place of our careful ones."""
    flipped = copy.deepcopy(resources)
    for token, inputs in flipped:
        for path, value in values.get(token.removeprefix(PREFIX), {}).items():
            *parents, last = path.split(".")
            inner = inputs
            for parent in parents:
                inner = inner[parent]
            assert inner.get(last) != value, f"{token} {path} has that value already"
            inner[last] = value
    return flipped


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    """What each stack declares, and two careless copies of prod."""
    stacks = {stack: resources_of(stack) for stack in ("dev", "test", "prod")}
    for name, values in (("unsafe", FLIPPED), ("unsafe-alone", FLIPPED_ALONE)):
        stacks[name] = flip(stacks["prod"], values)
    return {name: template(resources) for name, resources in stacks.items()}


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory, templates: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Checkov's report of each kind of file; it takes seconds to load, so that one run is for all."""
    with needs.whole_environment():
        environment = checkov_environment(REPO)
    folder = tmp_path_factory.mktemp("judged")
    for name, text in templates.items():
        (folder / f"{name}.json").write_text(text)
    lay_dockerfiles(folder, REPO)
    arguments = ["--framework", "arm", "dockerfile", "--skip-download", "-o", "json"]
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "checkov.main", "-d", folder, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return {each["check_type"]: each for each in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def verdicts(
    reports: dict[str, dict[str, Any]], templates: dict[str, str]
) -> dict[str, dict[str, set[str]]]:
    """Ids of the rules that each template keeps and breaks (somewhere)."""
    results = reports["arm"]["results"]
    assert results["parsing_errors"] == []
    found = {name: {"kept": set[str](), "broken": set[str]()} for name in templates}
    for kind, checks in (("kept", "passed_checks"), ("broken", "failed_checks")):
        for each in results[checks]:
            found[Path(each["file_path"]).stem][kind].add(each["check_id"])
    for verdict in found.values():
        verdict["kept"] -= verdict["broken"]
    return found


def waived() -> set[str]:
    return {each for each in WAIVERS if each.startswith("CKV")} & RULES.keys()


def test_prod_keeps_every_rule_but_the_waived(verdicts):
    assert verdicts["prod"] == {"kept": RULES.keys() - waived(), "broken": waived()}


def test_dev_and_test_break_only_what_their_values_are_meant_to(verdicts):
    assert verdicts["test"]["broken"] == OF_TEST | waived()
    assert verdicts["dev"]["broken"] == OF_DEV | waived()


def test_the_unsafe_copies_break_all_that_can_be_broken(verdicts):
    assert verdicts["unsafe-alone"]["broken"] == {"CKV_AZURE_36", "CKV_AZURE_138"} | waived()
    both = verdicts["unsafe"]["broken"] | verdicts["unsafe-alone"]["broken"]
    meant = RULES.keys() - KEPT_BY_THE_UNSAFE
    mutants("rules of Checkov on prod", planted=len(meant), caught=len(both & meant))
    assert both == meant


def checks_of(reports: dict[str, dict[str, Any]], kind: str) -> set[tuple[str, str]]:
    """The checks of Dockerfiles that ended so, by the Dockerfile's folder."""
    results = reports["dockerfile"]["results"]
    return {(Path(each["file_path"]).parent.name, each["check_id"]) for each in results[kind]}


def test_every_dockerfile_keeps_the_rules_of_checkov(reports):
    every = {f"{image}-{variant}" for image in list_images(REPO) for variant in VARIANTS}
    assert {each for each in checks_of(reports, "failed_checks") if each[0] != "bad"} == set()
    waived = ("CKV_DOCKER_2", "CKV_DOCKER_8")
    assert checks_of(reports, "skipped_checks") == {(each, id_) for each in every for id_ in waived}
    passed = [
        each
        for each in reports["dockerfile"]["results"]["passed_checks"]
        if Path(each["file_path"]).parent.name in every
    ]
    assert len(passed) > 100 * len(every)


def test_checkov_refuses_a_bad_dockerfile(reports):
    failed = {id_ for name, id_ in checks_of(reports, "failed_checks") if name == "bad"}
    assert failed >= BROKEN
