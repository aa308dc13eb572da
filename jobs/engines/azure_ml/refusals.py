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
_OF_WORKSPACE = "Microsoft.MachineLearningServices/workspaces/"
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
# Two services' words for it, one under 401, one under 403 or 502 (docs/azure-messages.md).
_PRIVATE_WORKSPACE = re.compile(
    r"workspace private link configuration|outside of the designated private link", re.IGNORECASE
)
_PRIVATE_HOST = ".workspace."
# Errors that only wrap the ones that say why.
_WRAPPERS = {"InvalidTemplateDeployment", "MultipleErrorsOccurred", "DeploymentFailed"}
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


class PrivateWorkspace(CloudRefusal):
    """A private workspace was asked at a public host, or from outside of its network."""


def explain(
    status: int, body: bytes, *, environment: Environment, what: str, host: str
) -> CloudRefusal:
    """Make the error of an answer; `what` names the action, as `cancelling ID`."""
    code, text = reason(body)
    kind, message, hint = _meaning(status, code, text, environment, host)
    said = f"{what}: {message}" if what else message
    return kind(said, hint=hint, status=status, code=code, text=text)


def unreachable(error: Exception, *, environment: Environment, host: str) -> CloudRefusal:
    """Make the error of a host that gave no answer."""
    lines = str(error).splitlines() or [type(error).__name__]
    message = f"{host} cannot be reached: {lines[0][:_LONGEST_TEXT]}"
    hint = f"launch env check -s {environment.stack}"
    return Passing(message, hint=hint, status=None, code="", text=lines[0])


def reason(body: bytes) -> tuple[str, str]:
    """Read the outermost code that says why, and the first line of its message."""
    try:
        error = parse_json(body, dict[str, Any])["error"]
    except (msgspec.DecodeError, KeyError):
        return "", body[:_LONGEST_TEXT].decode(errors="replace").strip() or "no reason given"
    if not isinstance(error, dict):
        return "", str(error)
    told = _unwrapped(cast("dict[str, Any]", error))
    lines = str(told.get("message") or "").strip().splitlines() or ["no reason given"]
    return str(told.get("code") or ""), lines[0][:_LONGEST_TEXT]


def _unwrapped(error: dict[str, Any]) -> dict[str, Any]:
    """Give the first error inside of those that only wrap others."""
    while error.get("code") in _WRAPPERS:
        inner = error.get("details")
        first = cast("list[Any]", inner)[0] if isinstance(inner, list) and inner else None
        if not isinstance(first, dict):
            break
        error = cast("dict[str, Any]", first)
    return error


def role_for(action: str) -> str:
    """Name the least built-in role that allows an action."""
    least = "Reader" if action.endswith("/read") else "Contributor"
    return next((role for begin, role in _ROLES if action.startswith(begin)), least)


def _meaning(
    status: int, code: str, text: str, environment: Environment, host: str
) -> tuple[type[CloudRefusal], str, str]:
    workspace = environment.workspace
    again = "type the same again in a minute"
    if code in _SUBSCRIPTION:
        trouble, hint = _SUBSCRIPTION[code]
        name = environment.subscription_id
        return PlaceMissing, f"the subscription {name} {trouble} ({text.rstrip('.')})", hint
    if status in {401, 403, 502} and _PRIVATE_WORKSPACE.search(text):
        return _private(text, environment, host)
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


def _private(text: str, environment: Environment, host: str) -> tuple[type[CloudRefusal], str, str]:
    """Explain the refusal of a private workspace: the wrong host, or the wrong network."""
    name, stack = environment.workspace.name, environment.stack
    asked = host.removeprefix("https://")
    if _PRIVATE_HOST in asked:
        message = f"{asked} answers only from the network of the private workspace `{name}` ({text.rstrip('.')})"
        return (
            PrivateWorkspace,
            message,
            "connect by VPN or peering (docs/azure.md#how-to-reach-it)",
        )
    message = (
        f"workspace `{name}` is private and does not answer at {asked}, the host of its region "
        f"({text.rstrip('.')})"
    )
    hint = (
        f"`pulumi up -s {stack}` writes the workspace's own host into the environment, then "
        f"`launch env show -s {stack} --refresh`; a copy (--env): export or import it again"
    )
    return PrivateWorkspace, message, hint


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
    if action and not action[1].startswith(_OF_WORKSPACE):
        # No stack gives roles on a subscription, or on its group.
        scope, hint = _assignable(action[1], text, environment), ""
    hint += (
        f"az role assignment create --assignee {person[1] if person else 'WHO'} "
        f'--role "{role}" --scope {scope}'
    )
    return CloudRefusal, message, hint


def _assignable(action: str, text: str, environment: Environment) -> str:
    """Find the scope that a role for an action beside the workspace is given on."""
    place = re.search(r"over scope '([^']+)'", text)
    if place is None or "/locations/" in action:
        return f"/subscriptions/{environment.subscription_id}"
    around, _, kind = place[1].partition("/providers/")
    # A list's scope ends with the provider, which takes no role.
    return place[1] if kind.count("/") > 1 else around


def _is_workspace_gone(code: str, text: str, workspace: str) -> bool:
    if code in _GONE:
        return True
    # What is in a workspace is missed under other names.
    return code == "ResourceNotFound" and f"workspaces/{workspace}'" in text
