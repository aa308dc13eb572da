"""What Azure refuses is said with its cause, and with the command or the role that mends it."""

from __future__ import annotations

import json

import pytest

from jobs.contracts.errors import ExitCode, Unreached
from jobs.engines.azure_ml.refusals import (
    PlaceMissing,
    PrivateWorkspace,
    WorkspaceGone,
    explain,
    role_for,
)
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment

ENVIRONMENT = make_cloud_environment()
OTHER, OURS = "72f988bf-86f1-41af-91ab-2d7cd011db47", "0e1d0000-0000-4000-8000-0000000000ff"
JOBS = "Microsoft.MachineLearningServices/workspaces/jobs/write"
COMPUTES = "Microsoft.MachineLearningServices/workspaces/computes/write"
USAGES = "Microsoft.MachineLearningServices/locations/usages/read"
COMPUTES_OF = "Microsoft.MachineLearningServices/workspaces/W/computes"


def explained(status: int, code: str, message: str, what: str = ""):
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return explain(
        status, body, environment=ENVIRONMENT, what=what, host="https://management.azure.com"
    )


@pytest.mark.parametrize(
    ("status", "code", "said", "message", "hint"),
    [
        pytest.param(
            401,
            "InvalidAuthenticationTokenTenant",
            f"The access token is from the wrong issuer 'https://sts.windows.net/{OTHER}/'. It "
            f"must match the tenant 'https://sts.windows.net/{OURS}/' associated with this "
            "subscription.",
            f"logged in to tenant {OTHER}, and the subscription is of {OURS}",
            f"az login --tenant {OURS}",
            id="wrong-tenant",
        ),
        pytest.param(
            401,
            "ExpiredAuthenticationToken",
            "The access token has expired.",
            "Azure rejects our login: The access token has expired.",
            "az login, then type the same again",
            id="expired",
        ),
        pytest.param(
            403,
            "AuthorizationFailed",
            f"The client 'me@x' with object id '{OTHER}' does not have authorization to perform "
            f"action '{JOBS}' over scope '{WORKSPACE}/jobs/x' or the scope is invalid.",
            f"our roles do not allow us to do `{JOBS}`",
            "the owner of the stack adds our group to `people.practitioners`, or: az role assignment "
            f'create --assignee {OTHER} --role "AzureML Data Scientist" --scope {WORKSPACE}',
            id="no-role",
        ),
        pytest.param(
            403,
            "AuthorizationFailed",
            f"The client 'me@x' with object id '{OTHER}' does not have authorization to perform "
            f"action '{COMPUTES}' over scope '{WORKSPACE}/computes/x' or the scope is invalid.",
            f"our roles do not allow us to do `{COMPUTES}`",
            "the owner of the stack adds our group to `people.operators`, or: az role assignment "
            f'create --assignee {OTHER} --role "AzureML Compute Operator" --scope {WORKSPACE}',
            id="no-role-on-computes",
        ),
        pytest.param(
            403,
            "AuthorizationFailed",
            f"The client 'me@x' with object id '{OTHER}' does not have authorization to perform "
            f"action '{USAGES}' over scope '/subscriptions/{OURS}' or the scope is invalid.",
            f"our roles do not allow us to do `{USAGES}`",
            f"az role assignment create --assignee {OTHER} "
            f'--role "Reader" --scope /subscriptions/{ENVIRONMENT.subscription_id}',
            id="no-role-in-the-subscription",
        ),
        pytest.param(
            403,
            "Forbidden",
            "Public access is not allowed. Connect through a private endpoint.",
            "the firewall of https://management.azure.com blocks this machine's address "
            "(Public access is not allowed. Connect through a private endpoint.)",
            "connect by VPN or peering, or add the address to `allowed_ips` of the stack",
            id="firewall",
        ),
        pytest.param(
            404,
            "ResourceNotFound",
            "The Resource 'Microsoft.MachineLearningServices/workspaces/W' under resource group "
            "'G' was not found.",
            "there is no workspace `W` any more (The Resource "
            "'Microsoft.MachineLearningServices/workspaces/W' under resource group 'G' was not "
            "found)",
            "pulumi up -s dev makes it again; `launch env show` shows the address that was used",
            id="workspace-gone",
        ),
        pytest.param(
            429,
            "TooManyRequests",
            "Slow down.",
            "Azure limits our requests, still after several tries (Slow down.)",
            "type the same again in a minute",
            id="throttled",
        ),
        pytest.param(
            409,
            "Conflict",
            "Another operation is in progress.",
            "Azure is busy with another change of the same resource: Another operation is in progress.",
            "type the same again in a minute",
            id="conflict",
        ),
        pytest.param(
            400,
            "UserError",
            "Unknown compute.\nmore",
            "Azure answered 400 UserError: Unknown compute.",
            "launch env check -s dev",
            id="bad-request",
        ),
        pytest.param(
            500,
            "ServiceError",
            "InternalServerError",
            "Azure answered 500 ServiceError: InternalServerError",
            "type the same again in a minute; https://status.azure.com lists outages",
            id="broken",
        ),
    ],
)
def test_each_refusal_says_what_mends_it(status, code, said, message, hint):
    refusal = explained(status, code, said)
    assert (refusal.message, refusal.hint) == (message, hint)
    assert (refusal.status, refusal.code) == (status, code)
    assert refusal.exit_code == ExitCode.ENVIRONMENT
    assert isinstance(refusal, WorkspaceGone) == (status == 404)
    assert isinstance(refusal, Unreached) == (status in (409, 429, 500))


