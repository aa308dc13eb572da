"""Define the options of `launch data`; open datasets and tell Azure ML of versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from jobs.commands import completers, options, quantities
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment
    from jobs.datasets.datasets import Datasets
    from jobs.datasets.records import DatasetRecord

Told = TypeVar("Told")

Sas = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=Path,
        help="File that holds a SAS of the store, in place of a login.",
    ),
]
LimitRate = Annotated[
    int | None,
    typer.Option(
        metavar="RATE",
        parser=quantities.bytes_per_s,
        help="Maximum rate in bytes per second, e.g. 500k or 20M.",
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
        help="Dataset or one version of it.",
        autocompletion=completers.dataset_versions,
    ),
]


def open_datasets(environment: Environment, sas: Path | None) -> Datasets:
    """Open the datasets of the environment's store."""
    from jobs.datasets.datasets import Datasets

    return Datasets.of(environment, sas_file=sas)


def register_dataset(record: DatasetRecord, environment: Environment) -> None:
    """Tell the engine of a version that was made; warn if that fails."""
    tell(options.open_engine(environment).register_dataset, record.pinned())


def withdraw_dataset(record: DatasetRecord, environment: Environment) -> None:
    """Tell the engine of a version that was removed; warn if that fails."""
    tell(options.open_engine(environment).withdraw_dataset, record.pinned())


def tell(engine: Callable[[Told], None], version: Told) -> None:
    """Call an engine's method with a version; warn if it fails, as the version stays."""
    from jobs.contracts.errors import EnvironmentFailure

    try:
        engine(version)
    except EnvironmentFailure as error:
        console.warn(f"{error.message} ({error.hint})")
