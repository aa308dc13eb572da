"""The stacks dev, test and prod declare these whole values, and settings change them so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import set_mocks
from pulumi.runtime.settings import get_monitor

from infra.cloud.account import find_account, why_unpinned
from infra.cloud.platform import CloudPlatform
from infra.roles import Role
from tests.fakes.recording_engine import RecordingEngine, declare, loops_closed
from tests.infra.cloud_declared import (
    ANSWERS,
    STACKS,
    SUBSCRIPTION,
    answers_of,
    declare_stack,
    environment_of,
    read_config,
    settings_of,
)

EXPECTED = Path(__file__).parent / "cloud_expected"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-yard-"
ROLES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions"
PRACTITIONERS = "aaaaaaaa-0000-4000-8000-000000000001"
OTHERS = "aaaaaaaa-0000-4000-8000-000000000003"
READERS = "aaaaaaaa-0000-4000-8000-000000000002"


def expected(stack: str) -> dict[str, Any]:
    tags = {
        "project": "trainyard",
        "stack": stack,
        "stage": stack,
        "owner": "platform@example.com",
    }

    def unfold(value: Any) -> Any:
        if value == "$TAGS":
            return tags
        if isinstance(value, dict):
            more = tags if value.pop("$TAGS", False) else {}
            return more | {key: unfold(each) for key, each in value.items()}
        if isinstance(value, list):
            return [unfold(each) for each in value]
        if isinstance(value, str):
            return value.replace("$GROUP", GROUP + stack).replace("$ROLES", ROLES)
        return value

    return unfold(yaml.safe_load((EXPECTED / f"{stack}.yaml").read_text()))


def declared(stack: str, **changed: Any) -> dict[str, Any]:
    return {
        f"{each.type.removeprefix('azure-native:')} {each.name}": each.inputs
        for each in declare_stack(stack, **changed)
    }


def inputs_of(name: str, stack: str, **changed: Any) -> dict[str, Any]:
    (found,) = (
        each
        for each in declare_stack(stack, **changed)
        if each.name == name and each.type.startswith("azure-native:")
    )
    return found.inputs


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_declares_exactly_what_was_reviewed(stack):
    assert declared(stack) == expected(stack)


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_of_a_stack_is_named_twice(stack):
    names = [(each.type, each.name) for each in declare_stack(stack)]
    assert len(names) == len(set(names))


# Endpoints for a hierarchical namespace, which the account does not have.
DROPPED = (
    "network-data-dfs",
    "network-data-dfs-names",
    "network-zone-dfs",
    "network-zone-dfs-link",
)


def test_a_stack_of_an_older_release_finds_its_resources_under_their_urns():
    """A resource with another name or parent would be made anew, which prod refuses."""
    people = {"practitioners": [PRACTITIONERS], "readers": [READERS], "operators": [OTHERS]}
    # Its clusters share one identity, which the settings then name.
    clusters = {
        name: {**each, "identity": "cluster"}
        for name, each in read_config("prod")["clusters"].items()
    }
    declare_stack("prod", people=people, secrets=["wandb-key"], clusters=clusters)
    urns = {urn.split("::", 2)[2] for urn in get_monitor().resources}
    old = set((EXPECTED / "urns_prod.txt").read_text().splitlines())
    assert {urn.rpartition("::cloud-")[2] for urn in old - urns} == set(DROPPED)


def test_a_stack_of_ones_own_shares_no_name_with_its_stages():
    """Two stacks of one subscription stand beside each other."""

    def named(stack: str) -> set[str]:
        return {
            value
            for inputs in declared(stack).values()
            for key, value in inputs.items()
            if key in {"accountName", "vaultName", "registryName", "resourceGroupName"}
        }

    assert len(named("dev-alice")) == len(named("dev"))
    assert not named("dev-alice") & named("dev")


def test_who_is_allowed_gets_through_both_accounts_and_the_vaults_firewall():
    addresses = ["8.8.8.8", "9.9.9.0/24"]
    changed = {"allowed_ips": addresses}
    assert [
        inputs_of(f"{name}-account", "dev", **changed)["networkRuleSet"]["ipRules"]
        for name in ("cloud-data", "cloud-workspace-storage")
    ] == 2 * [[{"action": "Allow", "iPAddressOrRange": address} for address in addresses]]
    assert inputs_of("cloud-vault", "dev", **changed)["properties"]["networkAcls"]["ipRules"] == [
        {"value": address} for address in addresses
    ]


def test_dev_may_be_private_and_then_is_reached_as_test_is():
    def endpoints(stack: str, **changed: Any) -> set[str]:
        return {name for name in declared(stack, **changed) if "PrivateEndpoint" in name}

    private = {"network": "private", "allowed_ips": None}
    assert endpoints("dev") == set()
    assert endpoints("dev", **private) == endpoints("test")
    network = inputs_of("cloud-workspace", "dev", **private)["managedNetwork"]
    # Azure adds those to the workspace's own parts by itself where they are closed.
    assert list(network["outboundRules"]) == ["data-blob"]


def test_a_generation_is_in_the_names_that_deleted_things_keep_and_in_no_other():
    before, after = declared("dev"), declared("dev", generation=2)
    assert before.keys() == after.keys()
    text = json.dumps(before)
    moved = text.replace("mlw-yard-dev-1", "mlw-yard-dev-2")
    moved = moved.replace("kv-yard-dev-1-", "kv-yard-dev-2-")
    for each in (moved := json.loads(moved), after):
        for name, inputs in each.items():
            if "RoleAssignment" in name:
                # By what it is given on.
                inputs.pop("roleAssignmentName")
    assert after == moved


def test_a_clusters_name_follows_size_and_priority_and_nothing_else():
    plain = read_config("dev")["clusters"]["gpu"]
    variants = {
        "plain": {},
        "max": {"max_nodes": 3},
        "min": {"min_nodes": 1},
        "idle": {"idle_s": 600},
        "spelling": {"size": "standard_nc4as_t4_v3"},
        "size": {"size": "Standard_NC8as_T4_v3"},
        "priority": {"priority": "dedicated"},
    }
    changed = {"clusters": {name: plain | variant for name, variant in variants.items()}}
    clusters = environment_of("dev", **changed)["clusters"]
    suffix = {name: clusters[name]["compute"].removeprefix(f"{name}-") for name in variants}
    same = {suffix[name] for name in ("plain", "max", "min", "idle", "spelling")}
    assert len(same) == 1
    assert len(same | {suffix["size"], suffix["priority"]}) == 3
    # The declared minimum is told by a tag: the live one is moved.
    inputs = inputs_of("cluster-min-compute", "dev", **changed)
    assert inputs["tags"]["min-nodes"] == "1"
    assert inputs["properties"]["properties"]["scaleSettings"]["minNodeCount"] == 1


def roles_of(identity: str, stack: str, **changed: Any) -> set[tuple[str, str]]:
    """The roles of an identity, by name, and the ends of the scopes they are given on."""
    return {
        (
            Role(each.inputs["roleDefinitionId"].rpartition("/")[2]).name,
            each.inputs["scope"].rpartition("/providers/")[2].partition("/")[2],
        )
        for each in declare_stack(stack, **changed)
        if each.inputs.get("principalId") == f"principal-of-cloud-identity-{identity}"
    }


def test_a_cluster_has_an_identity_of_its_own_with_its_own_secrets_and_containers():
    cluster = read_config("dev")["clusters"]["cpu"]
    changed: dict[str, Any] = {
        "secrets": ["wandb-key"],
        "clusters": {
            "cpu": cluster,
            "gpu": {**cluster, "secrets": ["hf-token"], "read": [], "write": ["data", "runs"]},
            "team": {**cluster, "identity": "vision"},
            "team-low": {**cluster, "identity": "vision"},
        },
    }
    names = {
        each.inputs["accountName"]: each.name.removeprefix("cloud-")
        for each in declare_stack("dev", **changed)
        if each.type.endswith(":StorageAccount")
    }
    data, own = sorted(names, key=names.__getitem__)
    vault = inputs_of("cloud-vault", "dev")["vaultName"]
    registry = inputs_of("cloud-registry", "dev")["registryName"]
    containers = f"storageAccounts/{data}/blobServices/default/containers"
    every = {
        ("BLOB_DATA_CONTRIBUTOR", f"storageAccounts/{own}"),
        ("BLOB_DATA_CONTRIBUTOR", f"{containers}/runs"),
        ("ACR_PULL", f"registries/{registry}"),
    }
    usual = every | {
        ("BLOB_DATA_READER", f"{containers}/data"),
        ("KEY_VAULT_SECRETS_USER", f"vaults/{vault}/secrets/wandb-key"),
    }
    # The first without GPUs builds dev's images, too.
    pull, push = (("ACR_PULL", f"registries/{registry}"), ("ACR_PUSH", f"registries/{registry}"))
    assert roles_of("cpu", "dev", **changed) == usual - {pull} | {push}
    assert roles_of("vision", "dev", **changed) == usual
    assert roles_of("gpu", "dev", **changed) == every | {
        ("BLOB_DATA_CONTRIBUTOR", f"{containers}/data"),
        ("KEY_VAULT_SECRETS_USER", f"vaults/{vault}/secrets/hf-token"),
    }
    used = {
        each.inputs["computeName"].rpartition("-")[0]: each.inputs["identity"][
            "userAssignedIdentities"
        ][0].rpartition("/")[2]
        for each in declare_stack("dev", **changed)
        if each.type.endswith(":Compute")
    }
    assert used == {
        "cpu": "id-yard-dev-cpu",
        "gpu": "id-yard-dev-gpu",
        "team": "id-yard-dev-vision",
        "team-low": "id-yard-dev-vision",
    }
    # What `launch plan` refuses a job by.
    told = environment_of("dev", **changed)["clusters"]
    assert {name: each["secrets"] for name, each in told.items()} == {
        "cpu": ["wandb-key"],
        "gpu": ["hf-token"],
        "team": ["wandb-key"],
        "team-low": ["wandb-key"],
    }


def test_nodes_write_only_azure_mls_own_containers_of_the_workspaces_account():
    (given,) = (
        each.inputs for each in declare_stack("dev") if each.name == "cloud-access-cpu-workspace"
    )
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    assert (given["conditionVersion"], given["condition"]) == (
        "2.0",
        f"((!(ActionMatches{{'{blobs}/write'}}) AND !(ActionMatches{{'{blobs}/add/action'}}) AND "
        f"!(ActionMatches{{'{blobs}/delete'}})) OR (@Resource[Microsoft.Storage/storageAccounts/"
        "blobServices/containers:name] StringLike 'azureml*'))",
    )


def test_alerts_watch_what_costs_unseen_and_mail_whom_the_settings_name():
    changed = {"alerts": {"mails": ["oncall@example.com"]}}
    declared_ = [each for each in declare_stack("dev", **changed) if ":monitor:" in each.type]
    (receivers,) = (each.inputs for each in declared_ if each.type.endswith(":ActionGroup"))
    assert [each["emailAddress"] for each in receivers["emailReceivers"]] == ["oncall@example.com"]
    watched = {}
    for each in declared_:
        if each.type.endswith(":MetricAlert"):
            (criterion,) = each.inputs["criteria"]["allOf"]
            (dimension,) = criterion["dimensions"]
            watched[criterion["metricName"]] = (
                dimension["name"],
                dimension["values"],
                criterion["timeAggregation"],
                criterion["operator"],
                criterion["threshold"],
                each.inputs["windowSize"],
            )
    assert watched == {
        "Idle Nodes": ("ClusterName", ["*"], "Minimum", "GreaterThan", 0, "PT1H"),
        "Unusable Nodes": ("ClusterName", ["*"], "Minimum", "GreaterThan", 0, "PT15M"),
        "Quota Utilization Percentage": (
            *("VmFamilyName", ["*"], "Maximum", "GreaterThan", 90),
            "PT1H",
        ),
        "GpuUtilizationPercentage": ("ComputeName", ["*"], "Average", "LessThan", 5, "PT1H"),
    }


def test_people_get_what_launching_scaling_and_looking_need_and_not_more():
    people = {
        "practitioners": [PRACTITIONERS, OTHERS],
        "operators": [PRACTITIONERS],
        "readers": [READERS],
    }
    inputs = [
        each.inputs
        for each in declare_stack("dev", people=people)
        if each.name.startswith("cloud-people-")
    ]
    assert {each["principalType"] for each in inputs} == {"Group"}
    assert len({each["roleAssignmentName"] for each in inputs}) == len(inputs) == 18
    given = {
        (
            each["principalId"].replace(OTHERS, PRACTITIONERS),
            each["roleDefinitionId"].removeprefix(f"{ROLES}/"),
            each["scope"].removeprefix(f"{GROUP}dev/providers/"),
        )
        for each in inputs
    }
    digest = environment_of("dev")["storage"]["account"][-4:]
    data = f"Microsoft.Storage/storageAccounts/styarddevdata{digest}/blobServices/default"
    own = f"Microsoft.Storage/storageAccounts/styarddevml{digest}"
    workspace = "Microsoft.MachineLearningServices/workspaces/mlw-yard-dev-1"
    registry = f"Microsoft.ContainerRegistry/registries/cryarddev{digest}"
    assert given == {
        (PRACTITIONERS, "f6c7c914-8db3-469d-8ca1-694a8f32e121", workspace),  # ML Data Scientist
        (PRACTITIONERS, "ba92f5b4-2d11-453d-a403-e96b0029c9fe", f"{data}/containers/data"),
        (PRACTITIONERS, "ba92f5b4-2d11-453d-a403-e96b0029c9fe", f"{data}/containers/runs"),
        (PRACTITIONERS, "ba92f5b4-2d11-453d-a403-e96b0029c9fe", own),  # Blob Data Contributor
        (PRACTITIONERS, "69566ab7-960f-475b-8e7c-b3118f30c6bd", own),  # File Data Contributor
        (PRACTITIONERS, "8311e382-0749-4cb8-b61a-304f252e45ec", registry),  # AcrPush
        (PRACTITIONERS, "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815", workspace),  # Compute Operator
        (READERS, "acdd72a7-3385-48ef-bd42-f606fba81ae7", workspace),  # Reader
        (READERS, "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", f"{data}/containers/data"),
        (READERS, "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", f"{data}/containers/runs"),
        (READERS, "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", own),  # Blob Data Reader
        (READERS, "b8eda974-7b85-4f76-af95-65846b26df6d", own),  # File Data Reader
    }


def test_people_get_no_role_on_a_registry_that_is_there():
    """Azure takes one assignment of a role, scope and receiver: another stack's would be refused."""
    registry = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers"
        "/Microsoft.ContainerRegistry/registries/central"
    )
    people = {"practitioners": [PRACTITIONERS]}
    shared = declare_stack("dev", people=people, existing={"registry": registry})
    given = {
        (each.inputs["principalId"], Role(each.inputs["roleDefinitionId"].rpartition("/")[2]))
        for each in shared
        if each.inputs.get("scope") == registry and "roleDefinitionId" in each.inputs
    }
    # Its identities are each stack's own.
    assert given == {
        ("principal-of-cloud-identity-workspace", Role.CONTRIBUTOR),
        ("principal-of-cloud-identity-cpu", Role.ACR_PUSH),
        ("principal-of-cloud-identity-gpu", Role.ACR_PULL),
    }
    own = {each.name for each in declare_stack("dev", people=people)}
    assert own - {each.name for each in shared} == {
        f"cloud-people-practitioner-{PRACTITIONERS}-images"
    }


