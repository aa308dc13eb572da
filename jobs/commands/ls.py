"""`launch ls`: the runs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs import console
from jobs.commands import options

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.spec import RunStatus

MAX_REASON = 50


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command("ls")(list_runs)


def list_runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 20,
    every: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    json: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    env: options.EnvFile = None,
) -> None:
    """List runs, newest first."""
    from datetime import UTC, datetime

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
    now = datetime.now(UTC)
    header = ["RUN", "NAME", "STATE", "SIZE", "CLUSTER", "AGE", "TIME", "REASON"]
    console.out(console.table(header, [_row(run, now) for run in shown], right=(5, 6)))
    if len(shown) < len(runs):
        console.say(f"the newest {limit}; --all shows every run")


def _row(run: RunStatus, now: datetime) -> list[str]:
    from jobs.outcome import COLOURS, parse_time

    ended = parse_time(run.ended) if run.ended else now
    # A lost run has no end, and is not running either.
    is_timed = run.started is not None and (run.ended or not run.state.is_terminal())
    time_s = (ended - parse_time(run.started)).total_seconds() if run.started and is_timed else None
    age_s = (now - parse_time(run.created)).total_seconds()
    return [
        run.id,
        run.name,
        console.styled(run.state.value, COLOURS[run.state]),
        f"{run.nodes}x{run.world_size // run.nodes}",
        run.cluster,
        " ".join(console.duration_text(max(age_s, 0)).split()[:2]),  # the larger unit will do
        console.duration_text(time_s) if time_s is not None else "",
        _shortened(run.reason or ""),
    ]


def _shortened(reason: str) -> str:
    """`launch show` has the whole of it."""
    return reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."
