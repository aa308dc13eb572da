"""`launch env check` reads out of a preview what would be lost, and who allowed it.

The previews here have the shape that Pulumi 3.250 gives; the real engine's own are judged in
tests/integration/azure_stack/test_life.py.
"""

from __future__ import annotations

import json

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.stacks.changes import Changes, Loss, find_refusal, judge_preview, what_is_lost
from jobs.stacks.changes_text import changes_text
from tests.fakes.pulumi_stack import error_of

GROUP = "/subscriptions/s/resourceGroups/g"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/ty"
COMPUTE = f"{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/w/computes/gpu-1a2b3c"
STORAGE_COSTS = "every blob in it (datasets, checkpoints, logs, outputs); they are not counted"
COMPUTE_COSTS = "running jobs end; their checkpoints stay in the store"
PLATFORM = "trainyard:cloud:Platform::cloud"
STORAGE = "trainyard:cloud:Platform$trainyard:cloud:Storage::cloud-data"
CLUSTER = "trainyard:cloud:Platform$trainyard:cloud:Cluster::cluster-gpu"


def urn(path):
    return f"urn:pulumi:prod::trainyard::{path}"


def step(op, kind, name, *, parent=PLATFORM, cloud_id="", reasons=None, changed=(), **state):
    """One step as `pulumi preview --json` writes it."""
    types = parent.partition("::")[0]
    states = {"custom": True, "type": kind, "id": cloud_id, "parent": urn(parent), **state}
    made = {"op": op, "urn": urn(f"{types}${kind}::{name}")}
    if op != "create":
        made["oldState"] = states
    if op != "delete":
        made["newState"] = states
    detailed = {path: {"kind": "update"} for path in changed} or None
    return {**made, "replaceReasons": reasons, "detailedDiff": detailed}


def account(op, **options):
    kind, name = "azure-native:storage:StorageAccount", "cloud-data-account"
    return step(op, kind, name, parent=STORAGE, cloud_id=ACCOUNT, **options)


def container(op, **options):
    inside = f"{ACCOUNT}/blobServices/default/containers/data"
    kind, name = "azure-native:storage:BlobContainer", "cloud-data-data"
    return step(op, kind, name, parent=STORAGE, cloud_id=inside, **options)


def compute(op, **options):
    kind, name = "azure-native:machinelearningservices:Compute", "cluster-gpu-compute"
    return step(op, kind, name, parent=CLUSTER, cloud_id=COMPUTE, **options)


def component(op):
    made = step(op, "trainyard:cloud:Cluster", "cluster-gpu")
    for state in ("oldState", "newState"):
        made.get(state, {})["custom"] = False
    return made


def error(message):
    return {"severity": "error", "message": f"error: {message}\n"}


def judge(*steps, allowed=(), diagnostics=()):
    preview = {"steps": steps, "diagnostics": diagnostics, "changeSummary": {}, "duration": 1}
    return judge_preview(json.dumps(preview).encode(), "prod", allowed)


def loss(**values):
    usual = {
        "name": "gpu",
        "resource": urn(
            "trainyard:cloud:Platform$trainyard:cloud:Cluster"
            "$azure-native:machinelearningservices:Compute::cluster-gpu-compute"
        ),
        "type": "azure-native:machinelearningservices:Compute",
        "change": "replaced",
        "because": (),
        "costs": COMPUTE_COSTS,
        "within": None,
        "is_protected": False,
        "is_locked": False,
        "is_allowed": False,
    }
    return Loss(**{**usual, **values})


def account_loss(**values):
    usual = {
        "name": "cloud-data-account",
        "resource": account("same")["urn"],
        "type": "azure-native:storage:StorageAccount",
        "costs": STORAGE_COSTS,
    }
    return loss(**{**usual, **values})


def container_loss(**values):
    usual = {
        "name": "cloud-data-data",
        "resource": container("same")["urn"],
        "type": "azure-native:storage:BlobContainer",
        "costs": STORAGE_COSTS,
    }
    return loss(**{**usual, **values})


def changes(*losses, updated=(), created=(), idle_allowances=(), is_cut_short=False):
    return Changes(
        losses=losses,
        updated=updated,
        created=created,
        idle_allowances=idle_allowances,
        is_cut_short=is_cut_short,
    )


def test_what_only_changes_in_place_or_is_new_is_no_loss():
    other = "azure-native:machinelearningservices:Compute"
    assert judge(component("same"), account("same")) == changes()
    assert judge(
        component("update"),
        compute("update", changed=["properties.scaleSettings.maxNodeCount"]),
        account("same"),
        step("create", other, "cluster-cpu-compute", parent=CLUSTER.replace("gpu", "cpu")),
    ) == changes(updated=("gpu",), created=("cpu",))


