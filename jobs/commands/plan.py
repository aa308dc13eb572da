"""`launch plan`: what would be started; nothing is."""

from __future__ import annotations

import typer

from jobs import console
from jobs.commands import options


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("plan")(plan)


def plan(
    job: options.Job,
    *,
    nodes: options.Nodes = None,
    processes_per_node: options.ProcessesPerNode = None,
    cluster: options.ClusterName = None,
    priority: options.PriorityName = None,
    overrides: options.Overrides = None,
    json: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> None:
    """Show what `launch run` would start.

    With --json the exact request.
    """
    from jobs.jobfile import load_job
    from jobs.plan_text import plan_text
    from jobs.planning import plan_job

    values = options.job_values(nodes, processes_per_node, cluster, priority)
    loaded = load_job(job, overrides or (), values)
    environment = options.open_environment(stack, env)
    planned = plan_job(loaded, environment, options.open_engine(environment))
    if json:
        console.out_json(planned)
    else:
        console.out(plan_text(planned, environment))
