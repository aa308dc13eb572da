"""`launch rm`: remove runs that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import RunHandle
    from jobs.engines.base import Engine


def remove(
    *,
    runs: options.ManyRuns,
    yes: options.Yes = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Remove runs that are over, with their outputs and checkpoints.

    Refuses all of them if one is not over, is kept (`launch keep`), or has a successor that
    resumed from it and is not named.
    """
    from jobs.launching.removal import require_removable

    engine = options.open_engine(options.open_environment(stack, env))
    found = {handle.id: handle for handle in map(engine.store.find, runs)}
    # The newest first: a run goes before the one that it resumed from.
    handles = [found[run] for run in sorted(found, reverse=True)]
    require_removable(engine, handles)
    sizes = {each.id: engine.removal.size([each]) for each in handles}
    num_bytes = engine.removal.size(handles)
    for each in handles:
        console.say(f"{each.id}  {_name(engine, each)}  {console.size_text(sizes[each.id])}")
    number = console.count_text(len(handles), "run")
    if not yes and not console.confirm(f"Remove {number} for good?"):
        console.say("nothing was removed")
        return
    require_removable(engine, handles, is_again=True)  # what changed during the question
    for each in handles:
        engine.removal.remove(each)
    if json:
        console.out_json({"runs": [each.id for each in handles], "bytes": num_bytes})
    else:
        console.say(f"{number} removed, {console.size_text(num_bytes)} freed")


def _name(engine: Engine, handle: RunHandle) -> str:
    from jobs.contracts.errors import LaunchError

    try:
        return engine.store.record(handle).plan.spec.name
    except LaunchError:
        return "(its record is damaged)"


app = make_app({"rm": remove})