def test_a_cluster_made_anew_is_one_loss_by_the_name_that_jobs_know():
    replaced = compute("replace", reasons=["computeName"], changed=["properties.vmSize"])
    expected = loss(because=("computeName", "vmSize"))
    assert judge(component("same"), replaced) == changes(expected)
    # The three steps that Pulumi takes, where a preview has them all.
    steps = [compute(op) for op in ("create-replacement", "replace", "delete-replaced")]
    assert judge(*steps) == changes(loss())


def test_a_cluster_taken_out_is_one_loss_and_its_component_none():
    assert judge(component("delete"), compute("delete")) == changes(loss(change="deleted"))


def test_what_an_earlier_replacement_left_is_a_loss_though_a_new_one_stands():
    left = compute("delete", delete=True)
    assert judge(compute("same"), left) == changes(loss(change="deleted"))


@pytest.mark.parametrize("name", ["gpu", "cluster-gpu", "cluster-gpu-compute"])
def test_a_cluster_is_allowed_by_each_of_its_names(name):
    assert judge(compute("replace"), allowed=[name]) == changes(loss(is_allowed=True))


@pytest.mark.parametrize("name", ["cloud", "cloud-data"])
def test_a_component_other_than_a_cluster_is_no_name(name):
    told = error_of(lambda: judge(account("replace"), allowed=[name]), LaunchError)
    assert told.message == f"stack `prod` has no cluster or resource `{name}`"


def test_what_the_stack_forgets_is_lost_as_what_it_deletes():
    assert judge(account("discard")) == judge(account("delete"))


@pytest.mark.parametrize(("number", "more"), [(8, ""), (9, " and 1 more")])
def test_many_names_are_cut(number, more):
    named = ", ".join(f"r{each}" for each in range(8))
    created = tuple(f"r{each}" for each in range(number))
    assert changes_text(changes(created=created)) == f"new: {named}{more}"


def test_what_is_inside_of_what_is_lost_goes_along_though_pulumi_keeps_it():
    within = container_loss(change="goes along", within="cloud-data-account")
    assert judge(account("replace"), container("same")) == changes(account_loss(), within)
    # Azure's ids are compared without regard to case.
    upper = container("update", id=ACCOUNT.upper() + "/blobServices/default/containers/data")
    assert judge(account("delete"), upper) == changes(
        account_loss(change="deleted"), within, updated=("cloud-data-data",)
    )
    # Another account whose name begins alike is not around it.
    other = container("same", id=f"{ACCOUNT}2/blobServices/default/containers/data")
    assert judge(account("replace"), other) == changes(account_loss())


def test_to_allow_a_resource_is_to_allow_what_is_in_it_and_not_the_other_way_round():
    for op in ("same", "replace", "delete"):
        both = account("replace"), container(op)
        inner_of = [each.is_allowed for each in judge(*both, allowed=["cloud-data-data"]).losses]
        assert inner_of == [False, True]
        outer_of = [each.is_allowed for each in judge(*both, allowed=["cloud-data-account"]).losses]
        assert outer_of == [True, True]


IDENTITY = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-gpu"


def identity(op):
    kind = "azure-native:managedidentity:UserAssignedIdentity"
    return step(op, kind, "cloud-identity-gpu", cloud_id=IDENTITY, outputs={"principalId": "p-1"})


def role(op, principal):
    kind, inside = "azure-native:authorization:RoleAssignment", f"{ACCOUNT}/roleAssignments/r"
    return step(
        op, kind, "cloud-access-gpu-data", cloud_id=inside, inputs={"principalId": principal}
    )


def test_an_identity_that_goes_with_its_cluster_and_its_roles_are_part_of_the_clusters_loss():
    inputs = {"identity": {"userAssignedIdentities": [IDENTITY.upper()]}}
    gone = compute("delete", inputs=inputs), identity("delete"), role("delete", "p-1")
    within = {each.name: (each.within, each.is_allowed) for each in judge(*gone).losses}
    assert within == {
        "gpu": (None, False),
        "cloud-identity-gpu": ("gpu", False),
        "cloud-access-gpu-data": ("gpu", False),
    }
    allowed = judge(*gone, allowed=["gpu"]).losses
    assert {each.name: each.is_allowed for each in allowed} == dict.fromkeys(within, True)
    # A shared identity stays with the other clusters, and another's role is a loss of its own.
    kept = compute("delete", inputs=inputs), identity("same"), role("delete", "p-2")
    within = {each.name: each.within for each in judge(*kept).losses}
    assert within == {"gpu": None, "cloud-access-gpu-data": None}


def test_what_is_in_several_losses_is_told_to_be_in_the_outermost():
    group = step("delete", "azure-native:resources:ResourceGroup", "cloud-group", cloud_id=GROUP)
    found = judge(container("delete"), account("delete"), group)
    assert {each.name: each.within for each in found.losses} == {
        "cloud-group": None,
        "cloud-data-account": "cloud-group",
        "cloud-data-data": "cloud-group",
    }


