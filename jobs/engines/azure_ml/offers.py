"""Ask Azure whether it offers a stack's region and sizes to its subscription, before the first `up`.

All questions are reads, or a validation, which makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from jobs.blobs.credentials import MANAGEMENT_SCOPE
from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.engines.azure_ml.declared import Compute, Declared
from jobs.engines.azure_ml.refusals import CloudRefusal, reason
from jobs.engines.azure_ml.sizes import Size
from jobs.host.parallel import parallel
from jobs.host.untrusted import parse, parse_rows
from jobs.stacks.reachability import PartCheck

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

PROVIDER = "Microsoft.MachineLearningServices"
RESOURCES_API_VERSION = "2024-03-01"
IDENTITY_API_VERSION = "2023-01-31"
SKUS_API_VERSION = "2021-07-01"
VALIDATION_S = 120.0
_COMPUTE_TYPE = "AmlCompute"
_ACCESS = "learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available"
# A policy of Microsoft's own, of the tenant, and a service that the region lacks.
_REFUSED = {
    "RequestDisallowedByAzure",
    "RequestDisallowedByPolicy",
    "LocationNotAvailableForResourceType",
    "LocationNotAvailableForResourceGroup",
}


class _Type(Struct, frozen=True, kw_only=True, rename="camel"):
    resource_type: str
    locations: tuple[str, ...] = ()


class _Provider(Struct, frozen=True, kw_only=True, rename="camel"):
    registration_state: str = ""
    resource_types: tuple[_Type, ...] = ()


class _Restriction(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    reason_code: str = ""


class _Sku(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    resource_type: str = ""
    restrictions: tuple[_Restriction, ...] = ()


def check_offers(client: ArmClient, declared: Declared) -> list[PartCheck]:
    """Check region, Azure ML in it and each cluster's size; changes nothing, makes nothing.

    Where nobody is logged in, or answers, the checks are `unknown`. Once the workspace is there,
    region and Azure ML are no question any more.
    """
    clusters = [f"cluster {each.cluster}" for each in declared.computes]
    place = client.environment.location
    try:
        client.tokens.header(MANAGEMENT_SCOPE)
    except EnvironmentFailure as failure:
        parts = [f"region {place}", "Azure ML", *clusters] if declared.is_new else clusters
        return [_unasked(part, failure) for part in parts]
    questions: list[tuple[list[str], Callable[[], list[PartCheck]]]] = []
    if declared.is_new:
        questions = [
            ([f"region {place}"], lambda: [_check_region(client, declared)]),
            (["Azure ML"], lambda: [_check_provider(client)]),
        ]
    questions.append((clusters, lambda: _check_sizes(client, declared)))
    found = parallel(lambda question: _answered(*question), questions)
    return [check for checks in found for check in checks]


def _answered(parts: list[str], ask: Callable[[], list[PartCheck]]) -> list[PartCheck]:
    try:
        return ask()
    except EnvironmentFailure as failure:
        return [_unasked(part, failure) for part in parts]


def _unasked(part: str, failure: EnvironmentFailure) -> PartCheck:
    """Make the check of a question that got no answer, or that we may not ask."""
    is_forbidden = isinstance(failure, CloudRefusal) and failure.code == "AuthorizationFailed"
    if is_forbidden:
        told = "not allowed to ask"
    elif isinstance(failure, CloudRefusal) and not isinstance(failure, Unreached):
        told = "Azure does not tell"
    else:
        told = "not asked"
    detail = f"{told}: {failure.message}"
    return PartCheck(part=part, ok=False, known=False, detail=detail, mend=failure.hint or "")


def _check_region(client: ArmClient, declared: Declared) -> PartCheck:
    """Have Resource Manager validate one identity in the region, as its first deployment would be.

    https://learn.microsoft.com/rest/api/resources/deployments/validate-at-subscription-scope
    """
    environment = client.environment
    place, part = environment.location, f"region {environment.location}"
    path = (
        f"/subscriptions/{environment.subscription_id}/providers/Microsoft.Resources/deployments"
        f"/trainyard-{environment.stack}/validate"
    )
    what = f"asking for the region {place}"
    try:
        reply = client.post(
            path, _validation(declared), api_version=RESOURCES_API_VERSION, what=what
        )
        last = client.outcome(reply, timeout_s=VALIDATION_S, what=what)
        code, text = "", ""
        if last is not None and last.body.get("error"):
            code, text = reason(msgspec.json.encode(last.body))
    except CloudRefusal as refusal:
        if refusal.code not in _REFUSED:
            raise
        code, text, last = refusal.code, refusal.text, None
    if code:
        return _refused_region(part, code, text, environment.stack)
    if last is None:
        detail = f"not told: the validation did not end within {VALIDATION_S:.0f} s"
        return PartCheck(part=part, ok=False, known=False, detail=detail, mend="the same again")
    return PartCheck(part=part, ok=True, detail="takes this subscription")


def _refused_region(part: str, code: str, text: str, stack: str) -> PartCheck:
    if code not in _REFUSED:
        detail = f"Azure does not tell: it answers {code}: {text}"
        return PartCheck(part=part, ok=False, known=False, detail=detail)
    mend = (
        f"`pulumi config set trainyard:location REGION -s {stack}`, with a region that takes new "
        "subscriptions (docs/azure.md#when-azure-refuses-the-region)"
    )
    if code == "RequestDisallowedByPolicy":
        mend = "ask who keeps the policies of the subscription; " + mend
    return PartCheck(part=part, ok=False, detail=f"refused ({code}): {text}", mend=mend)


def _validation(declared: Declared) -> dict[str, Any]:
    """Build the deployment of one identity, in the stack's group, as the stack declares both."""
    place, group, identity = declared.environment, declared.group, declared.identity
    schema = "https://schema.management.azure.com/schemas"
    inner = {
        "type": "Microsoft.ManagedIdentity/userAssignedIdentities",
        "apiVersion": IDENTITY_API_VERSION,
        "name": identity.resource_name if identity else f"id-{place.stack}",
        "location": identity.location if identity else place.location,
        "tags": identity.tags if identity else {},
    }
    nested: dict[str, Any] = {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": RESOURCES_API_VERSION,
        "name": f"trainyard-{place.stack}-part",
        "resourceGroup": place.resource_group,
        "properties": {
            "mode": "Incremental",
            "template": {
                "$schema": f"{schema}/2019-04-01/deploymentTemplate.json#",
                "contentVersion": "1.0.0.0",
                "resources": [inner],
            },
        },
    }
    resources = [nested]
    if group is not None:
        made = {
            "type": "Microsoft.Resources/resourceGroups",
            "apiVersion": RESOURCES_API_VERSION,
            "name": group.resource_group_name,
            "location": group.location,
            "tags": group.tags,
        }
        nested["dependsOn"] = [f"Microsoft.Resources/resourceGroups/{group.resource_group_name}"]
        resources = [made, nested]
    return {
        "location": place.location,
        "properties": {
            "mode": "Incremental",
            "template": {
                "$schema": f"{schema}/2018-05-01/subscriptionDeploymentTemplate.json#",
                "contentVersion": "1.0.0.0",
                "resources": resources,
            },
        },
    }


