"""Makes a registered model's version known to a workspace, as an Azure ML model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment
from jobs.datasets.models import in_container
from jobs.datasets.records import DatasetRecord
from jobs.engines.azure_ml.data_assets import can_be_asset, datastore_uri
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.host.console import count_text, size_text

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import ArmClient


def make_model(model: DatasetRecord, client: ArmClient) -> None:
    """Write the workspace's model of a version; raises EnvironmentFailure. Blocks on the network."""
    if not can_be_asset(model.name):
        message = f"`{model.ref}` cannot be an Azure ML model: Azure ML allows no dot in a name"
        hint = "it stays in the store; launch model register RUN --name OTHER makes one"
        raise EnvironmentFailure(message, hint=hint)
    path = f"{client.workspace}/models/{model.name}/versions/{model.version}"
    try:
        client.put(path, model_body(model, client.environment))
    except EnvironmentFailure as error:
        hint = "type the same again: files that were sent are not sent again"
        is_answer = isinstance(error, CloudRefusal) and error.status not in (401, 403)
        message = f"`{model.ref}` is in the store, but is not an Azure ML model: {error.message}"
        told = hint if is_answer else f"{error.hint}; then {hint}"
        raise EnvironmentFailure(message, hint=told) from error


def model_uri(model: DatasetRecord, environment: Environment) -> str:
    """Give the address by which Azure ML finds a model's files (pure)."""
    return datastore_uri(in_container(model), environment)


def model_body(model: DatasetRecord, environment: Environment) -> dict[str, Any]:
    """Make the body of a version; equal each time, so that it can be written again (pure)."""
    size = f"{count_text(model.files, 'file')}, {size_text(model.bytes)}"
    lineage = model.lineage
    origin = {} if lineage is None else {"run": lineage.run, "stack": lineage.stack}
    return {
        "properties": {
            "description": f"{model.ref}: {size}",
            "isAnonymous": False,
            "isArchived": False,
            "modelType": "custom_model",
            "modelUri": model_uri(model, environment),
            "properties": {},
            "tags": {
                "digest": model.digest,
                "files": str(model.files),
                "bytes": str(model.bytes),
                **origin,
            },
        }
    }
