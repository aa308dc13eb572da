"""`launch env check` names each way in which Azure differs from what a stack needs, and its mend."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.blobs.credentials import our_tokens
from jobs.contracts.spec import Environment
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.declared import Declared, read_declared
from jobs.engines.azure_ml.deployed import check_deployed
from jobs.engines.azure_ml.offers import check_offers
from jobs.stacks.grants import Grant
from jobs.stacks.reachability import PartCheck
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import Deviation, FakeAzure, RequestTrouble, forbidden
from tests.fakes.azureml.records import iso, now
from tests.fakes.azureml.subscription import adopt
from tests.infra.cloud_declared import declare_stack, read_config

REGION = "westeurope"  # the stand-in's
PLACE = read_config("dev")["location"]  # the committed stack's
SIZES = {
    "Standard_D4ds_v4": "Standard_DS3_v2",
    "Standard_NC4as_T4_v3": "Standard_NC24ads_A100_v4",
}
GPU_SIZE = "Standard_NC24ads_A100_v4"


def steps_of(stack: str, op: str = "create") -> str:
    """A preview of the stack, with sizes that the stand-in has."""
    steps = [
        {"op": op, "urn": each.name, "newState": {"type": each.type, "inputs": each.inputs}}
        for each in declare_stack(stack)
    ]
    preview = json.dumps({"steps": steps})
    for declared, known in SIZES.items():
        preview = preview.replace(declared, known)
    return preview


def record_of(stack: str) -> dict[str, Any]:
    """Pulumi's record of the stack."""
    resources = [
        {"urn": f"urn:pulumi:{stack}::trainyard::{each.type}::{each.name}"}
        | {"type": each.type, "inputs": each.inputs}
        for each in declare_stack(stack)
    ]
    return {"version": 3, "deployment": {"resources": resources}}


def grants_of(stack: str) -> list[Grant]:
    return [
        Grant(
            name=each.name,
            scope=each.inputs["scope"],
            role_id=each.inputs["roleDefinitionId"].rpartition("/")[2],
            principal_id=each.inputs["principalId"],
        )
        for each in declare_stack(stack)
        if each.type.endswith(":RoleAssignment")
    ]


def stand(azure: FakeAzure, stack: str = "prod") -> list[Grant]:
    """Have the roles and endpoints that the stack declares; the grants in its record."""
    declared = [
        (each.type, each.inputs)
        for each in declare_stack(stack)
        if each.type.endswith((":RoleAssignment", ":PrivateEndpoint"))
    ]
    adopt(azure.records, declared)
    return grants_of(stack)


def check(arm_client: ArmClient, grants: list[Grant]) -> dict[str, PartCheck]:
    return {each.part: each for each in check_deployed(arm_client, lambda: grants)}


def test_a_stack_that_is_whole_is_ok_in_each_part(azure: FakeAzure, arm_client: ArmClient) -> None:
    grants = stand(azure)
    assert check_deployed(arm_client, lambda: grants) == [
        PartCheck(
            part="workspace",
            ok=True,
            detail=f"{REGION}.api.azureml.ms answers as `mlw-trainyard-dev`",
        ),
        PartCheck(part="default datastores", ok=True, detail="all 4 on the account tydevworkspace"),
        PartCheck(part="managed network", ok=True, detail="active, AllowInternetOutbound, 1 rule"),
        PartCheck(
            part="private endpoints",
            ok=True,
            detail=f"all {len(azure.records.private_endpoints)} approved",
        ),
        PartCheck(part="roles", ok=True, detail=f"all {len(grants)} given"),
        PartCheck(
            part="cluster cpu", ok=True, detail="steady, 0 of up to 2 nodes of Standard_DS3_v2"
        ),
    ]
    # Every question is a read.
    asked = [each.method for each in azure.requests(host="management.azure.com")]
    assert set(asked) == {"GET"}