def _check_provider(client: ArmClient) -> PartCheck:
    """Check that the subscription has Azure ML, and that the region does."""
    environment = client.environment
    what = "asking for Azure ML's regions"
    path = f"/subscriptions/{environment.subscription_id}/providers/{PROVIDER}"
    answer = client.get(path, api_version=RESOURCES_API_VERSION, what=what)
    provider = parse(answer, _Provider, what=what)
    if provider.registration_state != "Registered":
        detail = f"{PROVIDER} is {provider.registration_state or 'in no state'} in the subscription"
        mend = f"`az provider register --namespace {PROVIDER}`; all that are needed: docs/azure.md"
        return PartCheck(part="Azure ML", ok=False, detail=detail, mend=mend)
    places = next(
        (each.locations for each in provider.resource_types if each.resource_type == "workspaces"),
        (),
    )
    if environment.location not in {_plain(each) for each in places}:
        detail = f"Azure ML is not in {environment.location}"
        mend = f"`pulumi config set trainyard:location REGION -s {environment.stack}`, one of: "
        mend += ", ".join(sorted(_plain(each) for each in places))
        return PartCheck(part="Azure ML", ok=False, detail=detail, mend=mend)
    return PartCheck(part="Azure ML", ok=True, detail=f"in {environment.location}, registered")


def _plain(location: str) -> str:
    """Convert `West Europe` into `westeurope`."""
    return location.replace(" ", "").lower()


def _check_sizes(client: ArmClient, declared: Declared) -> list[PartCheck]:
    from jobs.engines.azure_ml.sizes import read_sizes

    sizes = read_sizes(client)
    restricted = _restrictions(client) if declared.is_new else {}
    stack = client.environment.stack
    return [_check_size(each, sizes, restricted, stack) for each in declared.computes]


def _check_size(
    compute: Compute, sizes: Mapping[str, Size], restricted: Mapping[str, str], stack: str
) -> PartCheck:
    part, wanted = f"cluster {compute.cluster}", compute.vm_size
    size = sizes.get(wanted.lower())
    another = (
        f"`pulumi config set --path trainyard:clusters.{compute.cluster}.size SIZE -s {stack}`"
    )
    if size is None:
        near = get_close_matches(wanted.lower(), list(sizes), n=3)
        mend = f"{another}; sizes like it there: {', '.join(sizes[each].name for each in near) or 'none'}"
        detail = f"Azure ML has no {wanted} in the region for this subscription"
        return PartCheck(part=part, ok=False, detail=detail, mend=mend)
    if size.compute_types and _COMPUTE_TYPE not in size.compute_types:
        detail = f"{wanted} is there for {', '.join(size.compute_types)}, and not for clusters"
        return PartCheck(part=part, ok=False, detail=detail, mend=another)
    if reason_code := restricted.get(wanted.lower()):
        detail = (
            f"Azure ML lists {wanted}, but Azure restricts it for the subscription's own machines "
            f"({reason_code}): nodes may not start"
        )
        mend = f"ask for access ({_ACCESS}), or {another}"
        return PartCheck(part=part, ok=False, known=False, detail=detail, mend=mend)
    return PartCheck(part=part, ok=True, detail=f"{size.name} can be had")


def _restrictions(client: ArmClient) -> dict[str, str]:
    """Map each size that the whole region keeps from the subscription to Azure's reason.

    Nodes are machines of Azure ML's own subscriptions, so that it is a hint and no verdict: where
    it may not be read, there is none.
    """
    environment = client.environment
    listed = client.pages(
        f"/subscriptions/{environment.subscription_id}/providers/Microsoft.Compute/skus",
        api_version=SKUS_API_VERSION,
        query={"$filter": f"location eq '{environment.location}'"},
        what="asking for restricted sizes",
    )
    try:
        rows = parse_rows(listed, _Sku)
    except CloudRefusal:
        return {}
    return {
        row.name.lower(): each.reason_code
        for row in rows
        if row.resource_type == "virtualMachines"
        for each in row.restrictions
        if each.type == "Location"
    }