def test_what_is_retained_stays_unless_it_is_inside_of_what_is_deleted():
    retained = container("delete", retainOnDelete=True)
    stays = "is kept with its content, and the stack forgets it"
    assert judge(retained) == changes(container_loss(change="deleted", costs=stays))
    inside = container_loss(change="deleted", within="cloud-data-account")
    assert judge(retained, account("delete")) == changes(account_loss(change="deleted"), inside)


def deletion_refused(of):
    said = f'resource "{of["urn"]}" cannot be deleted\nbecause it is protected. To unprotect the'
    return [error(f"Preview failed: {said} resource, ..."), error("preview failed")]


def replacement_refused(of, *, because_of=None):
    part = f' as part of replacing "{because_of["urn"]}"' if because_of else ""
    said = (
        f'unable to replace resource "{of["urn"]}"{part}\nas it is currently marked for protection'
    )
    return [error(said)]


def test_what_is_protected_is_told_first_and_refused_even_where_it_is_allowed():
    found = judge(
        compute("replace"),
        account("delete", protect=True),
        allowed=["cloud-data-account", "gpu"],
        diagnostics=deletion_refused(account("delete")),
    )
    assert found == changes(
        account_loss(change="deleted", is_protected=True, is_allowed=True),
        loss(is_allowed=True),
        is_cut_short=True,
    )
    refusal = find_refusal(found, "prod", ["launch"])
    assert refusal is not None
    assert refusal.exit_code == 3
    assert refusal.message == (
        "`pulumi up -s prod` would replace or delete protected resources, and Pulumi refuses it: "
        "cloud-data-account"
    )


def locked_role(op, name="cloud-access-gpu-data", **options):
    """A role of a cluster's identity on the container of data."""
    inside = f"{container('same')['oldState']['id']}/providers/Microsoft.Authorization"
    kind = "azure-native:authorization:RoleAssignment"
    access = "trainyard:cloud:Platform$trainyard:cloud:Access::cloud-access"
    identifier = f"{inside}/roleAssignments/{name}"
    return step(op, kind, name, parent=access, cloud_id=identifier, **options)


def lock(op):
    kind, place = "azure-native:authorization:ManagementLockByScope", ACCOUNT.upper()
    identifier = f"{ACCOUNT}/providers/Microsoft.Authorization/locks/trainyard"
    return step(op, kind, "cloud-lock-data", cloud_id=identifier, inputs={"scope": place})


def states(found):
    return {each.name: each.is_locked for each in found.losses}


@pytest.mark.parametrize("change", ["delete", "replace"])
@pytest.mark.parametrize("stays", ["same", "create"])
def test_what_is_below_a_lock_is_refused_even_where_it_is_allowed(change, stays):
    """A lock that `up` brings back is there before anything is deleted."""
    name = "cloud-access-gpu-data"
    found = judge(lock(stays), locked_role(change), compute("delete"), allowed=[name, "gpu"])
    assert states(found) == {name: True, "gpu": False}
    refusal = find_refusal(found, "prod", ["launch"])
    assert refusal is not None
    assert (refusal.exit_code, refusal.message, refusal.hint) == (
        3,
        "`pulumi up -s prod` would replace or delete what is below a lock, and Azure refuses it in "
        f"the middle of `up`: {name}",
        "undo the change; if it is intended, docs/azure.md explains how to take one thing out of "
        "prod",
    )
    assert f"\n{name}  RoleAssignment  {found.losses[0].change}  LOCKED " in changes_text(found)


@pytest.mark.parametrize(
    "steps",
    [
        (locked_role("delete"),),
        (lock("delete"), locked_role("delete")),
        (lock("same"), locked_role("create")),
        (
            lock("same"),
            compute("delete"),
            locked_role("delete", deletedWith=compute("delete")["urn"]),
        ),
        (lock("same"), locked_role("delete", retainOnDelete=True)),
    ],
    ids=["no lock", "the lock goes", "it is new", "it goes with another", "it is kept"],
)
def test_what_azure_is_not_asked_to_delete_below_a_lock_is_not_locked(steps):
    assert not any(states(judge(*steps)).values())


def test_what_goes_with_what_stays_is_deleted_and_so_locked():
    stays = locked_role("delete", deletedWith=compute("same")["urn"])
    assert states(judge(lock("same"), compute("same"), stays)) == {"cloud-access-gpu-data": True}


