"""`launch data`: push a folder as a dataset's version; list, pull, compare, copy, remove versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.commands import (
    data_copy,
    data_options,
    data_programs,
    data_pull,
    data_show,
    data_versions,
    options,
)
from jobs.commands.usage import make_app
from jobs.host import console


def push(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=Path, help="Folder to upload.")],
    name: data_options.Name,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how much would be sent; send nothing.")
    ] = False,
    limit_rate: data_options.LimitRate = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Upload a folder as a new version of a dataset; files that the store has are not sent."""
    from jobs.datasets.dataset_text import pushed_fields, pushed_text
    from jobs.datasets.making import Reports
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    lines = ProgressLines()
    reports = Reports.on(lines, warn=console.warn)
    with lines:
        pushed = data_options.open_datasets(environment, sas).push(
            folder, name, reports, is_dry=dry_run, max_bytes_per_s=limit_rate
        )
    record = pushed.dataset
    if not dry_run:
        data_options.register_dataset(record, environment)
    if json:
        console.out_json(pushed_fields(pushed, is_dry=dry_run))
        return
    console.say(pushed_text(pushed, is_dry=dry_run))
    if not dry_run:
        console.out(record.ref)


def register(
    *,
    name: data_options.Name,
    prefix: Annotated[
        str,
        typer.Argument(metavar="PREFIX", help="Folder in the container `data`, e.g. raw/photos."),
    ],
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Make a version from a folder in the store, without a copy."""
    from jobs.datasets.dataset_text import record_fields, size_of
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    datasets = data_options.open_datasets(environment, sas)
    with ProgressLines() as lines:
        done = datasets.register(name, prefix, lines.open("reading"))
    record = done.dataset
    data_options.register_dataset(record, environment)
    if json:
        console.out_json({**record_fields(record), "already": done.already})
        return
    if done.already:
        console.say(f"the store has this content already, as {record.ref}")
    else:
        console.say(f"{record.ref}: {size_of(record)}, left in place: {prefix}")
    console.out(record.ref)


app = make_app(
    {
        "prepare": data_programs.prepare,
        "pack": data_programs.pack,
        "synthesize": data_programs.synthesize,
        "push": push,
        "pull": data_pull.pull,
        "ls": data_versions.list_versions,
        "show": data_show.show,
        "diff": data_show.diff,
        "copy": data_copy.copy,
        "rm": data_versions.remove,
        "register": register,
    }
)
