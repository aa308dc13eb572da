"""Has a stack's container registry import an image from another stack's, by its digest.

The two registries copy among themselves; no layer passes through this machine. The request:
https://learn.microsoft.com/rest/api/containerregistry/registries/import-image
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import Environment

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient

API_VERSION = "2023-07-01"
IMPORT_TIMEOUT_S = 3600.0
_PINNED = re.compile(
    r"(?P<host>[a-z0-9.-]+)/(?P<path>[a-z0-9][a-z0-9._/-]*)@(?P<digest>sha256:[0-9a-f]{64})"
)
_AZURES = re.compile(r"(?P<name>[a-z0-9]{5,50})\.azurecr\.io")


def import_image(reference: str, source: Environment, client: ArmClient) -> str:
    """Import a pinned image into the registry of the client's environment; gives its reference there.

    The digest is the content's, so the nodes pull the same bytes from both. Raises LaunchError for
    a reference without digest or a registry that is not on Azure. Blocks until it is imported.
    """
    target = _registry(client.environment)
    body = import_body(reference, source)
    pinned = _pinned(reference)
    if pinned["host"] == f"{target.rpartition('/')[2]}.azurecr.io":
        return reference
    what = f"importing {reference}"
    reply = client.post(f"{target}/importImage", body, api_version=API_VERSION, what=what)
    if not client.wait(reply, timeout_s=IMPORT_TIMEOUT_S, what=what):
        message = f"the import of {reference} is not over after {IMPORT_TIMEOUT_S / 60:.0f} min"
        raise EnvironmentFailure(message, hint="type the same again: it goes on")
    login_server = client.environment.registry.login_server if client.environment.registry else ""
    return f"{login_server}/{pinned['path']}@{pinned['digest']}"


def import_body(reference: str, source: Environment) -> dict[str, Any]:
    """Make the request that imports a pinned image of a stack's registry (pure).

    A tag comes with it, as registries delete manifests without one after some days.
    """
    pinned = _pinned(reference)
    path, digest = pinned["path"], pinned["digest"]
    own = source.registry.login_server if source.registry else None
    place = (
        {"resourceId": _registry(source)}
        if pinned["host"] == own
        else {"registryUri": pinned["host"]}
    )
    return {
        "source": {**place, "sourceImage": f"{path}@{digest}"},
        "targetTags": [f"{path}:promoted-{digest.removeprefix('sha256:')[:12]}"],
        "mode": "Force",
    }


def _registry(environment: Environment) -> str:
    """Give the path in Resource Manager of an environment's registry."""
    server = environment.registry.login_server if environment.registry else ""
    match = _AZURES.fullmatch(server)
    if match is None or not environment.subscription_id or not environment.resource_group:
        message = f"stack `{environment.stack}` has no registry on Azure"
        raise LaunchError(message, hint="launch env show lists the registry of a stack")
    return (
        f"/subscriptions/{environment.subscription_id}"
        f"/resourceGroups/{environment.resource_group}"
        f"/providers/Microsoft.ContainerRegistry/registries/{match['name']}"
    )


def _pinned(reference: str) -> re.Match[str]:
    match = _PINNED.fullmatch(reference)
    if match is None:
        message = f"`{reference}` is not pinned by a digest, and can be another image tomorrow"
        raise LaunchError(
            message, hint="launch image push NAME prints a reference HOST/PATH@sha256:..."
        )
    return match
