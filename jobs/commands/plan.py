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
    deadline: job_options.Deadline = None,
    budget: job_options.Budget = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show what `launch run` would start.

    --json prints the exact request and the settings that the nodes read from it. A reason for which
    `launch run` would refuse the job is a warning here, and a note in the JSON. Runs before of the same
    job tell how long this one takes and what it costs; with --deadline or --budget they choose its size.
    """
    import msgspec

    from jobs.commands.planning import Asked, plan_asked
    from jobs.launching.forecast_text import forecast_pairs
    from jobs.launching.foresee import ForeseenPlan, foresee
    from jobs.launching.known_runs import soon_past_runs
    from jobs.launching.plan import (
        listing_text,
        measure_code,
        missing_notes,
        plan_text,
        secret_folders,
    )

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
    planned, engine = found.plan, found.engine
    environment = engine.environment
    missing = missing_notes(planned.spec, engine, secret_folders(found.folder))
    foreseen = foresee(planned.spec, environment, soon_past_runs(engine, planned.spec))
    listing = engine.code_listing(planned)
    code = measure_code(planned, engine)
    if json:
        sent = listing or code
        more = ({"code": sent} if sent else {}) | dict(engine.told_to_nodes(planned))
        request = msgspec.json.decode(planned.request, type=dict[str, msgspec.Raw]) | more
        told = msgspec.Raw(msgspec.json.encode(request))
        notes = (*planned.notes, *missing)
        shown = msgspec.structs.replace(planned, request=told, notes=notes)
        console.out_json(ForeseenPlan(**msgspec.structs.asdict(shown), foreseen=foreseen))
        return
    forecast = forecast_pairs(foreseen, planned.spec, environment.clusters[planned.spec.cluster])
    console.out(plan_text(planned, environment, code, forecast))
    if listing is not None:
        console.out(listing_text(listing))
    for note in missing:
        console.warn(note)


app = make_app({"plan": plan})
