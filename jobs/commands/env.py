"""`launch env`: list, show, export, import, check, repair and trust environments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.commands import env_check, env_files, options
from jobs.commands.usage import make_app
from jobs.host import console
from jobs.host.pulumi_command import as_typed_here


def list_environments(*, json: options.Json = False) -> None:
    """List the stacks that have settings, and which of them are up on this machine."""
    from jobs.stacks.read import list_stacks

    stacks = list_stacks()
    if json:
        console.out_json([{"stack": name, "up": up} for name, up in stacks])
        return
    rows = [[name, {True: "yes", False: "no", None: "unknown"}[up]] for name, up in stacks]
    console.out(console.table(["STACK", "UP"], rows))


def show(
    *,
    stack: options.Stack,
    env: options.EnvFile = None,
    refresh: options.Refresh = False,
    json: options.Json = False,
) -> None:
    """Show an environment: store, workspace, clusters, images."""
    from jobs.stacks.prices import with_list_prices
    from jobs.stacks.read import load_environment

    environment = with_list_prices(load_environment(stack, env, refresh=refresh))
    if json:
        console.out_json(environment)
        return
    from jobs.stacks.environment_text import clusters_table, environment_text

    console.out(environment_text(environment))
    console.out()
    console.out(clusters_table(environment))


def repair(*, stack: options.Stack, json: options.Json = False) -> None:
    """Repair a stack whose `pulumi up` was killed: remove stale locks and pending operations."""
    from jobs.stacks.repair import repair as repair_stack

    done = repair_stack(stack)
    if json:
        console.out_json({"stack": stack, "done": done})
        return
    for line in done or [f"stack `{stack}` needs no repair"]:
        console.out(line)
    if done:
        console.say(f"next: {as_typed_here(f'uv run pulumi up -s {stack}')}")


def trust(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", parser=Path, help="Folder that holds the project's Pulumi.yaml."
        ),
    ],
) -> None:
    """Trust a project of another user, or another clone.

    Works like git's safe.directory. `launch` refuses a project that another user owns or can write
    to, and starts no program of another clone than its own. A trusted folder may do both, until the
    folder or its Pulumi.yaml changes owner.
    """
    from jobs.host.owners import owner_of
    from jobs.host.project import trust_project

    root, file = trust_project(folder)
    console.say(f"trusted: {root}, of {owner_of(root)}; to undo it remove its entry in {file}")


app = make_app(
    {
        "ls": list_environments,
        "show": show,
        "export": env_files.export,
        "import": env_files.import_environment,
        "check": env_check.check,
        "repair": repair,
        "trust": trust,
    }
)