def test_what_is_missing_in_a_workspace_is_not_the_workspace():
    refusal = explained(404, "ResourceNotFound", f"'{COMPUTES_OF}/cpu' was not found.")
    assert not isinstance(refusal, PlaceMissing)
    assert refusal.message == (
        f"Azure answered 404 ResourceNotFound: '{COMPUTES_OF}/cpu' was not found."
    )


@pytest.mark.parametrize(
    ("status", "code", "trouble", "hint"),
    [
        (
            404,
            "SubscriptionNotFound",
            "is not visible to this login",
            "az account list --all lists the visible ones; az login --tenant TENANT, with its tenant",
        ),
        (
            409,
            "ReadOnlyDisabledSubscription",
            "is disabled",
            "its owner enables it again in Azure's portal",
        ),
        (
            409,
            "MissingSubscriptionRegistration",
            "is not registered for Azure ML",
            "az provider register --namespace Microsoft.MachineLearningServices, by its owner",
        ),
    ],
)
def test_a_subscription_that_is_in_the_way_is_no_workspace_that_is_gone(
    status, code, trouble, hint
):
    refusal = explained(status, code, "As it says.")
    name = ENVIRONMENT.subscription_id
    assert refusal.message == f"the subscription {name} {trouble} (As it says)"
    assert refusal.hint == hint
    assert (type(refusal), refusal.exit_code) == (PlaceMissing, ExitCode.ENVIRONMENT)
    assert not isinstance(refusal, Unreached)


@pytest.mark.parametrize("listed", ["", "/providers/Microsoft.Network"])
def test_a_role_beside_the_workspace_is_given_where_azure_looked(listed):
    group = "/subscriptions/S/resourceGroups/G"
    refusal = explained(
        403,
        "AuthorizationFailed",
        f"The client 'me@x' with object id '{OTHER}' does not have authorization to perform action "
        f"'Microsoft.Network/privateEndpoints/read' over scope '{group}{listed}' or the scope is "
        "invalid.",
    )
    assert refusal.hint == (
        f'az role assignment create --assignee {OTHER} --role "Reader" --scope {group}'
    )


PRIVATE = "Access to workspace was denied based on workspace private link configuration."
OUTSIDE = (
    "User is not authorized to access provided resources due to none of the workspaces/registries "
    "are accessible from outside of the designated private link.."
)


@pytest.mark.parametrize(("status", "said"), [(403, PRIVATE), (502, PRIVATE), (401, OUTSIDE)])
def test_a_private_workspace_names_the_wrong_host_or_the_wrong_network(status, said):
    body = json.dumps({"error": {"code": "UserError", "message": said}}).encode()

    def at(host):
        return explain(status, body, environment=ENVIRONMENT, what="", host=f"https://{host}")

    old = at("westeurope.api.azureml.ms")
    assert old.message == (
        "workspace `W` is private and does not answer at westeurope.api.azureml.ms, the host of its "
        f"region ({said.rstrip('.')})"
    )
    assert old.hint == (
        "`pulumi up -s dev` writes the workspace's own host into the environment, then `launch env "
        "show -s dev --refresh`; a copy (--env): export or import it again"
    )
    outside = at("1.workspace.westeurope.api.azureml.ms")
    assert outside.message == (
        "1.workspace.westeurope.api.azureml.ms answers only from the network of the private "
        f"workspace `W` ({said.rstrip('.')})"
    )
    assert outside.hint == "connect by VPN or peering (docs/azure.md#how-to-reach-it)"
    assert type(old) is type(outside) is PrivateWorkspace
    assert not isinstance(old, Unreached)


def test_the_error_inside_of_a_deployments_is_told():
    inner = {"code": "RequestDisallowedByAzure", "message": "Resource 'x' was disallowed."}
    outer = {"code": "InvalidTemplateDeployment", "message": "See inner errors."}
    for details, code in (
        ([inner], "RequestDisallowedByAzure"),
        ([{"code": "MultipleErrorsOccurred", "details": [inner]}], "RequestDisallowedByAzure"),
        ([], "InvalidTemplateDeployment"),
        (["odd"], "InvalidTemplateDeployment"),
        (None, "InvalidTemplateDeployment"),
    ):
        body = json.dumps({"error": {**outer, "details": details}}).encode()
        refusal = explain(400, body, environment=ENVIRONMENT, what="", host="https://x")
        assert refusal.code == code


def test_it_says_what_was_tried():
    assert explained(400, "X", "no", what="cancelling r1").message == (
        "cancelling r1: Azure answered 400 X: no"
    )


def test_a_job_that_is_missing_is_no_missing_workspace():
    assert not isinstance(explained(404, "UserError", "Job x was not found."), WorkspaceGone)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"error": "text"}',
        b'{"error": null}',
        b'{"error": ' + b"[" * 200_000,
        b'{"error": "\xff"}',
    ],
    ids=range(7),
)
def test_an_answer_of_another_shape_is_no_crash(body):
    refusal = explain(502, body, environment=ENVIRONMENT, what="", host="https://x")
    assert refusal.message.startswith("Azure answered 502")


@pytest.mark.parametrize(
    ("action", "role"),
    [
        ("Microsoft.MachineLearningServices/workspaces/computes/read", "Reader"),
        (COMPUTES, "AzureML Compute Operator"),
        (JOBS, "AzureML Data Scientist"),
        (USAGES, "Reader"),
        ("Microsoft.Storage/anything", "Contributor"),
        ("Microsoft.Authorization/roleAssignments/read", "Reader"),
    ],
)
def test_the_least_role_is_named(action, role):
    assert role_for(action) == role