def test_who_has_chosen_no_subscription_is_told_what_to_type():
    nobody = {"subscriptionId": "", "tenantId": ""}
    answers = {"azure-native:authorization:getClientConfig": nobody}
    settings = settings_of("dev")
    with pytest.raises(pulumi.RunError) as caught:
        declare(lambda: CloudPlatform("cloud", settings), answers=answers)
    reason, hint = str(caught.value).split("\n")
    assert reason == "no way into Azure: no subscription is chosen"
    assert hint.startswith("  hint: `az login`")


def test_a_group_outside_of_the_logins_subscription_is_refused_before_anything_is_declared():
    """The settings pin no subscription; where they do, they are compared themselves."""
    elsewhere = "cccccccc-0000-4000-8000-000000000001"
    seen: list[str] = []

    def make(subscription):
        group = {"resource_group": f"/subscriptions/{subscription}/resourceGroups/training"}
        settings = settings_of("dev", existing=group)
        spy = pulumi.ResourceOptions(transformations=[lambda args: seen.append(args.name)])
        declare(
            lambda: CloudPlatform("cloud", settings, spy) and None,
            answers=ANSWERS,
            outputs_of=answers_of,
        )

    with pytest.raises(pulumi.RunError) as caught:
        make(elsewhere)
    assert (str(caught.value), seen) == (
        f"existing.resource_group is in subscription {elsewhere}, the login is in {SUBSCRIPTION}\n"
        f"  hint: `pulumi config set azure-native:subscriptionId {elsewhere} -s dev`",
        [],
    )
    make(SUBSCRIPTION)
    assert "cloud-group" in seen


