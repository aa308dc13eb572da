"""Finds the subscription and tenant of the login, which the stack is made in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization


@dataclass(frozen=True, kw_only=True)
class Account:
    """Subscription and tenant in plain text, which every id is made from."""

    subscription_id: str
    tenant_id: str


def find_account() -> Account:
    """Ask the provider; raise one clear sentence where the login is not enough."""
    try:
        found = authorization.get_client_config()
    except Exception as error:  # the SDK raises nothing narrower
        reason = str(error).rpartition("returned an error: ")[2]
        message = f"no way into Azure: {reason}\n  {_HINT}"
        raise pulumi.RunError(message) from error
    if not found.subscription_id or not found.tenant_id:
        message = f"no way into Azure: no subscription is chosen\n  {_HINT}"
        raise pulumi.RunError(message)
    # Names that all of Azure shares are made from its letters, and it may be set in capitals.
    return Account(subscription_id=found.subscription_id.lower(), tenant_id=found.tenant_id)


def require_group_inside(group_id: str | None, account: Account, *, stack: str) -> None:
    """Raise where a resource group that is there lies in another subscription than the login.

    Where the settings name the subscription, they are judged by themselves.
    """
    subscription = group_id.split("/")[2].lower() if group_id else account.subscription_id
    if subscription != account.subscription_id:
        message = (
            f"existing.resource_group is in subscription {subscription}, the login is in "
            f"{account.subscription_id}\n"
            f"  hint: `pulumi config set {_PIN} {subscription} -s {stack}`"
        )
        raise pulumi.RunError(message)


def why_unpinned(config: Mapping[str, str], *, stack: str, subscription_id: str) -> str | None:
    """Warn of settings that name no subscription; None where they name one.

    Every id is made from it: a forgotten `az account set` would make all anew in another one.
    """
    if config.get(_PIN):
        return None
    return (
        f"the subscription {subscription_id} is the one that `az account show` names; "
        f"`pulumi config set {_PIN} {subscription_id} -s {stack}` keeps this stack in it"
    )


_PIN = "azure-native:subscriptionId"
_HINT = (
    "hint: `az login`, then `az account set -s SUBSCRIPTION`; "
    "in CI set ARM_CLIENT_ID, ARM_TENANT_ID, ARM_SUBSCRIPTION_ID and ARM_USE_OIDC"
)
