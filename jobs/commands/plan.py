"""`launch plan`: show what `launch run` would start."""

from __future__ import annotations

from jobs.commands import job_options, options
from jobs.commands.usage import make_app
from jobs.host import console


def plan(
    *,
    job: job_options.Job,
    arguments: job_options.Arguments = None,
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

    --json prints the exact request and the settings that the nodes read from it. A reason for which
    `launch run` would refuse the job is a warning here, and a note in the JSON.
    """
    import msgspec

    from jobs.jobfile.read import load_job
    from jobs.launching.plan import (
        listing_text,
        measure_code,
        missing_notes,
        plan_job,
        plan_text,
        secret_folders,
    )

    values = job_options.job_values(nodes, processes_per_node, cluster, priority)
    loaded = load_job(job, overrides or (), values, arguments or ())
    for sentence in loaded.sentences:
        console.say(sentence)
    environment = options.open_priced(stack, env)
    engine = options.open_engine(environment)
    planned = plan_job(loaded, engine)
    missing = missing_notes(planned.spec, engine, secret_folders(loaded.folder))
    listing = engine.code_listing(planned)
    code = measure_code(planned, engine)
    if json:
        sent = listing or code
        more = ({"code": sent} if sent else {}) | dict(engine.told_to_nodes(planned))
        request = msgspec.json.decode(planned.request, type=dict[str, msgspec.Raw]) | more
        told = msgspec.Raw(msgspec.json.encode(request))
        notes = (*planned.notes, *missing)
        console.out_json(msgspec.structs.replace(planned, request=told, notes=notes))
        return
    console.out(plan_text(planned, environment, code))
    if listing is not None:
        console.out(listing_text(listing))
    for note in missing:
        console.warn(note)


app = make_app({"plan": plan})
