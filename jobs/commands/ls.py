"""`launch ls`: list runs, newest first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import options, quantities
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import RunStatus

MAX_REASON = 50


def list_runs(
    *,
    limit: Annotated[
        int,
        typer.Option(
            *("-n", "--limit"),
            metavar="N",
            parser=quantities.whole_number(at_least=1),
            help="Maximum number of runs to list.",
        ),
    ] = 20,
    every: Annotated[bool, typer.Option("-a", "--all", help="List every run.")] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List runs, newest first."""
    store = options.open_store(options.open_environment(stack, env))
    # One more than is shown tells whether there are more.
    runs = store.list(None if every else limit + 1)
    shown = runs if every else runs[:limit]
    if json:
        console.out_json(shown)
        return
    if not runs:
        console.say("no run yet; launch run digits")
        return
    now_s = time.time()
    header = ["RUN", "NAME", "STATE", "SIZE", "CLUSTER", "AGE", "TIME", "REASON"]
    console.out(console.table(header, [_row(run, now_s) for run in shown], right=(5, 6)))
    if len(shown) < len(runs):
        console.say(f"the newest {limit}; --all shows every run")


def _row(run: RunStatus, now_s: float) -> list[str]:
    from jobs.runs.outcome import COLOURS, parse_time

    age_s = max(now_s - parse_time(run.created).timestamp(), 0)
    return [
        run.id,
        run.name,
        console.styled(run.state.value, COLOURS[run.state]),
        f"{run.nodes}x{run.world_size // run.nodes}",
        run.cluster,
        " ".join(console.duration_text(age_s).split()[:2]),  # the larger unit will do
        _time_text(run, now_s),
        _shortened(run.reason or ""),
    ]


def _time_text(run: RunStatus, now_s: float) -> str:
    from jobs.runs.outcome import parse_time

    # A lost run has no end, and is not running either.
    if run.started is None or (run.ended is None and run.state.is_terminal()):
        return ""
    end_s = parse_time(run.ended).timestamp() if run.ended else now_s
    return console.duration_text(max(end_s - parse_time(run.started).timestamp(), 0))


def _shortened(reason: str) -> str:
    """Shorten a reason to a table cell; `launch show` prints it whole."""
    return reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."


app = make_app({"ls": list_runs})
