"""What the shell offers after Tab: jobs, runs, stacks, datasets. Quick, and never an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from jobs.spec import Environment

Choice = tuple[str, str]

NUM_RUNS = 30


def jobs(incomplete: str) -> list[Choice]:
    """The catalog's names, and the job files of the folder that is being typed."""
    return _quietly(lambda: [*_catalog_jobs(incomplete), *_job_files(incomplete)])


def runs(ctx: typer.Context, incomplete: str) -> list[Choice]:
    """Run ids, newest first, with their state and name, and `last`."""
    return _quietly(lambda: _runs(_environment(ctx), incomplete))


def stacks(incomplete: str) -> list[Choice]:
    """The stacks that have a file of settings."""
    return _quietly(lambda: _stacks(incomplete))


def datasets(ctx: typer.Context, incomplete: str) -> list[Choice]:
    """The datasets of the stack, where they can be named without waiting."""
    return _quietly(lambda: _datasets(_environment(ctx), incomplete))


def clusters(ctx: typer.Context, incomplete: str) -> list[Choice]:
    """The clusters of the stack with their sizes."""
    return _quietly(
        lambda: [
            (name, f"{cluster.size}, up to {cluster.max_nodes} nodes")
            for name, cluster in _environment(ctx).clusters.items()
            if name.startswith(incomplete)
        ]
    )


def job_keys(incomplete: str) -> list[Choice]:
    """The keys of a job file, as `--set` takes them."""
    return _quietly(lambda: _job_keys(incomplete))


def _quietly(choices: Callable[[], list[Choice]]) -> list[Choice]:
    try:
        return choices()
    except Exception:  # noqa: BLE001 - a half-typed line is no place for an error
        return []


def _catalog_jobs(incomplete: str) -> list[Choice]:
    from jobs.jobfile import catalog_names

    return [(name, "from the catalog") for name in catalog_names() if name.startswith(incomplete)]


def _job_files(incomplete: str) -> list[Choice]:
    folder, beginning = os.path.split(incomplete)
    with os.scandir(folder or ".") as entries:
        found = sorted(
            (os.path.join(folder, entry.name), entry.is_dir())  # noqa: PTH118 - `./x` stays `./x`
            for entry in entries
            if entry.name.startswith(beginning) and not entry.name.startswith(".")
        )
    files = [(path, "") for path, is_dir in found if not is_dir and _is_job_file(path)]
    folders = [(f"{path}{os.sep}", "") for path, is_dir in found if is_dir] if folder else []
    return files + folders


def _is_job_file(path: str) -> bool:
    name = Path(path).name
    return name.endswith((".yaml", ".yml")) and not name.startswith("Pulumi.")


def _runs(environment: Environment, incomplete: str) -> list[Choice]:
    from jobs.runs import RunStore

    found = RunStore.of(environment).list(NUM_RUNS)
    choices = [(run.id, f"{run.state.value} {run.name}") for run in found]
    newest = [("last", f"{choices[0][1]} ({choices[0][0]})")] if choices else []
    return [choice for choice in [*choices, *newest] if choice[0].startswith(incomplete)]


def _stacks(incomplete: str) -> list[Choice]:
    from jobs.project import project_root

    files = sorted(project_root().glob("Pulumi.*.yaml"))
    names = [file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files]
    return [(name, "") for name in names if name.startswith(incomplete)]


def _datasets(environment: Environment, incomplete: str) -> list[Choice]:
    from jobs.data import list_datasets

    return [
        (version.name, f"version {version.version}")
        for version in list_datasets(environment)
        if version.name.startswith(incomplete)
    ]


def _job_keys(incomplete: str) -> list[Choice]:
    from msgspec.structs import fields

    from jobs.spec import JobFile

    return [
        (f"{field.name}=", "") for field in fields(JobFile) if field.name.startswith(incomplete)
    ]


def _environment(ctx: typer.Context) -> Environment:
    from jobs.stack import load_environment

    # While a line is completed, values are as they were typed.
    params: dict[str, Any] = ctx.params
    env_file = params.get("env")
    return load_environment(params.get("stack") or "local", Path(env_file) if env_file else None)
