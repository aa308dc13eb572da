"""`launch data show|diff`: show a version's content, compare two versions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import data_options, options
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment
    from jobs.datasets.file_list import FileList
    from jobs.datasets.records import DatasetRecord


def show(
    *,
    ref: data_options.Ref,
    files: Annotated[bool, typer.Option("--files", help="List the files, one per line.")] = False,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show a version: size, largest folders, place in the store."""
    from jobs.datasets.compare import shares_of
    from jobs.datasets.dataset_text import record_fields, shares_table, version_text

    environment = options.open_environment(stack, env)
    datasets = data_options.open_datasets(environment, sas)
    record = datasets.resolve(ref)
    with datasets.files(record.pinned()) as (listed,):
        if files:
            _print_files(record, listed, is_json=json)
            return
        shares = shares_of(listed)
    places = _places(record, environment)
    if json:
        fields = record_fields(record)
        console.out_json({**fields, **places, "folders": shares.folders, "kinds": shares.kinds})
        return
    console.out(version_text(record, places.items()))
    for title, largest in (("FOLDER", shares.folders), ("KIND", shares.kinds)):
        console.out()
        console.out(shares_table(title, largest))


def _places(record: DatasetRecord, environment: Environment) -> dict[str, str]:
    storage, prefix = environment.storage, record.pinned().content_prefix
    url = f"{storage.blob_endpoint.rstrip('/')}/{storage.containers.data}/{prefix}"
    return {"url": url, **options.open_engine(environment).dataset_places(record.pinned())}


def _print_files(record: DatasetRecord, files: FileList, *, is_json: bool) -> None:
    from jobs.datasets.dataset_text import record_fields, stream_json

    if is_json:
        stream_json(record_fields(record) | {"listed": files.files}, "list", files)
        return
    for file in files:
        console.out(f"{file.bytes:>12}  {file.path}")


def diff(
    *,
    a: data_options.Ref,
    b: data_options.Ref,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Compare the files of two versions."""
    from jobs.datasets.compare import changes
    from jobs.datasets.dataset_text import comparison_text, record_fields, stream_json

    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    records = datasets.resolve(a), datasets.resolve(b)
    with datasets.files(*(record.pinned() for record in records)) as (ours, theirs):
        counts: Counter[str] = Counter(each.kind for each in changes(ours, theirs))
        found = changes(ours, theirs)
        if json:
            stream_json(
                {
                    "a": record_fields(records[0]),
                    "b": record_fields(records[1]),
                    **{kind: counts[kind] for kind in ("added", "removed", "changed")},
                },
                "changes",
                found,
            )
        else:
            console.out(comparison_text(*records, counts, found))
