"""`launch env import`: an environment file of a workspace that no stack made."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import options
from jobs.host import console


def import_environment(
    *,
    workspace: Annotated[
        str,
        typer.Option(
            metavar="RESOURCE_ID",
            help="/subscriptions/.../providers/Microsoft.MachineLearningServices/workspaces/NAME.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER",
            help="The blob container of datasets; else `data`, or the workspace's own.",
        ),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER",
            help="The blob container of runs; else `runs`, or the workspace's own.",
        ),
    ] = None,
    engine: Annotated[
        options.CloudEngine,
        typer.Option(
            help="How jobs are run there; azureml_v1 for what Azure ML's first API alone can."
        ),
    ] = "azureml",
    output: options.Output = None,
) -> None:
    """Write an environment for an Azure ML workspace that no stack of yours made.

    Reads only. The two containers are of one account, and the workspace has datastores for them.
    `images` is empty: put NAME and REFERENCE there for jobs that name an image by its folder.
    """
    from jobs.engines.azure_ml.import_workspace import import_workspace
    from jobs.host.environment_file import write_environment

    environment = import_workspace(workspace, data=data, runs=runs, engine=engine)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it by `launch ... --env {output}`")