def test_a_subscription_in_capitals_gives_the_same_names():
    """As `pulumi config set azure-native:subscriptionId` and ARM_SUBSCRIPTION_ID take it, too."""
    letters = "abcdef01-1111-4111-8111-111111111111"
    settings = settings_of("dev")

    def declared(subscription):
        said = ANSWERS["azure-native:authorization:getClientConfig"]
        answers = {
            "azure-native:authorization:getClientConfig": said | {"subscriptionId": subscription}
        }
        _, found = declare(
            lambda: CloudPlatform("cloud", settings) and None,
            answers=answers,
            outputs_of=answers_of,
        )
        return {(each.type, each.name): each.inputs for each in found}

    assert declared(letters.upper()) == declared(letters)


def test_a_login_that_fails_is_told_in_its_own_words():
    class LoggedOut(RecordingEngine):
        def call(self, args):
            message = f"invoke of {args.token} returned an error: ERROR: Please run az login"
            raise RuntimeError(message)

    with loops_closed():
        set_mocks(LoggedOut({}, lambda declared: declared.inputs), project="trainyard", stack="dev")
        with pytest.raises(pulumi.RunError) as caught:
            find_account()
    reason, hint = str(caught.value).split("\n")
    assert reason == "no way into Azure: ERROR: Please run az login"
    assert hint.startswith("  hint: `az login`")


def test_a_subscription_that_the_settings_do_not_name_is_a_warning():
    assert why_unpinned({}, stack="dev", subscription_id="abc") == (
        "the subscription abc is the one that `az account show` names; "
        "`pulumi config set azure-native:subscriptionId abc -s dev` keeps this stack in it"
    )
    config = {"azure-native:subscriptionId": "abc"}
    assert why_unpinned(config, stack="dev", subscription_id="abc") is None


def test_each_platform_loads_its_own_libraries_alone():
    program = (
        "import sys, infra.program, infra.{platform}.platform\n"
        "print(*(name for name in ('infra.local.platform', 'infra.cloud.platform',"
        " 'pulumi_azure_native') if name in sys.modules))"
    )
    loaded = {
        platform: subprocess.run(
            [sys.executable, "-c", program.format(platform=platform)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for platform in ("local", "cloud")
    }
    assert loaded == {
        "local": ["infra.local.platform"],
        "cloud": ["infra.cloud.platform", "pulumi_azure_native"],
    }
