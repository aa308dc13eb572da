"""`launch fetch`: download a run's outputs, metrics and logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.host import console

# Between two looks at a run that is still on.
PAUSE_S = 2.0


def fetch(
    *,
    run: options.Run = "last",
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=Path, help="Folder to write to (default: ./RUN)."),
    ] = None,
    follow: options.Follow = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Download a run's outputs and logs.

    Also downloads metrics and the summary; works on an unfinished run, too. Prints the folder.
    """
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    folder = Path(handle.id) if into is None else into.expanduser()
    while True:
        # Looked at before the copy: what is written in between would be missed otherwise.
        state = engine.store.status(handle).state
        is_over = state.is_terminal()
        folder = engine.fetch(handle, folder)
        if is_over or not follow:
            break
        time.sleep(PAUSE_S)
    console.out(str(folder))
    if not is_over:
        console.say(
            f"{handle.id} is still {state.value}; type it again later for the rest, or add --follow"
        )


app = make_app({"fetch": fetch})
