"""Describes a dataset's version as Azure ML's data asset, which points at its folder (pure)."""

from __future__ import annotations

import re
from typing import Any

from jobs.contracts.spec import DatasetVersion, Environment
from jobs.host.console import count_text, size_text

# Azure ML's rule; ours allows dots too.
_ASSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")


def datastore_uri(dataset: DatasetVersion, environment: Environment) -> str:
    """Give the URI under which Azure ML finds a version."""
    return datastore_path(environment, environment.storage.containers.data, dataset.content_prefix)


def datastore_path(environment: Environment, container: str, path: str) -> str:
    """Give Azure ML's path of a place in one of the two containers."""
    assert environment.subscription_id
    assert environment.resource_group
    return (
        f"azureml://subscriptions/{environment.subscription_id}"
        f"/resourcegroups/{environment.resource_group}/workspaces/{environment.workspace.name}"
        f"/datastores/{environment.storage.datastore(container)}/paths/{path}"
    )


def asset_path(workspace: str, dataset: DatasetVersion) -> str:
    """Give the path of a version's data asset below Resource Manager."""
    return f"{workspace}/data/{dataset.name}/versions/{dataset.version}"


def can_be_asset(name: str) -> bool:
    """Tell whether Azure ML allows a dataset's name."""
    return _ASSET_NAME.fullmatch(name) is not None


def asset_body(
    dataset: DatasetVersion, environment: Environment, *, is_archived: bool = False
) -> dict[str, Any]:
    """Give the body of a version's data asset; equal each time, so that it can be written again."""
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
