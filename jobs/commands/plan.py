"""`launch plan`: show what `launch run` would start."""

from __future__ import annotations

from jobs.commands import job_options, options
from jobs.commands.usage import make_app


def plan(
    *,
    job: job_options.Job,
    arguments: job_options.Arguments = None,
    nodes: job_options.Nodes = None,
    processes_per_node: job_options.ProcessesPerNode = None,
    cluster: job_options.ClusterName = None,
    priority: job_options.Priority = None,
    overrides: job_options.Overrides = None,
    deadline: job_options.Deadline = None,
    budget: job_options.Budget = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show what `launch run` would start.

    --json prints the exact request and the settings that the nodes read from it. A reason for which
    `launch run` would refuse the job is a warning here, and a note in the JSON. Earlier runs of the
    job tell how long this one takes and what it costs; with --deadline or --budget they choose its size.
    """
    from jobs.commands.planning import Asked, plan_asked, show_plan
    from jobs.launching.plan import secret_folders

    found = plan_asked(
        Asked(
            job=job,
            arguments=arguments or (),
            overrides=overrides or (),
            values=job_options.job_values(nodes, processes_per_node, cluster, priority),
            deadline_s=deadline,
            budget=budget,
            stack=stack,
            env=env,
        )
    )
    show_plan(found.plan, found.engine, secret_folders(found.folder), is_json=json)


app = make_app({"plan": plan})
