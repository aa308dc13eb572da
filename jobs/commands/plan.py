"""`launch plan`: show what `launch run` would start."""

from __future__ import annotations

from jobs.commands import job_options, options
from jobs.commands.usage import make_app
from jobs.host import console


def plan(
    *,
    job: job_options.Job,
    nodes: job_options.Nodes = None,
    processes_per_node: job_options.ProcessesPerNode = None,
    cluster: job_options.ClusterName = None,
    priority: job_options.Priority = None,
    overrides: job_options.Overrides = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show what `launch run` would start.

    With --json the exact request, and what the nodes read in it. What `launch run` would refuse for is
    a warning here, and among the notes of the JSON.
    """
    import msgspec

    from jobs.jobfile.read import load_job
    from jobs.launching.plan import (
        code_listing,
        measure_code,
        missing_notes,
        plan_job,
        secret_folders,
    )
    from jobs.launching.plan_text import listing_text, plan_text

    values = job_options.job_values(nodes, processes_per_node, cluster, priority)
    loaded = load_job(job, overrides or (), values)
    environment = options.open_priced(stack, env)
    planned = plan_job(loaded, environment, options.open_engine(environment))
    missing = missing_notes(planned.spec, environment, secret_folders(loaded.folder))
    listing = code_listing(planned, environment)
    code = measure_code(planned, environment)
    if json:
        sent = listing or code
        request = planned.request | ({"code": sent} if sent else {})
        if environment.engine != "local":
            from jobs.engines.azure_ml.node_job import node_job

            request |= {"node_job": node_job(planned.spec, environment)}
        notes = (*planned.notes, *missing)
        console.out_json(msgspec.structs.replace(planned, request=request, notes=notes))
        return
    console.out(plan_text(planned, environment, code))
    if listing is not None:
        console.out(listing_text(listing))
    for note in missing:
        console.warn(note)


app = make_app({"plan": plan})
