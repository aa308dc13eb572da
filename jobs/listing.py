"""Lists runs, newest first; what `launch ls` prints."""

from __future__ import annotations

import time
from pathlib import Path

from jobs import console
from jobs.outcome import COLOURS, parse_time
from jobs.runs import RunStore
from jobs.spec import RunStatus
from jobs.stack import load_environment

MAX_REASON = 50


def list_runs(stack: str, env_file: Path | None, *, limit: int | None, as_json: bool) -> None:
    """Print the newest `limit` runs (all when None)."""
    store = RunStore.of(load_environment(stack, env_file))
    # One more than is shown tells whether there are more.
    runs = store.list(None if limit is None else limit + 1)
    shown = runs[:limit]
    if as_json:
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
    # A lost run has no end, and is not running either.
    if run.started is None or (run.ended is None and run.state.is_terminal()):
        return ""
    end_s = parse_time(run.ended).timestamp() if run.ended else now_s
    return console.duration_text(max(end_s - parse_time(run.started).timestamp(), 0))


def _shortened(reason: str) -> str:
    """`launch show` has the whole of it."""
    return reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."