@pytest.mark.parametrize(
    ("deviation", "part", "detail", "mend"),
    [
        pytest.param(
            Deviation.DATASTORES_MISSING,
            "datastore workspacefilestore",
            "the workspace lacks it",
            "pulumi destroy -s dev --target '**Workspace::cloud-workspace' --target-dependents",
            id="datastores-missing",
        ),
        pytest.param(
            Deviation.ARTIFACT_STORE_MISSING,
            "datastore workspaceartifactstore",
            "the workspace lacks it",
            "then `pulumi up -s dev`",
            id="artifact-store-missing",
        ),
        pytest.param(
            Deviation.NETWORK_INACTIVE,
            "managed network",
            "it is Inactive: no node can start in it",
            "az ml workspace provision-network --name mlw-trainyard-dev --resource-group rg-",
            id="network-inactive",
        ),
        pytest.param(
            Deviation.NETWORK_PROVISIONING,
            "managed network",
            "Azure is making it: data-blob Provisioning",
            "wait up to 30 minutes",
            id="network-provisioning",
        ),
        pytest.param(
            Deviation.NETWORK_FAILED,
            "managed network",
            "rules that do not work: data-blob Failed",
            "Network Connection Approver on each rule's target, then `az ml workspace provision-",
            id="network-failed",
        ),
        pytest.param(
            Deviation.ENDPOINT_PENDING,
            "endpoint pe-",
            "Pending (Please approve): it leads to ",
            "az network private-endpoint-connection approve --id CONNECTION",
            id="endpoint-pending",
        ),
        pytest.param(
            Deviation.ENDPOINT_REJECTED,
            "endpoint pe-",
            "Rejected (not from here): it leads to ",
            "then `pulumi up --refresh -s dev`",
            id="endpoint-rejected",
        ),
        pytest.param(
            Deviation.ROLE_MISSING,
            "role cloud-access-",
            "nobody has it on cryardprod",
            "`pulumi up --refresh -s dev` gives it again",
            id="role-missing",
        ),
        pytest.param(
            Deviation.CLUSTER_FAILED,
            "cluster cpu",
            "failed; The network is not ready.",
            "launch cluster show cpu -s dev",
            id="cluster-failed",
        ),
        pytest.param(
            Deviation.WRONG_HOST,
            "workspace",
            "asking westeurope.api.azureml.ms: Azure answered 404 UserError: The workspace was not",
            "launch env check -s dev",
            id="wrong-host",
        ),
    ],
)
def test_each_deviation_has_its_line_and_its_mend(
    azure: FakeAzure, arm_client: ArmClient, deviation: Deviation, part: str, detail: str, mend: str
) -> None:
    grants = stand(azure)
    azure.deviations.add(deviation)
    wrong = [each for each in check(arm_client, grants).values() if not each.ok]
    assert wrong
    assert all(each.known for each in wrong)
    named = next(each for each in wrong if each.part.startswith(part))
    assert named.detail.startswith(detail)
    assert mend in named.mend
    kinds = {each.part.split()[0] for each in wrong}
    assert kinds == {part.split(maxsplit=1)[0]}


def test_a_role_that_was_given_just_now_may_not_work_yet(
    azure: FakeAzure, arm_client: ArmClient
) -> None:
    grants = stand(azure)
    created = [each["properties"] for each in azure.records.role_assignments]
    for properties, age_s in zip(created, (120, *[86_400] * len(created)), strict=False):
        properties["createdOn"] = iso(now() - timedelta(seconds=age_s))
    roles = check(arm_client, grants)["roles"]
    assert roles.ok
    assert roles.detail == (
        f"all {len(grants)} given, the newest 2 min ago: it works after up to 10 min"
    )
    created[0]["createdOn"] = created[1]["createdOn"]
    assert check(arm_client, grants)["roles"].detail == f"all {len(grants)} given"


def test_a_question_that_we_may_not_ask_is_not_answered_with_ok(
    azure: FakeAzure, arm_client: ArmClient
) -> None:
    grants = stand(azure)
    azure.deviations.add(Deviation.ROLES_HIDDEN)
    roles = check(arm_client, grants)["roles"]
    assert (roles.ok, roles.known) == (False, False)
    assert roles.detail == (
        "not allowed to look: listing roles: our roles do not allow us to do "
        "`Microsoft.Authorization/roleAssignments/read`"
    )
    assert roles.mend == (
        f"az role assignment create --assignee {azure.place.client_id} "
        f'--role "Reader" --scope {azure.place.group_id}'
    )
    copy = {each.part: each for each in check_deployed(arm_client, None)}["roles"]
    assert (copy.ok, copy.known, copy.mend) == (
        False,
        False,
        "`launch env check -s dev` in the stack's project",
    )


