"""`launch run`: show the plan, start the run, follow it to its end."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import job_options, options
from jobs.commands.usage import make_app


def run(
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
    detach: job_options.Detach = False,
    no_fetch: job_options.NoFetch = False,
    yes: job_options.AskNothing = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan and start nothing; see `launch plan`."),
    ] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Run a job and follow its ranks' logs.

    A script needs no job file: `launch run train.py -- --epochs 3` reads which framework it uses.

    Ctrl-C only detaches: the run goes on. The exit code is 0 when the run completed, 100 when it
    failed, 103 when it was cancelled.
    """
    from jobs.commands.planning import Asked, plan_asked, show_plan
    from jobs.launching.plan import secret_folders
    from jobs.launching.secrets import find_secrets
    from jobs.launching.start import Wish, start

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
    folders = secret_folders(found.folder)
    if dry_run:
        show_plan(found.plan, found.engine, folders, is_json=json)
        return 0
    secrets = find_secrets(found.plan.spec, found.engine.environment, folders)
    stack_words = options.stack_words(stack, env)
    wish = Wish(
        detach=detach,
        fetch=not no_fetch,
        yes=yes,
        json=json,
        stack=stack_words,
        shown_by=[
            *("launch", "plan", job, *job_options.job_words(found.values, overrides), *stack_words),
            *(["--", *arguments] if arguments else []),
        ],
    )
    return start(found.plan, secrets, found.engine, wish)


app = make_app({"run": run})
