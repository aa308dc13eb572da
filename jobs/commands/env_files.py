"""`launch env export|import`: write environment files for those without the stack."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import options
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import CloudEngine
from jobs.host import console


def export(
    *,
    stack: options.Stack,
    engine: Annotated[
        CloudEngine | None,
        typer.Option(
            help="Engine to write in place of the stack's; azureml_v1 uses Azure ML's first API."
        ),
    ] = None,
    output: options.Output = None,
    refresh: options.Refresh = False,
) -> None:
    """Write an environment file, which needs no Pulumi: `launch ... --env FILE`."""
    from msgspec.structs import replace

    from jobs.host.environment_file import write_environment
    from jobs.stacks.read import load_environment

    environment = load_environment(stack, refresh=refresh)
    if engine is not None:
        if environment.workspace.is_folder:
            message = f"stack `{stack}` is this machine: --engine is for stacks on Azure"
            raise LaunchError(message, hint=f"launch env export -s {stack}")
        environment = replace(environment, engine=engine)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it with `launch ... --env {output}`")


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
            help="Blob container of datasets (default: `data`, else the workspace's own).",
        ),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            metavar="CONTAINER",
            help="Blob container of runs (default: `runs`, else the workspace's own).",
        ),
    ] = None,
    engine: Annotated[
        CloudEngine,
        typer.Option(help="Engine to write; azureml_v1 uses Azure ML's first API."),
    ] = "azureml",
    output: options.Output = None,
) -> None:
    """Write an environment file for an Azure ML workspace that no stack made.

    Changes nothing. Both containers must lie in one storage account and have datastores in the
    workspace. `images` is left empty: add NAME and REFERENCE for jobs that name a folder of images/.
    """
    from jobs.engines.azure_ml.import_workspace import import_workspace
    from jobs.host.environment_file import write_environment

    environment = import_workspace(workspace, data=data, runs=runs, engine=engine)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it with `launch ... --env {output}`")
