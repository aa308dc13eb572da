"""`launch ls`: list runs, newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import options, quantities, selection_options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import RunStatus
    from jobs.engines.base import Runs

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
    name: selection_options.JobName = None,
    experiment: selection_options.Experiment = None,
    tag: selection_options.Tags = None,
    state: selection_options.States = None,
    since: selection_options.Since = None,
    every: Annotated[bool, typer.Option("-a", "--all", help="List every run.")] = False,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List runs, newest first.

    A terminal shows short ids, which every command takes; a file, a pipe and --json get whole ones.
    """
    selection = selection_options.read_selection(name, experiment, tag, state, since)
    store = options.open_store(options.open_environment(stack, env))
    # One more than is shown tells whether there are more.
    runs = store.list(None if every else limit + 1, selection)
    shown = runs if every else runs[:limit]
    if json:
        console.out_json(shown)
        return
    if not runs:
        is_any = selection.is_empty
        console.say("no run yet; launch run digits" if is_any else "no run matches")
        return
    console.out(_table(shown, store))
    if len(shown) < len(runs):
        console.say(f"the newest {limit}; --all shows every run")


def _table(runs: Sequence[RunStatus], store: Runs) -> str:
    from jobs.runs.selection import shown_ids

    now_s = time.time()
    ids = shown_ids([run.id for run in runs], store)
    header = ["RUN", "NAME", "STATE", "SIZE", "CLUSTER", "AGE", "TIME", "REASON"]
    rows = [_row(run, ids[run.id], now_s) for run in runs]
    gives_way = [header.index(each) for each in ("CLUSTER", "SIZE", "TIME")]
    return console.table(header, rows, right=(5, 6), gives_way=gives_way)


def _row(run: RunStatus, shown_id: str, now_s: float) -> list[str]:
    from jobs.runs.outcome import COLOURS, parse_time

    age_s = max(now_s - parse_time(run.created).timestamp(), 0)
    return [
        shown_id,
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
