"""`launch cancel`: ends runs; one that is over already is left as it is."""

from __future__ import annotations

from pathlib import Path

from jobs import completion, console
from jobs.command_parser import CommandParser
from jobs.commands import options
from jobs.errors import ExitCode

# The supervisor gives the ranks 10 s for a checkpoint, then kills them.
TIMEOUT_S = 25.0


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = (
        "Waits until their processes are gone. A run that is over already is left as it is."
    )
    runs = parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="Ids, beginnings of ids, or `last`."
    )
    completion.offer(runs, completion.runs)
    options.add_environment(parser)
    parser.set_defaults(act=cancel)


def cancel(*, runs: list[str], stack: str, env: Path | None) -> int:
    """End runs."""
    from jobs.follow import wait_until_over

    environment = options.open_environment(stack, env)
    # All names are looked up before the first run is touched.
    found = [options.open_run(run, environment) for run in runs]
    unfinished = 0
    for engine, handle in found:
        before = engine.status(handle).state
        engine.cancel(handle)
        # One that was to be started again is not any more.
        if before.is_terminal() and engine.status(handle).state is before:
            console.say(f"{handle.id} was over already ({before.value})")
            continue
        status = wait_until_over(engine, handle, TIMEOUT_S)
        if not status.state.is_terminal():
            unfinished += 1
            console.warn(f"{handle.id} is still {status.state.value}; launch wait {handle.id}")
            continue
        console.say(f"{handle.id} {status.state.value}")
    return int(ExitCode.UNFINISHED if unfinished else ExitCode.SUCCEEDED)
