"""Makes a dataset version known to Azure ML: a data asset that points at its folder in the store."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from jobs.console import count_text, size_text
from jobs.errors import EnvironmentFailure
from jobs.spec import DatasetVersion, Environment

MANAGEMENT = "https://management.azure.com"
API_VERSION = "2024-04-01"
# Azure ML's rule; ours allows dots too.
_ASSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_TIMEOUT_S = 30


def datastore_uri(dataset: DatasetVersion, environment: Environment) -> str:
    """Where Azure ML finds a version; the workspace's datastore is called as the container."""
    return datastore_path(environment, environment.storage.containers.data, dataset.content_prefix)


def datastore_path(environment: Environment, container: str, path: str) -> str:
    """What Azure ML calls a place in one of the two containers."""
    assert environment.subscription_id
    assert environment.resource_group
    return (
        f"azureml://subscriptions/{environment.subscription_id}"
        f"/resourcegroups/{environment.resource_group}/workspaces/{environment.workspace.name}"
        f"/datastores/{container.replace('-', '_')}/paths/{path}"
    )


def asset_url(dataset: DatasetVersion, environment: Environment) -> str:
    """The resource of a version's data asset."""
    return (
        f"{MANAGEMENT}/subscriptions/{environment.subscription_id}"
        f"/resourceGroups/{environment.resource_group}"
        "/providers/Microsoft.MachineLearningServices"
        f"/workspaces/{environment.workspace.name}/data/{dataset.name}/versions/{dataset.version}"
        f"?api-version={API_VERSION}"
    )


def can_be_asset(name: str) -> bool:
    """Whether Azure ML allows a dataset's name."""
    return _ASSET_NAME.fullmatch(name) is not None


def asset_body(
    dataset: DatasetVersion, environment: Environment, *, is_archived: bool = False
) -> dict[str, Any]:
    """What is written there; the same each time, so that it can be written again."""
    files, size = count_text(dataset.files, "file"), size_text(dataset.bytes)
    return {
        "properties": {
            "description": f"{dataset.name}@{dataset.version}: {files}, {size}",
            "isAnonymous": False,
            "tags": {
                "digest": dataset.digest,
                "files": str(dataset.files),
                "bytes": str(dataset.bytes),
            },
            "isArchived": is_archived,
            "properties": {},
            "dataUri": datastore_uri(dataset, environment),
            "dataType": "uri_folder",
        }
    }


def make_asset(dataset: DatasetVersion, environment: Environment, client: Any = None) -> None:
    """Write the data asset of a version; raises EnvironmentFailure.

    `client` is an azure-core PipelineClient; one with your identity where none is given.
    """
    ref = f"{dataset.name}@{dataset.version}"
    if not can_be_asset(dataset.name):
        message = f"`{ref}` cannot be a data asset: Azure ML allows no dot in a name"
        raise EnvironmentFailure(
            message, hint="jobs of this project find it all the same; else push it by another name"
        )
    _write(
        asset_url(dataset, environment),
        asset_body(dataset, environment),
        failure=f"`{ref}` is in the store, but has no data asset",
        hint="type the same again: what was sent is not sent a second time",
        client=client,
    )


def archive_asset(dataset: DatasetVersion, environment: Environment, client: Any = None) -> None:
    """Hide the data asset of a version whose files are gone; raises EnvironmentFailure.

    Azure ML never gives a version's number free, so the asset stays, and is listed no more.
    """
    ref = f"{dataset.name}@{dataset.version}"
    _write(
        asset_url(dataset, environment),
        asset_body(dataset, environment, is_archived=True),
        failure=f"`{ref}` is removed, but its data asset is still listed",
        hint=f"az ml data archive --name {dataset.name} --version {dataset.version}",
        client=client,
    )


def _write(url: str, body: dict[str, Any], *, failure: str, hint: str, client: Any) -> None:
    try:
        from azure.core.exceptions import AzureError
        from azure.core.rest import HttpRequest
    except ImportError as error:
        message = f"azure-core cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint="uv sync --extra azure") from None
    request = HttpRequest(
        "PUT",
        url,
        headers={"Accept": "application/json"},
        json=body,
    )
    try:
        response = (client or _client()).send_request(
            request, connection_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S
        )
    except AzureError as error:
        message = f"{failure}: {str(error).splitlines()[0]}"
        raise EnvironmentFailure(message, hint=hint) from None
    if response.status_code not in (200, 201):
        answer = f"Azure ML answered {response.status_code}: {_reason(response.text())}"
        if response.status_code == 403:
            hint = f"the role AzureML Data Scientist on the workspace, then {hint}"
        message = f"{failure}: {answer}"
        raise EnvironmentFailure(message, hint=hint)


def _client() -> Any:
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
    from azure.identity import DefaultAzureCredential

    credential = DefaultAzureCredential()
    policies: list[Any] = [
        RetryPolicy(retry_total=4),
        BearerTokenCredentialPolicy(credential, f"{MANAGEMENT}/.default"),
    ]
    return cast("Any", PipelineClient)(MANAGEMENT, policies=policies)


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return text[:200].strip() or "no reason given"
