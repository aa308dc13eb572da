"""`launch exec`: run a command beside a rank of an unfinished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure, Refused

# The least that a user's process gets where ranks want all cores.
NICE = 19


def execute(
    *,
    run: options.Run,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command line.")],
    rank: Annotated[
        int,
        typer.Option(
            metavar="N", help="Rank to run beside.", min=0, autocompletion=completers.ranks
        ),
    ] = 0,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Run a command beside a rank, in its folder, variables and image.

    Works on runs of this machine only. The command gets what time the ranks leave (nice 19). Its variables
    hold the job's secrets, as the rank's do. Ctrl-C ends the command alone. The exit code is the command's.
    """
    from jobs.engines.base import Reachable
    from jobs.host.becoming import become

    engine, handle = options.open_run(run, options.open_environment(stack, env))
    if not isinstance(engine, Reachable):
        message = f"the ranks of run {handle.id} are not on this machine"
        raise Refused(message, hint=f"launch logs {handle.id} -f")
    beside = engine.beside(handle, rank, command)
    try:
        become(beside.argv, beside.environ, folder=Path(beside.folder), nice=NICE)
    except OSError as error:
        message = f"cannot start `{command[0]}` beside rank {rank}: {error.strerror}"
        hint = f"launch exec {handle.id} -- sh -c 'echo $PATH'"
        raise EnvironmentFailure(message, hint=hint) from None


app = make_app({"exec": execute})
