"""`launch plan`: what would be started; nothing is."""

from __future__ import annotations

from pathlib import Path

from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.host import console


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = (
        "With --json the exact request, and what the nodes read in it. What `launch run` would "
        "refuse for is a warning here, and among the notes of the JSON."
    )
    options.add_job(parser)
    options.add_job_values(parser)
    options.add_json(parser)
    options.add_environment(parser)
    parser.set_defaults(act=plan)


def plan(
    *,
    job: str,
    nodes: str | None,
    processes_per_node: str | None,
    cluster: str | None,
    priority: str | None,
    overrides: list[str] | None,
    json: bool,
    stack: str,
    env: Path | None,
) -> None:
    """Show what `launch run` would start."""
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

    values = options.job_values(nodes, processes_per_node, cluster, priority)
    loaded = load_job(job, overrides or (), values)
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
