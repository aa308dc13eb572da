"""`launch stacks`: show where the ranks of a run stand in their Python code."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import Refused
from jobs.host import console


def stacks(
    *,
    run: options.Run = "last",
    threads: Annotated[
        bool, typer.Option("--threads", help="Show all threads of each group's first rank.")
    ] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show where all ranks stand in their Python code (stack traces); `launch env ls` lists stacks.

    Groups identical ones. The first thing to look at when a run hangs: the ranks of the largest group wait
    for the others. Works on runs of this machine only; of a run that `limits.hang` ended, on Azure too, it
    shows the stacks that were recorded then.
    """
    from jobs.engines.base import Reachable
    from jobs.launching.stacks import living_stacks, recorded_stacks
    from jobs.runs.stacks import stacks_text

    engine, handle = options.open_run(run, options.open_environment(stack, env))
    if engine.store.status(handle).state.is_terminal():
        engine.store.bring(handle)
        found = recorded_stacks(handle)
        if not found.groups:
            message = f"run {handle.id} is over, and no stacks were recorded"
            raise Refused(message, hint=f"launch show {handle.id}")
    elif isinstance(engine, Reachable):
        found = living_stacks(handle, engine.command_processes(handle))
    else:
        message = f"the ranks of run {handle.id} are not on this machine"
        hint = "`limits.hang` in the job file has them write their stacks when they hang"
        raise Refused(message, hint=hint)
    if json:
        console.out_json(found)
        return
    if found.is_recorded:
        console.say("as recorded when the run was ended; of now there are none")
    if not found.groups and not found.without:
        show = shlex.join(["launch", "show", handle.id, *options.stack_words(stack, env)])
        console.say(f"no rank's command runs; {show}")
        return
    console.out(stacks_text(found, has_all_threads=threads))


app = make_app({"stacks": stacks})
