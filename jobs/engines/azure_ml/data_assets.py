"""Makes a dataset's version known to a workspace, and hides it once its files are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.asset import asset_body, asset_path, can_be_asset
from jobs.engines.azure_ml.refusals import CloudRefusal

if TYPE_CHECKING:
    from jobs.contracts.spec import DatasetVersion, Environment
    from jobs.engines.azure_ml.client import Wire


def make_asset(
    dataset: DatasetVersion, environment: Environment, *, wire: Wire | None = None
) -> None:
    """Write the data asset of a version; raises EnvironmentFailure. Blocks on the network."""
    ref = f"{dataset.name}@{dataset.version}"
    if not can_be_asset(dataset.name):
        message = f"`{ref}` cannot be a data asset: Azure ML allows no dot in a name"
        raise EnvironmentFailure(
            message, hint="jobs of this project find it all the same; else push it by another name"
        )
    _write(
        dataset,
        environment,
        asset_body(dataset, environment),
        failure=f"`{ref}` is in the store, but has no data asset",
        hint="type the same again: what was sent is not sent a second time",
        wire=wire,
    )


def archive_asset(
    dataset: DatasetVersion, environment: Environment, *, wire: Wire | None = None
) -> None:
    """Hide the data asset of a version whose files are gone; raises EnvironmentFailure.

    Azure ML never gives a version's number free, so the asset stays, and is listed no more.
    """
    _write(
        dataset,
        environment,
        asset_body(dataset, environment, is_archived=True),
        failure=f"`{dataset.name}@{dataset.version}` is removed, but its data asset is still listed",
        hint=f"az ml data archive --name {dataset.name} --version {dataset.version}",
        wire=wire,
    )


def _write(
    dataset: DatasetVersion,
    environment: Environment,
    body: dict[str, Any],
    *,
    failure: str,
    hint: str,
    wire: Wire | None,
) -> None:
    from jobs.engines.azure_ml.client import Wire

    wire = wire or Wire(environment)
    try:
        wire.put(asset_path(wire.workspace, dataset), body)
    except EnvironmentFailure as error:
        # Of most answers the hint is but to try again.
        is_answer = isinstance(error, CloudRefusal) and error.status not in (401, 403)
        told = hint if is_answer else f"{error.hint}; then {hint}"
        message = f"{failure}: {error.message}"
        raise EnvironmentFailure(message, hint=told) from error
