"""`launch keep`: protect runs from removal."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console


def keep(
    *,
    runs: options.ManyRuns,
    undo: Annotated[bool, typer.Option("--undo", help="Allow the removal again.")] = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Protect runs from `launch rm` and `launch prune`."""
    engine = options.open_engine(options.open_environment(stack, env))
    for handle in [engine.store.find(run) for run in runs]:
        engine.removal.keep(handle, is_kept=not undo)
        console.say(f"{handle.id} {'may be removed' if undo else 'is kept'}")


app = make_app({"keep": keep})