def test_what_pulumi_refuses_without_showing_a_step_is_a_loss():
    # So it does with what is deleted before it is made again, and then it looks no further.
    refused = [
        *replacement_refused(account("replace")),
        *replacement_refused(container("replace"), because_of=account("replace")),
    ]
    expected = changes(
        account_loss(is_protected=True), container_loss(is_protected=True), is_cut_short=True
    )
    assert judge(diagnostics=refused) == expected
    # No name can be told from a wrong one where most of the stack was not looked at.
    assert judge(diagnostics=refused, allowed=["gpu"]).idle_allowances == ("gpu",)
    assert judge(account("same"), diagnostics=refused) == expected


def test_a_refusal_gives_the_command_that_allows_what_was_not_allowed():
    vault = step("replace", "azure-native:keyvault:Vault", "cloud-vault")
    steps = compute("replace"), account("delete"), container("delete"), vault
    found = judge(*steps, allowed=["gpu"])
    refusal = find_refusal(found, "prod", ["launch", "env", "check", "-s", "prod"])
    assert refusal is not None
    assert refusal.message == (
        "`pulumi up -s prod` would replace or delete: cloud-data-account, cloud-vault"
    )
    assert refusal.hint == (
        "if that is intended: launch env check -s prod "
        "--allow-replace cloud-data-account --allow-replace cloud-vault"
    )
    allowed = judge(*steps, allowed=["gpu", "cloud-data-account", "cloud-vault"])
    assert find_refusal(allowed, "prod", []) is None


def test_a_name_that_the_stack_has_not_is_refused_with_the_nearest():
    steps = compute("replace"), account("same")
    told = error_of(lambda: judge(*steps, allowed=["gpx"]), LaunchError)
    assert (told.exit_code, told.message, told.hint) == (
        2,
        "stack `prod` has no cluster or resource `gpx`",
        "did you mean `gpu`?",
    )
    told = error_of(lambda: judge(*steps, allowed=["zzzz"]), LaunchError)
    assert told.hint == "resources that can be allowed: gpu"
    told = error_of(lambda: judge(account("same"), allowed=["zzzz"]), LaunchError)
    assert told.hint == "resources that can be allowed: none"


def test_a_name_that_is_not_lost_allows_nothing_and_is_told():
    found = judge(compute("replace"), account("same"), allowed=["gpu", "cloud-data-account"])
    assert found.idle_allowances == ("cloud-data-account",)


@pytest.mark.parametrize(
    ("diagnostics", "reason"),
    [
        (
            [
                error("Pulumi.prod.yaml: trainyard:owner: nobody"),
                error("an unhandled error occurred: program exited with non-zero exit code: 1"),
            ],
            "Pulumi.prod.yaml: trainyard:owner: nobody",
        ),
        ([error("preview failed")], "preview failed"),
        (
            [error("one"), error("two"), error("one"), error("preview failed")],
            "one\ntwo",
        ),
    ],
)
def test_a_preview_that_failed_is_told_in_pulumis_words(diagnostics, reason):
    told = error_of(lambda: judge(diagnostics=diagnostics), EnvironmentFailure)
    assert told.message == f"`pulumi preview -s prod` failed: {reason}"


def test_a_preview_without_a_login_to_azure_says_what_logs_in():
    said = (
        "pulumi:providers:azure-native resource 'default' has a problem: could not validate provider "
        "configuration: ERROR: AADSTS70043: The refresh token has expired."
    )
    told = error_of(lambda: judge(diagnostics=[error(said)]), EnvironmentFailure)
    assert told.message == f"`pulumi preview -s prod` failed: {said}"
    assert told.hint == "az login, then type the same again"


def test_a_failure_beside_what_is_protected_is_a_failure_as_the_rest_is_not_known():
    diagnostics = [error("quota"), *deletion_refused(account("delete"))]
    told = error_of(lambda: judge(account("delete"), diagnostics=diagnostics), EnvironmentFailure)
    assert told.message == "`pulumi preview -s prod` failed: quota"
    assert told.exit_code == 1


@pytest.mark.parametrize("text", [b"", b"[]", b'{"steps": [{"op": 1}]}', b"error: no"])
def test_what_is_no_preview_is_a_failure(text):
    told = error_of(lambda: judge_preview(text, "prod", ()), EnvironmentFailure)
    assert "prints output that cannot be read" in told.message


def test_costs_tell_what_is_gone_from_what_is_only_interrupted():
    role = "azure-native:authorization:RoleAssignment"
    assert what_is_lost(role, is_replaced=False) == "the access that it gives"
    assert (
        what_is_lost(role, is_replaced=True) == "the access that it gives, until the new one works"
    )
    vault = "azure-native:keyvault/v20240401:Vault"
    assert what_is_lost(vault, is_replaced=True) == what_is_lost(vault, is_replaced=False)
    assert "secret" in what_is_lost(vault, is_replaced=True)
    unknown = "its content; this check does not know its kind"
    assert what_is_lost("a:b:C", is_replaced=True) == unknown
    assert what_is_lost("", is_replaced=True) == unknown
