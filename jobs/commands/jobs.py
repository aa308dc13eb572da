"""`launch jobs`: list the jobs of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.launching.catalog import CatalogJob


def list_jobs(
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A job of the catalog; without it all are listed.",
            autocompletion=completers.catalog_jobs,
        ),
    ] = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List the jobs of the catalog with their requirements and arguments.

    With a name: that job, the options of its program, and the commands that get its missing parts.
    """
    from jobs.jobfile.find import catalog_names, require_catalog_name
    from jobs.launching.catalog import job_text, jobs_text, next_commands

    if name is not None:
        require_catalog_name(name)
    found = _describe([name] if name is not None else catalog_names(), stack, env)
    if json:
        console.out_json(found if name is None else found[0])
    elif name is None:
        console.out(jobs_text(found))
        console.say(
            "`launch jobs NAME` shows the program's options, and the commands that get missing parts"
        )
    else:
        console.out(job_text(found[0]))
        console.say(next_commands(found[0], options.stack_words(stack, env)))


def _describe(names: list[str], stack: str, env: Path | None) -> list[CatalogJob]:
    """Describe the jobs; warn where the stack cannot tell what is there."""
    from jobs.jobfile.read import load_job, options_of_job
    from jobs.launching.catalog import dataset_names, describe_job

    engine = datasets = None
    try:
        engine = options.open_engine(options.open_environment(stack, env))
        datasets = dataset_names(engine.environment)
        if datasets is None:
            console.warn("the blob store is not up: datasets marked (?) may be there or not")
    except LaunchError as error:
        console.warn(f"{error.message}; hint: {error.hint}")
    return [
        describe_job(
            load_job(each),
            engine,
            datasets,
            options_of_job(each).values(),
            options.stack_words(stack, env),
        )
        for each in names
    ]


app = make_app({"jobs": list_jobs})
