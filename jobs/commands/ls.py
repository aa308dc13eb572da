"""`launch ls`: list runs, newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import options, quantities, selection_options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment, RunStatus
    from jobs.engines.base import Runs
    from jobs.launching.ahead import Ahead

MAX_REASON = 50
_OF_RUNNING = ("DONE", "LEFT", "COST")
_NUMBERS = (*_OF_RUNNING, "AGE", "TIME")
# On a narrow terminal, the first one first.
_GIVE_WAY = ("CLUSTER", "SIZE", "TIME", "AGE", "COST")


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
    environment = options.open_environment(stack, env)
    store = options.open_store(environment)
    # One more than is shown tells whether there are more.
    runs = store.list(None if every else limit + 1, selection)
    shown = runs if every else runs[:limit]
    ahead = _look_ahead(shown, store, environment)
    if json:
        console.out_json([_as_json(run, ahead) for run in shown])
        return
    if not runs:
        is_any = selection.is_empty
        console.say("no run yet; launch run digits" if is_any else "no run matches")
        return
    console.out(_table(shown, store, ahead))
    if len(shown) < len(runs):
        console.say(f"the newest {limit}; --all shows every run")


def _look_ahead(
    runs: Sequence[RunStatus], store: Runs, environment: Environment
) -> dict[str, Ahead]:
    """Look ahead for the runs that are on, by id; those that cannot be read are left out."""
    on = [run for run in runs if run.state.value == "running"]
    if not on:
        return {}
    from jobs.contracts.errors import LaunchError
    from jobs.host.parallel import parallel
    from jobs.launching.ahead import look_at
    from jobs.stacks.prices import with_list_prices

    priced = with_list_prices(environment)

    def look(run: RunStatus) -> Ahead | LaunchError:
        try:
            return look_at(store, run, priced)
        except LaunchError as error:
            return error

    found = dict(zip([run.id for run in on], parallel(look, on), strict=True))
    console.warn_damaged([each for each in found.values() if isinstance(each, LaunchError)])
    return {run: each for run, each in found.items() if not isinstance(each, LaunchError)}


def _as_json(run: RunStatus, ahead: Mapping[str, Ahead]) -> dict[str, Any]:
    import msgspec

    found = ahead.get(run.id)
    progress, cost = (found.progress, found.cost) if found else (None, None)
    return {**msgspec.to_builtins(run), "progress": progress, "cost": cost}


def _table(runs: Sequence[RunStatus], store: Runs, ahead: Mapping[str, Ahead]) -> str:
    from jobs.runs.selection import shown_ids

    now_s = time.time()
    ids = shown_ids([run.id for run in runs], store)
    header = ["RUN", "NAME", "STATE", "DONE", "LEFT", "COST", "SIZE", "CLUSTER", "AGE", "TIME"]
    header.append("REASON")
    rows = [_row(run, ids[run.id], now_s, ahead.get(run.id)) for run in runs]
    # Of runs that are over, or tell nothing, these say nothing.
    told = [at for at in range(len(header)) if header[at] not in _OF_RUNNING or _has(rows, at)]
    header, rows = [header[at] for at in told], [[row[at] for at in told] for row in rows]
    right = [at for at, name in enumerate(header) if name in _NUMBERS]
    gives_way = [header.index(each) for each in _GIVE_WAY if each in header]
    return console.table(header, rows, right=right, gives_way=gives_way)


def _has(rows: Sequence[Sequence[str]], at: int) -> bool:
    return any(row[at] for row in rows)


def _row(run: RunStatus, shown_id: str, now_s: float, ahead: Ahead | None) -> list[str]:
    from jobs.runs.outcome import COLOURS, parse_time

    age_s = max(now_s - parse_time(run.created).timestamp(), 0)
    return [
        shown_id,
        run.name,
        console.styled(run.state.value, COLOURS[run.state]),
        *_ahead_cells(ahead),
        run.size,
        run.cluster,
        " ".join(console.duration_text(age_s).split()[:2]),  # the larger unit will do
        _time_text(run, now_s),
        _shortened(run.reason or ""),
    ]


def _ahead_cells(ahead: Ahead | None) -> list[str]:
    if ahead is None:
        return ["", "", ""]
    from jobs.launching.ahead import cost_text
    from jobs.runs.outlook import left_text, share_text

    view = ahead.progress
    cost = "" if ahead.cost is None else cost_text(ahead.cost)
    return ["", "", cost] if view is None else [share_text(view), left_text(view), cost]


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
