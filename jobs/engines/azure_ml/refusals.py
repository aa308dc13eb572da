"""Explain an error that Azure answers: its meaning, and the command or role that mends it (pure)."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from jobs.blobs.refusals import FIREWALL_HINT, behind_firewall
from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import Environment
from jobs.host.untrusted import parse_json

# The least built-in role for an action that begins so; the first that fits.
_ROLES = (
    ("Microsoft.MachineLearningServices/workspaces/computes/read", "Reader"),
    ("Microsoft.MachineLearningServices/workspaces/computes/", "AzureML Compute Operator"),
    ("Microsoft.MachineLearningServices/workspaces/", "AzureML Data Scientist"),
    ("Microsoft.MachineLearningServices/", "Reader"),
)
# The list of a stack's settings whose groups the stack gives the role on its workspace.
_LISTS = {
    "Reader": "people.readers",
    "AzureML Compute Operator": "people.operators",
    "AzureML Data Scientist": "people.practitioners",
}
_GONE = {"ResourceGroupNotFound", "ParentResourceNotFound"}
# What is wrong with a subscription, and what mends it: of a workspace in it that says nothing.
_UNSEEN = (
    "is not visible to this login",
    "az account list --all lists the visible ones; az login --tenant TENANT, with its tenant",
)
_DISABLED = ("is disabled", "its owner enables it again in Azure's portal")
_UNREGISTERED = (
    "is not registered for Azure ML",
    "az provider register --namespace Microsoft.MachineLearningServices, by its owner",
)
_SUBSCRIPTION = {
    "SubscriptionNotFound": _UNSEEN,
    "InvalidSubscriptionId": _UNSEEN,
    "ReadOnlyDisabledSubscription": _DISABLED,
    "DisabledSubscription": _DISABLED,
    "MissingSubscriptionRegistration": _UNREGISTERED,
    "SubscriptionNotRegistered": _UNREGISTERED,
}
_BEHIND_FIREWALL = re.compile(
    r"public (network )?access|private (endpoint|link)|firewall|virtual network|ip address",
    re.IGNORECASE,
)
_LONGEST_TEXT = 400


class CloudRefusal(EnvironmentFailure):
    """Azure answered with an error, or (`status` None) not at all."""

    def __init__(
        self, message: str, *, hint: str | None, status: int | None, code: str, text: str
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.text = text


class Passing(CloudRefusal, Unreached):
    """No answer, or one that a later try may better."""


class PlaceMissing(CloudRefusal):
    """Error that the subscription, group or workspace is missing, or hidden from this login."""


class WorkspaceGone(PlaceMissing):
    """The workspace itself is not there."""


def explain(
    status: int, body: bytes, *, environment: Environment, what: str, host: str
) -> CloudRefusal:
    """Make the error of an answer; `what` names the action, as `cancelling ID`."""
    code, text = reason(body)
    kind, message, hint = _meaning(status, code, text, environment, host)
    said = f"{what}: {message}" if what else message
    return kind(said, hint=hint, status=status, code=code, text=text)


def unreachable(error: Exception, *, environment: Environment, host: str) -> CloudRefusal:
    """No answer came."""
    lines = str(error).splitlines() or [type(error).__name__]
    message = f"{host} cannot be reached: {lines[0][:_LONGEST_TEXT]}"
    hint = f"launch env check -s {environment.stack}"
    return Passing(message, hint=hint, status=None, code="", text=lines[0])


def reason(body: bytes) -> tuple[str, str]:
    """Read the outermost code and the first line of Azure's message."""
    try:
        error = parse_json(body, dict[str, Any])["error"]
    except (msgspec.DecodeError, KeyError):
        return "", body[:_LONGEST_TEXT].decode(errors="replace").strip() or "no reason given"
    if not isinstance(error, dict):
        return "", str(error)
    told = cast("dict[str, Any]", error)
    lines = str(told.get("message") or "").strip().splitlines() or ["no reason given"]
    return str(told.get("code") or ""), lines[0][:_LONGEST_TEXT]


def role_for(action: str) -> str:
    """Name the built-in role that allows an action of Azure ML."""
    return next((role for begin, role in _ROLES if action.startswith(begin)), "Contributor")


def _meaning(
    status: int, code: str, text: str, environment: Environment, host: str
) -> tuple[type[CloudRefusal], str, str]:
    workspace = environment.workspace
    again = "type the same again in a minute"
    if code in _SUBSCRIPTION:
        trouble, hint = _SUBSCRIPTION[code]
        name = environment.subscription_id
        return PlaceMissing, f"the subscription {name} {trouble} ({text.rstrip('.')})", hint
    if status == 401:
        return _login(code, text)
    if status == 403:
        return _forbidden(code, text, environment, host)
    if status == 404 and _is_workspace_gone(code, text, workspace.name):
        message = f"there is no workspace `{workspace.name}` any more ({text.rstrip('.')})"
        hint = f"pulumi up -s {environment.stack} makes it again; `launch env show` shows the address that was used"
        return WorkspaceGone, message, hint
    if status == 429:
        message = f"Azure limits our requests, still after several tries ({text})"
        return Passing, message, again
    if status == 409:
        return Passing, f"Azure is busy with another change of the same resource: {text}", again
    message = f"Azure answered {status}{f' {code}' if code else ''}: {text}"
    if status == 408 or status >= 500:
        return Passing, message, f"{again}; https://status.azure.com lists outages"
    return CloudRefusal, message, f"launch env check -s {environment.stack}"


def _login(code: str, text: str) -> tuple[type[CloudRefusal], str, str]:
    tenants = re.findall(r"https://sts\.windows\.net/([0-9a-fA-F-]{36})", text)
    if code == "InvalidAuthenticationTokenTenant" and len(tenants) >= 2:
        message = f"logged in to tenant {tenants[0]}, and the subscription is of {tenants[1]}"
        return CloudRefusal, message, f"az login --tenant {tenants[1]}"
    message = f"Azure rejects our login: {text}"
    return CloudRefusal, message, "az login, then type the same again"


def _forbidden(
    code: str, text: str, environment: Environment, host: str
) -> tuple[type[CloudRefusal], str, str]:
    if code != "AuthorizationFailed" and _BEHIND_FIREWALL.search(f"{code} {text}"):
        return CloudRefusal, f"{behind_firewall(host)} ({text})", FIREWALL_HINT
    action = re.search(r"action '([^']+)'", text)
    person = re.search(r"object id '([^']+)'", text)
    role = role_for(action[1] if action else "")
    doing = f" to do `{action[1]}`" if action else f": {text}"
    message = f"our roles do not allow us{doing}"
    scope = environment.workspace.id
    hint = f"the owner of the stack adds our group to `{_LISTS.get(role, 'people')}`, or: "
    if action and "/locations/" in action[1]:
        # What is asked of a region is of no workspace, and no stack gives roles on a subscription.
        scope, hint = f"/subscriptions/{environment.subscription_id}", ""
    hint += (
        f"az role assignment create --assignee {person[1] if person else 'WHO'} "
        f'--role "{role}" --scope {scope}'
    )
    return CloudRefusal, message, hint


def _is_workspace_gone(code: str, text: str, workspace: str) -> bool:
    if code in _GONE:
        return True
    # What is in a workspace is missed under other names.
    return code == "ResourceNotFound" and f"workspaces/{workspace}'" in text
