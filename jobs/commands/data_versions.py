"""`launch data ls|rm`: list versions, remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, data_options, options
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.errors import LaunchError


def list_versions(
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Dataset to list (default: all).",
            autocompletion=completers.datasets,
        ),
    ] = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List datasets and their versions, the newest of each first."""
    from jobs.datasets.dataset_text import record_fields, versions_table
    from jobs.datasets.records import check_name

    if name is not None:
        check_name(name)
    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    damaged: list[LaunchError] = []
    records = datasets.versions(name, damaged=damaged)
    if name is not None and not records:
        datasets.resolve(name)  # says what there is instead
    console.warn_damaged(damaged)
    if json:
        console.out_json([record_fields(record) for record in records])
        return
    if not records:
        if damaged:
            return
        console.say("no dataset yet\n\nhint: launch data push DIR NAME")
        return
    console.out(versions_table(records))


def remove(
    *,
    ref: Annotated[
        str,
        typer.Argument(
            metavar="NAME@N",
            help="Version of a dataset.",
            autocompletion=completers.dataset_versions,
        ),
    ],
    yes: options.Yes = False,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Remove a version; its number is never used again."""
    from jobs.contracts.errors import Refused
    from jobs.datasets.dataset_text import record_fields, size_of
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    datasets = data_options.open_datasets(environment, sas)
    removal = datasets.plan_removal(ref)
    record = removal.dataset
    user = options.open_store(environment).reader_of(record.pinned())
    if user is not None:
        message = f"the run {user} reads `{record.ref}` and is not over"
        raise Refused(message, hint=f"launch wait {user}, or launch cancel {user}")
    stays = f"; its files are kept, {removal.content_stays}" if removal.content_stays else ""
    console.say(f"{record.ref}: {size_of(record)}, pushed {record.created[:10]}{stays}")
    if not yes and not console.confirm(f"Remove {record.ref} for good?"):
        console.say("nothing was removed")
        return
    with ProgressLines() as lines:
        datasets.remove(removal, lines.open("removing", after_s=1.0))
    data_options.withdraw_dataset(record, environment)
    if json:
        console.out_json({**record_fields(record), "removed": True})
    else:
        console.say(f"{record.ref} is removed; its number is never used again")
