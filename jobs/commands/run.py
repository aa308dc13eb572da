"""`launch run`: shows the plan, starts the run, follows it to its end."""

from __future__ import annotations

from pathlib import Path

from jobs.commands import options
from jobs.commands.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = (
        "Ctrl-C only detaches: the run goes on. The exit code is 0 when the run completed, 100 "
        "when it failed, 103 when it was cancelled."
    )
    options.add_job(parser)
    options.add_job_values(parser)
    options.add_start(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="Show the plan and start nothing; see `launch plan`."
    )
    options.add_json(parser)
    options.add_environment(parser)
    parser.set_defaults(act=run)


def run(
    *,
    job: str,
    nodes: str | None,
    processes_per_node: str | None,
    cluster: str | None,
    priority: str | None,
    overrides: list[str] | None,
    detach: bool,
    fetch: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
    stack: str,
    env: Path | None,
) -> int:
    """Run a job and follow its ranks' logs."""
    from jobs.commands import plan
    from jobs.jobfile.read import load_job
    from jobs.launching.plan import plan_job, secret_folders
    from jobs.launching.secrets import find_secrets
    from jobs.launching.start import Wish, start

    if dry_run:
        plan.plan(
            job=job,
            nodes=nodes,
            processes_per_node=processes_per_node,
            cluster=cluster,
            priority=priority,
            overrides=overrides,
            json=json,
            stack=stack,
            env=env,
        )
        return 0
    values = options.job_values(nodes, processes_per_node, cluster, priority)
    loaded = load_job(job, overrides or (), values)
    environment = options.open_priced(stack, env)
    engine = options.open_engine(environment)
    planned = plan_job(loaded, engine)
    secrets = find_secrets(planned.spec, environment, secret_folders(loaded.folder))
    stack_words = options.stack_words(stack, env)
    wish = Wish(
        detach=detach,
        fetch=fetch,
        yes=yes,
        json=json,
        stack=stack_words,
        shown_by=["launch", "plan", job, *options.job_words(values, overrides), *stack_words],
    )
    return start(planned, secrets, engine, wish)
