"""`launch data pull`: download a dataset into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import data_options, options
from jobs.host import console

if TYPE_CHECKING:
    from jobs.datasets.pull import Confirm, Surplus
    from jobs.datasets.records import DatasetRecord


def pull(
    *,
    ref: data_options.Ref,
    to: options.To,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="List and delete files that are not in the version."),
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before deleting.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print how much would be received; write nothing."),
    ] = False,
    limit_rate: data_options.LimitRate = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Download a dataset into a folder; equal files in the folder are kept."""
    from jobs.datasets.dataset_text import pulled_text, record_fields
    from jobs.host.progress import ProgressLines

    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    record = datasets.resolve(ref)
    with ProgressLines() as lines:
        pulled = datasets.pull(
            record.pinned(),
            to,
            lines.open("receiving"),
            is_dry=dry_run,
            delete=_confirm_deleting(record, to, is_agreed=yes or dry_run) if delete else None,
            max_bytes_per_s=limit_rate,
        )
    if json:
        console.out_json(
            {
                **record_fields(record),
                "folder": str(to.absolute()),
                "files_received": pulled.files_received,
                "bytes_received": pulled.bytes_received,
                "files_deleted": pulled.files_deleted,
                **({"dry_run": True} if dry_run else {}),
            }
        )
        return
    if dry_run:
        console.say(pulled_text(pulled, deletes=delete))
        return
    if pulled.files_deleted:
        console.say(f"deleted {console.count_text(pulled.files_deleted, 'file')} from {to}")
    elif not pulled.files_received:
        console.say(f"{record.ref} is there already")
    console.out(str(to))


def _confirm_deleting(record: DatasetRecord, folder: Path, *, is_agreed: bool) -> Confirm:
    def confirm(surplus: Surplus) -> bool:
        files = console.count_text(surplus.count, "file")
        console.say(f"{files} of {folder} that {record.ref} does not have:")
        for path in surplus.first:
            console.say(f"  {path if path.isprintable() else ascii(path)}")
        if surplus.count > len(surplus.first):
            console.say(f"  ... and {surplus.count - len(surplus.first)} more")
        return is_agreed or console.confirm(f"Delete {files} from {folder}?")

    return confirm
