"""Looks at the runs that Azure ML lists until enough of them are as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from jobs.contracts.spec import RunState, RunStatus
from jobs.engines.azure_ml.history import Attempt, Listed, status_of
from jobs.engines.azure_ml.status import StatusReader, kept_attempt
from jobs.host.parallel import parallel
from jobs.runs.selection import Selection

# Of longer lists only what has ended on this machine's watch is known in full.
_MOST_ASKED, _LEAST_ASKED = 50, 20


def wanted_of_listed(
    listed: Iterator[Listed],
    limit: int | None,
    wanted: Selection,
    seen: set[str],
    *,
    folder: Path,
    statuses: StatusReader,
) -> list[RunStatus]:
    """Look at listed runs until `limit` are as wanted; all that were listed are in `seen` then.

    `folder` holds what this machine knows of each run.
    """
    rows = _candidates(listed, wanted, seen)
    runs: list[RunStatus] = []
    # Of a state that few have, one run after the other would be asked for.
    size = max(limit, _LEAST_ASKED) if limit is not None and wanted.states else limit
    while batch := list(islice(rows, size)):
        if limit is not None and limit <= _MOST_ASKED:
            attempts = parallel(
                lambda each: statuses.attempt_of_listed(each, folder / each.run), batch
            )
        else:
            attempts = [kept_attempt(folder / each.run, each.attempt) for each in batch]
        found = map(partial(_status_of, folder), batch, attempts)
        runs += [each for each in found if wanted.takes(each)]
        if limit is None or len(runs) >= limit:
            break
    return runs


def _candidates(listed: Iterator[Listed], wanted: Selection, seen: set[str]) -> Iterator[Listed]:
    """Yield the listed runs that may be wanted, as far as a list tells; no more than is taken."""
    for each in listed:
        if wanted.is_too_old(each.run):
            if each.attempt == 1:
                break
            continue  # a later attempt is listed by its own time
        seen.add(each.run)
        # Only the details tell the other states for certain.
        state = each.standing.state
        is_such = wanted.takes_job(each.name, each.experiment, each.tags)
        if is_such and (state is not RunState.COMPLETED or wanted.takes_state(state)):
            yield each


def _status_of(folder: Path, listed: Listed, attempt: Attempt | None) -> RunStatus:
    run_dir = folder / listed.run
    status = status_of(listed, str(run_dir), attempt)
    first = kept_attempt(run_dir, 1) if listed.attempt > 1 else None
    return status if first is None else replace(status, started=first.started)