def test_nobody_who_is_logged_out_hears_ok(
    azure: FakeAzure, arm_client: ArmClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    our_tokens.cache_clear()
    found = check_deployed(ArmClient(arm_client.environment), list)
    assert [each.part for each in found] == [
        "workspace",
        "default datastores",
        "managed network",
        "private endpoints",
        "roles",
        "cluster cpu",
    ]
    assert {(each.ok, each.known) for each in found} == {(False, False)}
    assert all(each.detail.startswith("not asked: not logged in to Azure") for each in found)
    assert {each.mend for each in found} == {"az login, then type the same again"}


def test_a_private_workspace_is_asked_where_it_is(azure: FakeAzure, arm_client: ArmClient) -> None:
    stand(azure)
    old = arm_client.environment
    azure.deviations.add(Deviation.PRIVATE_HOST_ONLY)
    host = azure.place.private_api
    newer = msgspec.convert(azure.environment(), Environment)
    assert newer.workspace.endpoint == f"https://{host}"
    assert check(ArmClient(newer), [])["workspace"] == PartCheck(
        part="workspace", ok=True, detail=f"{host} answers as `mlw-trainyard-dev`"
    )
    # An environment of before the workspace said where it is.
    refused = check(ArmClient(old), [])["workspace"]
    assert refused == PartCheck(
        part="workspace",
        ok=False,
        detail=(
            "asking westeurope.api.azureml.ms: workspace `mlw-trainyard-dev` is private and does "
            "not answer at westeurope.api.azureml.ms, the host of its region (Access to workspace "
            "was denied based on workspace private link configuration); the workspace answers at "
            f"{host}"
        ),
        mend=(
            "`pulumi up -s dev`, then `launch env show -s dev --refresh`; a copy (--env): export "
            "or import it again"
        ),
    )


def test_a_private_workspace_that_names_its_regions_host_is_reached_at_its_own(
    azure: FakeAzure, arm_client: ArmClient
) -> None:
    azure.deviations.add(Deviation.PRIVATE_HOST_UNTOLD)
    refused = check(arm_client, [])["workspace"]
    assert not refused.ok
    assert refused.detail.endswith("; Azure itself names this host")
    own = f"https://{azure.place.private_api}"
    assert refused.mend == (
        f"`launch env export -s dev --output FILE`, in FILE make {own} the `workspace.endpoint`, "
        "then `launch env check --env FILE`"
    )
    workspace = msgspec.structs.replace(arm_client.environment.workspace, endpoint=own)
    edited = msgspec.structs.replace(arm_client.environment, workspace=workspace)
    assert check(ArmClient(edited), [])["workspace"].ok


def test_a_run_on_a_private_workspace_is_followed_to_its_end(
    azure: FakeAzure, tmp_path: Path
) -> None:
    azure.deviations.add(Deviation.PRIVATE_HOST_ONLY)
    launch = AzureLaunch(azure, tmp_path)
    imported = launch.type(
        "env", "import", "--workspace", azure.place.workspace_id, with_environment=False
    )
    assert json.loads(imported.out)["workspace"]["endpoint"] == f"https://{azure.place.private_api}"
    seen = len(azure.requests(host="api.azureml.ms"))
    ran = launch.type("run", launch.write_job("print('it is private')"), "-y")
    assert (ran.code, "it is private" in ran.out) == (0, True), ran.err
    run = launch.run_dirs()[-1].name
    assert json.loads(launch.type("show", run, "--json").out)["state"] == "completed"
    assert "it is private" in launch.type("logs", run).out
    assert launch.type("wait", run).code == 0
    assert launch.type("cancel", run).err == f"{run} was over already (completed)\n"
    hosts = {each.host for each in azure.requests(host="api.azureml.ms")[seen:]}
    assert hosts == {azure.place.private_api}


def test_an_older_environment_of_a_private_workspace_is_told_to_refresh(
    azure: FakeAzure, tmp_path: Path
) -> None:
    launch = AzureLaunch(azure, tmp_path)
    ran = launch.type("run", launch.write_job(), "-y", "--detach")
    assert ran.code == 0, ran.err
    run = launch.run_dirs()[-1].name
    azure.deviations.add(Deviation.PRIVATE_HOST_ONLY)
    shown = launch.type("show", run)
    assert shown.code == 1
    assert "is private and does not answer at westeurope.api.azureml.ms" in shown.err
    assert "writes the workspace's own host into the environment" in shown.err
    assert "export or import it again" in shown.err


# --- Before the first `pulumi up` ---------------------------------------------------------------


@pytest.fixture
def new(azure: FakeAzure, arm_client: ArmClient) -> tuple[ArmClient, Declared]:
    """A stack that is not there yet."""
    declared = read_declared(steps_of("dev").encode(), "dev")
    assert declared is not None
    return ArmClient(declared.environment), declared


def test_a_new_stack_whose_region_and_sizes_can_be_had(
    azure: FakeAzure, new: tuple[ArmClient, Declared]
) -> None:
    assert check_offers(*new) == [
        PartCheck(part=f"region {PLACE}", ok=True, detail="takes this subscription"),
        PartCheck(part="Azure ML", ok=True, detail=f"in {PLACE}, registered"),
        PartCheck(part="cluster cpu", ok=True, detail="Standard_DS3_v2 can be had"),
        PartCheck(part="cluster gpu", ok=True, detail=f"{GPU_SIZE} can be had"),
    ]
    validation = azure.requests(method="POST", path="/validate")[-1]
    # As the stack declares them: a policy on tags is asked, too.
    group, nested = validation.json["properties"]["template"]["resources"]
    assert (group["name"], group["tags"]["stage"]) == ("rg-yard-dev", "dev")
    (identity,) = nested["properties"]["template"]["resources"]
    assert (identity["location"], identity["tags"]["owner"]) == (PLACE, "platform@example.com")


@pytest.mark.parametrize(
    ("deviation", "part", "known", "detail", "mend"),
    [
        pytest.param(
            Deviation.REGION_REFUSED,
            f"region {PLACE}",
            True,
            "refused (RequestDisallowedByAzure): Resource 'id-yard-dev-",
            "pulumi config set trainyard:location REGION -s dev",
            id="region-refused",
        ),
        pytest.param(
            Deviation.NO_AZURE_ML_IN_REGION,
            "Azure ML",
            True,
            f"Azure ML is not in {PLACE}",
            "-s dev`, one of: eastus2",
            id="no-azure-ml",
        ),
        pytest.param(
            Deviation.PROVIDER_UNREGISTERED,
            "Azure ML",
            True,
            "Microsoft.MachineLearningServices is NotRegistered in the subscription",
            "az provider register --namespace Microsoft.MachineLearningServices",
            id="unregistered",
        ),
        pytest.param(
            Deviation.SIZE_MISSING,
            "cluster gpu",
            True,
            f"Azure ML has no {GPU_SIZE} in the region for this subscription",
            "pulumi config set --path trainyard:clusters.gpu.size SIZE -s dev",
            id="size-missing",
        ),
        pytest.param(
            Deviation.SIZE_RESTRICTED,
            "cluster gpu",
            False,
            f"Azure ML lists {GPU_SIZE}, but Azure restricts it for the subscription's own machines "
            "(NotAvailableForSubscription)",
            "ask for access (learn.microsoft.com/azure/",
            id="size-restricted",
        ),
    ],
)
def test_what_a_new_stack_cannot_have_is_told_before_it_is_made(
    azure: FakeAzure,
    new: tuple[ArmClient, Declared],
    deviation: Deviation,
    part: str,
    known: bool,
    detail: str,
    mend: str,
) -> None:
    azure.deviations.add(deviation)
    (wrong,) = [each for each in check_offers(*new) if not each.ok]
    assert (wrong.part, wrong.known) == (part, known)
    assert wrong.detail.startswith(detail)
    assert mend in wrong.mend


def test_a_region_is_not_judged_by_an_error_of_another_kind(
    azure: FakeAzure, new: tuple[ArmClient, Declared]
) -> None:
    odd = RequestTrouble(path="*/validate", status=400, code="InvalidTemplate", message="no")
    azure.script(odd, forbidden(path="*/providers/microsoft.machinelearningservices"))
    found = {each.part: each for each in check_offers(*new)}
    region, azure_ml = found[f"region {PLACE}"], found["Azure ML"]
    assert (region.ok, region.known, azure_ml.ok, azure_ml.known) == (False,) * 4
    assert region.detail.startswith(f"Azure does not tell: asking for the region {PLACE}: ")
    assert azure_ml.detail.startswith("not allowed to ask: asking for Azure ML's regions: ")


def test_a_stack_that_is_there_is_asked_for_its_sizes_alone(
    azure: FakeAzure, arm_client: ArmClient
) -> None:
    declared = read_declared(steps_of("dev", "same").encode(), "dev")
    assert declared is not None
    azure.deviations.update({Deviation.REGION_REFUSED, Deviation.SIZE_RESTRICTED})
    found = check_offers(ArmClient(declared.environment), declared)
    assert [(each.part, each.ok) for each in found] == [
        ("cluster cpu", True),
        ("cluster gpu", True),
    ]


# --- Typed ----------------------------------------------------------------------------------------


def lay_project(launch: AzureLaunch, environment: dict[str, Any], preview: str) -> None:
    """A project with the stack dev, and a Pulumi that prints what the files beside it hold."""
    pulumi = launch.folder / ".venv" / "bin" / "pulumi"
    pulumi.parent.mkdir(parents=True)
    for name, content in (
        ("output", json.dumps(environment)),
        ("export", json.dumps(record_of("dev"))),
        ("preview", preview),
    ):
        (launch.folder / f"{name}.json").write_text(content)
    pulumi.write_text('#!/bin/sh\n[ "$1" = stack ] && exec cat "$2.json"\nexec cat "$1.json"\n')
    pulumi.chmod(0o755)
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (launch.folder / name).write_text("name: trainyard\n")
    assert launch.type("env", "trust", launch.folder, with_environment=False).code == 0


def test_check_of_a_stack_tells_each_part_and_how_to_mend_it(
    azure: FakeAzure, tmp_path: Path
) -> None:
    adopt(
        azure.records,
        [
            (each.type, each.inputs)
            for each in declare_stack("dev")
            if each.type.endswith(":RoleAssignment")
        ],
    )
    launch = AzureLaunch(azure, tmp_path)
    lay_project(launch, azure.environment(), '{"steps": []}')
    words = ("env", "check", "-s", "dev")
    type_ = partial(launch.type, *words, with_environment=False)
    green = type_("--only", "parts")
    assert green.code == 0, green.err
    states = [line.split("  ")[0] for line in green.out.splitlines() if " ok " in line]
    assert states[:4] == ["storage", "workspace", "key vault", "registry"]
    assert {"default datastores", "managed network", "roles", "cluster cpu"} <= set(states)

    azure.deviations.update({Deviation.ROLE_MISSING, Deviation.NETWORK_INACTIVE})
    taken = sorted(each.name for each in grants_of("dev") if "/registries/" in each.scope)
    wrong = type_("--only", "parts")
    assert wrong.code == 1
    lines = wrong.out.splitlines()
    assert [line.split()[:3] for line in lines if "FAILED" in line] == [
        ["managed", "network", "FAILED"],
        *(["role", name, "FAILED"] for name in taken),
    ]
    told = lines[lines.index("to mend it:") + 1 :][:2]
    assert [line.partition(":")[0] for line in told] == [
        "managed network",
        ", ".join(f"role {name}" for name in taken),
    ]
    as_json = json.loads(type_("--only", "parts", "--json").out)
    assert as_json["offers"] is None
    assert [each["part"] for each in as_json["parts"] if not each["ok"]] == [
        "managed network",
        *(f"role {name}" for name in taken),
    ]


def test_check_before_the_first_up_says_what_azure_refuses(
    azure: FakeAzure, tmp_path: Path
) -> None:
    launch = AzureLaunch(azure, tmp_path)
    lay_project(launch, azure.environment(), steps_of("dev"))
    words = ("env", "check", "-s", "dev", "--only", "changes")
    fine = launch.type(*words, with_environment=False)
    assert fine.code == 0, fine.err
    assert f"region {PLACE}  ok     takes this subscription" in fine.out
    azure.deviations.add(Deviation.REGION_REFUSED)
    refused = launch.type(*words, with_environment=False)
    assert refused.code == 1
    assert "not accepting new customers: https://aka.ms/locationineligible" in refused.out
    assert f"region {PLACE}: `pulumi config set trainyard:location REGION -s dev`" in refused.out
