"""Makes a dataset's version known to a workspace, and hides it once its files are gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import DatasetVersion, Environment
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.host.console import count_text, size_text

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient


# Azure ML's rule; ours allows dots too.
_ASSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")


def make_asset(dataset: DatasetVersion, client: ArmClient) -> None:
    """Write the data asset of a version; raises EnvironmentFailure. Blocks on the network."""
    if not can_be_asset(dataset.name):
        message = f"`{dataset.ref}` cannot be a data asset: Azure ML allows no dot in a name"
        raise EnvironmentFailure(
            message,
            hint="jobs of this project can still use it; to have an asset, push it under another name",
        )
    failure = f"`{dataset.ref}` is in the store, but has no data asset"
    hint = "type the same again: files that were sent are not sent again"
    _write(dataset, client, is_archived=False, failure=failure, hint=hint)


def archive_asset(dataset: DatasetVersion, client: ArmClient) -> None:
    """Hide the data asset of a version whose files are gone; raises EnvironmentFailure.

    Azure ML never gives a version's number free, so the asset stays, and is listed no more.
    """
    if not can_be_asset(dataset.name):
        return
    failure = f"`{dataset.ref}` is removed, but its data asset is still listed"
    hint = f"az ml data archive --name {dataset.name} --version {dataset.version}"
    _write(dataset, client, is_archived=True, failure=failure, hint=hint)


def _write(
    dataset: DatasetVersion, client: ArmClient, *, is_archived: bool, failure: str, hint: str
) -> None:
    body = asset_body(dataset, client.environment, is_archived=is_archived)
    try:
        client.put(asset_path(client.workspace, dataset), body)
    except EnvironmentFailure as error:
        # Of most answers the hint is but to try again.
        is_answer = isinstance(error, CloudRefusal) and error.status not in (401, 403)
        told = hint if is_answer else f"{error.hint}; then {hint}"
        message = f"{failure}: {error.message}"
        raise EnvironmentFailure(message, hint=told) from error


# --- Names and bodies (pure) ------------------------------------------------------------------


def datastore_uri(dataset: DatasetVersion, environment: Environment) -> str:
    """Give the address by which Azure ML finds a version."""
    return datastore_path(environment, environment.storage.containers.data, dataset.content_prefix)


def datastore_path(environment: Environment, container: str, path: str) -> str:
    """Give Azure ML's address of a path in one of the two containers."""
    assert environment.subscription_id
    assert environment.resource_group
    return (
        f"azureml://subscriptions/{environment.subscription_id}"
        f"/resourcegroups/{environment.resource_group}/workspaces/{environment.workspace.name}"
        f"/datastores/{environment.storage.datastore(container)}/paths/{path}"
    )


def asset_path(workspace: str, dataset: DatasetVersion) -> str:
    """Give the path in Resource Manager of a version's data asset."""
    return f"{workspace}/data/{dataset.name}/versions/{dataset.version}"


def can_be_asset(name: str) -> bool:
    """Tell whether Azure ML allows a dataset's name."""
    return _ASSET_NAME.fullmatch(name) is not None


def asset_body(
    dataset: DatasetVersion, environment: Environment, *, is_archived: bool = False
) -> dict[str, Any]:
    """Make the body of a version's data asset; equal each time, so that it can be written again."""
    files, size = count_text(dataset.files, "file"), size_text(dataset.bytes)
    return {
        "properties": {
            "description": f"{dataset.ref}: {files}, {size}",
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
