"""Require of datasets that are to be streamed that they are packed into shards."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.blobs.store import open_data_store
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion, Environment, InputSpec

# Lists the shards of a packed dataset.
INDEX_FILE = "index.json"


def require_packed(inputs: Mapping[str, InputSpec], environment: Environment) -> None:
    """Raise LaunchError if a streamed input is not a packed dataset."""
    streamed = {name: each for name, each in inputs.items() if each.mode == "stream"}
    store = open_data_store(environment) if streamed else None
    for name, each in streamed.items():
        assert store is not None
        blob = each.dataset.content_prefix + INDEX_FILE
        if not any(found.name == blob for found in store.list(blob)):
            raise not_packed(name, each.dataset)


def not_packed(name: str, dataset: DatasetVersion) -> LaunchError:
    """Make the error of an input that cannot be streamed."""
    message = f"input `{name}`: `{dataset.ref}` is not packed, so it cannot be streamed"
    hint = "mode: download, or launch data pack DIR --to PACKED and push that"
    return LaunchError(message, hint=hint)
