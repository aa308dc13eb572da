"""What the verbs of `launch data` share: the store's options, a record as JSON, Azure ML's asset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.commands import completers as completion
from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import DatasetVersion, Environment
    from jobs.datasets.datasets import Datasets
    from jobs.datasets.records import DatasetRecord


def add_store(parser: CommandParser) -> None:
    """`--sas`, `--json`, and the environment's options."""
    sas = parser.add_argument(
        "--sas",
        metavar="FILE",
        type=Path,
        help="A file with a SAS of the store, for those who got one instead of a login.",
    )
    completion.offer(sas, completion.files)
    options.add_json(parser)
    options.add_environment(parser)


def open_datasets(environment: Environment, sas: Path | None) -> Datasets:
    """The datasets of the environment's store."""
    from jobs.datasets.datasets import Datasets

    return Datasets.of(environment, sas_file=sas)


def record_fields(record: DatasetRecord) -> dict[str, Any]:
    """A version as `--json` gives it."""
    fields: dict[str, Any] = {
        "name": record.name,
        "version": record.version,
        "digest": record.digest,
        "files": record.files,
        "bytes": record.bytes,
        "created": record.created,
    }
    return fields if record.prefix is None else {**fields, "prefix": record.prefix}


def register_dataset(record: DatasetRecord, environment: Environment) -> None:
    """Tell the engine of a version that was made; warn where that fails."""
    _tell(options.open_engine(environment).register_dataset, record)


def withdraw_dataset(record: DatasetRecord, environment: Environment) -> None:
    """Tell the engine of a version that was removed; warn where that fails."""
    _tell(options.open_engine(environment).withdraw_dataset, record)


def _tell(engine: Callable[[DatasetVersion], None], record: DatasetRecord) -> None:
    from jobs.contracts.errors import EnvironmentFailure

    try:
        engine(record.pinned())
    except EnvironmentFailure as error:
        console.warn(f"{error.message} ({error.hint})")
