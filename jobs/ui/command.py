"""`launch ui`: serve the pages on this machine, and open them."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure


def serve(
    *,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="Port (default: any that is free)."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address; open no browser.")
    ] = False,
    env: options.EnvFile = None,
) -> None:
    """Show runs, data, clusters and environments in the browser, and act on them.

    Serves this user on this machine until Ctrl-C. The address works once: it gives one browser its cookie. All
    stacks of the project are shown, or the environment of one file.
    """
    try:
        from jobs.ui.server import run
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in ("jinja2", "starlette", "uvicorn"):
            raise
        message = f"`launch ui` needs {name}"
        raise EnvironmentFailure(
            message, hint="make setup, or pip install 'trainyard[ui]'"
        ) from None
    run(port=port or 0, env_file=env, is_opened=not no_browser)


app = make_app({"ui": serve})
