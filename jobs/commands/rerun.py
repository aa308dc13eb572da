"""`launch rerun`: start a recorded run again with its code, data and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.commands import job_options, options
from jobs.commands.usage import make_app
from jobs.host import console


def rerun(
    *,
    run: options.Run = "last",
    resume: Annotated[
        bool, typer.Option("--resume", help="Start from the run's newest complete checkpoint.")
    ] = False,
    nodes: job_options.Nodes = None,
    processes_per_node: job_options.ProcessesPerNode = None,
    cluster: job_options.ClusterName = None,
    priority: job_options.Priority = None,
    overrides: job_options.Overrides = None,
    detach: job_options.Detach = False,
    no_fetch: job_options.NoFetch = False,
    yes: job_options.AskNothing = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and start nothing.")
    ] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Start a recorded run again.

    The new run has the code, the data versions and the arguments of the record. --set overrides keys
    of the job; differences that cannot be avoided are listed. With --resume the new run goes on
    where the recorded one left off.
    """
    from msgspec import structs

    from jobs.commands.planning import show_plan
    from jobs.jobfile.arguments import require_all_words, split_argv
    from jobs.jobfile.read import decode_job, locate_inputs, override, require_known_arguments
    from jobs.launching.plan import plan_on, secret_folders
    from jobs.launching.rerun import (
        differences,
        recorded_job,
        recorded_options,
        refuse_other_code,
        resume_point,
        with_other_words,
        with_parameters,
    )
    from jobs.launching.secrets import find_secrets
    from jobs.launching.start import Wish, start

    environment = options.open_priced(stack, env)
    engine = options.open_engine(environment)
    store = engine.store
    handle = store.find(run)
    record, run_dir = store.record(handle), Path(handle.run_dir)
    recorded = recorded_job(record, run_dir, engine)
    values = job_options.job_values(nodes, processes_per_node, cluster, priority)
    root = override(recorded.tree, overrides or (), values)
    job = locate_inputs(decode_job(root), root, Path.cwd())
    job = with_other_words(with_parameters(job, root, record), record)
    refuse_other_code(job)
    if known := recorded_options(record, recorded):
        require_known_arguments(job, root, known)
    else:
        require_all_words(split_argv(record.plan.spec.command)[1], job.args)
    begin = resume_point(store.status(handle), store.checkpoints(handle)) if resume else None
    if recorded.resume is not None and not resume:
        begun = f"it started from the checkpoints of {recorded.resume.run}"
        console.warn(f"{begun}, this one starts from scratch; --resume goes on")
    for difference in differences(record, run_dir, engine):
        console.warn(difference)
    planned = plan_on(job, recorded.code, engine, recorded.pinned, resume=begin)
    planned = structs.replace(planned, folder=record.plan.folder)
    # A record of Azure may have been written by anybody of the stack: no path of it is read.
    own = planned.folder if store.has_own_records else None
    folders = secret_folders(Path(own or ""))
    if dry_run:
        show_plan(planned, engine, folders, is_json=json)
        return 0
    secrets = find_secrets(planned.spec, environment, folders)
    words = options.stack_words(stack, env)
    wish = Wish(
        detach=detach,
        fetch=not no_fetch,
        yes=yes,
        json=json,
        stack=words,
        shown_by=["launch", "show", handle.id, *words],
    )
    return start(planned, secrets, engine, wish)


app = make_app({"rerun": rerun})
