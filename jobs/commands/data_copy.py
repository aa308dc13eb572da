"""`launch data copy`: copy a version from one stack's store to another's."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import data_options, options
from jobs.host import console


def copy(
    *,
    ref: data_options.Ref,
    to: options.ToStack,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how much would be copied; copy nothing.")
    ] = False,
    limit_rate: data_options.LimitRate = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Copy a version to another stack; files that its store has are not copied again."""
    from jobs.datasets.dataset_text import copied_text, pushed_fields
    from jobs.datasets.making import Reports
    from jobs.host.progress import ProgressLines

    source, target = options.open_environment(stack, env), options.open_target(to)
    datasets = data_options.open_datasets(source, None)
    record = datasets.resolve(ref)
    lines = ProgressLines()
    reports = Reports.on(lines, reading="receiving")
    with lines:
        copied = data_options.open_datasets(target, None).copy_from(
            datasets, record, source, reports, is_dry=dry_run, max_bytes_per_s=limit_rate
        )
    if not dry_run:
        data_options.register_dataset(copied.dataset, target)
    if json:
        console.out_json({**pushed_fields(copied, is_dry=dry_run), "stack": target.stack})
        return
    what = f"{record.ref} of stack {source.stack}"
    console.say(copied_text(copied, what, target.stack, is_dry=dry_run))
    if not dry_run:
        console.out(copied.dataset.ref)
