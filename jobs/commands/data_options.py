"""Define the options of `launch data`; open datasets and tell Azure ML of versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, quantities
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import DatasetVersion, Environment
    from jobs.datasets.datasets import Datasets
    from jobs.datasets.records import DatasetRecord


Sas = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=Path,
        help="A file with a SAS of the store, for those who got one instead of a login.",
    ),
]
LimitRate = Annotated[
    int | None,
    typer.Option(
        metavar="RATE",
        parser=quantities.bytes_per_s,
        help="No more bytes a second than this, as in 500k or 20M.",
    ),
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The dataset's name.", autocompletion=completers.datasets),
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@N]",
        help="A dataset, or one version.",
        autocompletion=completers.dataset_versions,
    ),
]


def open_datasets(environment: Environment, sas: Path | None) -> Datasets:
    """Open the datasets of the environment's store."""
    from jobs.datasets.datasets import Datasets

    return Datasets.of(environment, sas_file=sas)


def tell_azure_ml(record: DatasetRecord, environment: Environment) -> None:
    """Make the data asset of a version on Azure; warn if that fails."""
    if environment.engine == "local":
        return
    from jobs.engines.azure_ml.data_assets import make_asset

    _write_asset(make_asset, record, environment)


def archive_asset(record: DatasetRecord, environment: Environment) -> None:
    """Hide the data asset of a version that was removed; warn if that fails."""
    if environment.engine == "local":
        return
    from jobs.datasets.asset import can_be_asset
    from jobs.engines.azure_ml import data_assets

    if can_be_asset(record.name):
        _write_asset(data_assets.archive_asset, record, environment)


def _write_asset(
    write: Callable[[DatasetVersion, Environment], None],
    record: DatasetRecord,
    environment: Environment,
) -> None:
    from jobs.contracts.errors import EnvironmentFailure

    try:
        write(record.pinned(), environment)
    except EnvironmentFailure as error:
        console.warn(f"{error.message} ({error.hint})")
