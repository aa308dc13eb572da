"""Find what runs before tell of a job: runs of this machine, and those that others share.

Each run on Azure leaves a line in the container `runs`, as the blob `past-runs/<job>/<run>.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobSpec, RunHandle
from jobs.engines.base import Attended, Engine
from jobs.host.parallel import parallel
from jobs.runs.past import PastRun, add_past_runs, job_key, read_past_runs

if TYPE_CHECKING:
    from jobs.blobs.store import BlobStore

# Runs that are looked at again each time until they are over: here, and where that asks Azure.
NEWEST_HERE, NEWEST_ON_AZURE = 200, 5
# Of a job: names that are listed, by ten requests, and runs that are brought at once.
MOST_LISTED, MOST_SHARED = 50_000, 100
LONGEST_BYTES = 1 << 14


def past_runs(engine: Engine) -> list[PastRun]:
    """Give what is known here of runs before, newest first; asks nobody.

    Runs of this machine that ended meanwhile are summed up first.
    """
    store = engine.store
    if not store.has_own_records:
        return read_past_runs(store.workspace)
    return add_past_runs(store.workspace, _ended(engine, NEWEST_HERE))


def shared_past_runs(engine: Engine, spec: JobSpec) -> list[PastRun]:
    """Give what is known here, and what other machines have shared of a job; shares ours.

    Blocks on Azure. A store that cannot be reached is left alone: what follows says so.
    """
    if not isinstance(engine, Attended):
        return past_runs(engine)
    workspace = engine.store.workspace
    known = add_past_runs(workspace, _ended(engine, NEWEST_ON_AZURE))
    with suppress(LaunchError):
        from jobs.blobs.store import open_runs_store

        known = exchange(open_runs_store(engine.environment), workspace, job_key(spec))
    return known


def exchange(blobs: BlobStore, workspace: Path, key: str) -> list[PastRun]:
    """Share our runs of a job, and add the newest of others' to ours; gives all that is known."""
    ours = {_blob(each): each for each in read_past_runs(workspace) if each.key == key}
    there = {each.name for each in islice(blobs.list(_prefix(key)), MOST_LISTED)}
    untold = [(name, msgspec.json.encode(ours[name])) for name in ours.keys() - there]
    parallel(lambda each: blobs.create(*each), untold)
    missing = nlargest(MOST_SHARED, there - ours.keys())  # names begin with the time
    theirs = parallel(partial(_read, blobs), missing)
    return add_past_runs(workspace, [each for each in theirs if each])


def remember(engine: Engine, handle: RunHandle) -> None:
    """Sum up a run that is over; nothing is kept of one that cannot be read."""
    with suppress(LaunchError):
        past = _summed_up(engine, handle)
        add_past_runs(engine.store.workspace, [past])
        if isinstance(engine, Attended) and past.rate:
            from jobs.blobs.store import open_runs_store

            open_runs_store(engine.environment).create(_blob(past), msgspec.json.encode(past))


def _ended(engine: Engine, newest: int) -> Iterator[PastRun]:
    store = engine.store
    known = {each.run for each in read_past_runs(store.workspace)}
    names: Sequence[str] = ()
    with suppress(LaunchError):  # a folder that cannot be read; what starts a run says so
        names = store.names()
    for name in names[:newest]:
        if name in known:
            continue
        handle = store.handle(name)
        with suppress(LaunchError):
            if store.status(handle).state.is_terminal():
                store.bring(handle)
                yield _summed_up(engine, handle)


def _summed_up(engine: Engine, handle: RunHandle) -> PastRun:
    from jobs.runs.sum_up import sum_up

    spec = engine.store.record(handle).plan.spec
    cluster = engine.environment.clusters.get(spec.cluster)
    if cluster is None:
        return PastRun(run=handle.id)
    return sum_up(handle.id, spec, engine.store.events(handle), Path(handle.run_dir), cluster)


def _read(blobs: BlobStore, name: str) -> PastRun | None:
    """Read what another machine has written; None for what is not of its name."""
    from jobs.host.untrusted import parse_json, read_bounded

    try:
        past = parse_json(read_bounded(blobs, name, LONGEST_BYTES) or b"", PastRun)
    except (LaunchError, msgspec.DecodeError):
        return None
    return past if _blob(past) == name else None


def _prefix(key: str) -> str:
    return f"past-runs/{key}/"


def _blob(past: PastRun) -> str:
    return f"{_prefix(past.key)}{past.run}.json"
