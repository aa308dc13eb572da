"""`launch env import`: an environment file of a workspace that no stack made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import CloudEngine

TEXT = "Write an environment for an Azure ML workspace that no stack of yours made."


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    from jobs.contracts.spec import CloudEngine

    parser.epilog = (
        "Reads only. The two containers are of one account, and the workspace has datastores for "
        "them. `images` is empty: put NAME and REFERENCE there for jobs that name an image by its "
        "folder."
    )
    parser.add_argument(
        "--workspace",
        metavar="RESOURCE_ID",
        required=True,
        help="/subscriptions/.../providers/Microsoft.MachineLearningServices/workspaces/NAME.",
    )
    for name, text in (("data", "datasets"), ("runs", "runs")):
        parser.add_argument(
            f"--{name}",
            metavar="CONTAINER",
            help=f"The blob container of {text}; else `{name}`, or where there is none the "
            "workspace's own.",
        )
    parser.add_argument(
        "--engine",
        choices=get_args(CloudEngine),
        default="azureml",
        help="How jobs are run there; azureml_v1 for what Azure ML's first API alone can (%(default)s).",
    )
    options.add_output(parser, "Where to; stdout where not given.")
    parser.set_defaults(act=import_environment)


def import_environment(
    *,
    workspace: str,
    data: str | None,
    runs: str | None,
    engine: CloudEngine,
    output: Path | None,
) -> None:
    """Write an environment for an Azure ML workspace that no stack of yours made."""
    from jobs.engines.azure_ml.import_workspace import import_workspace
    from jobs.host.environment_file import write_environment

    environment = import_workspace(workspace, data=data, runs=runs, engine=engine)
    if output is None:
        console.out_json(environment)
        return
    write_environment(environment, output)
    console.say(f"wrote {output}; use it by `launch ... --env {output}`")
