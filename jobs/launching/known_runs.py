"""Find what runs before tell of a job: runs of this machine, and those that others share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobSpec, RunHandle
from jobs.engines.base import Attended, Engine
from jobs.launching.shared_runs import add_soon, exchange, share
from jobs.runs.past import PastRun, add_past_runs, job_key, read_past_runs

# Runs that are looked at again each time until they are over: here, and where that asks Azure.
NEWEST_HERE, NEWEST_ON_AZURE = 200, 5


def past_runs(engine: Engine) -> list[PastRun]:
    """Give what is known here of runs before, newest first; asks nobody.

    Runs of this machine that ended meanwhile are summed up first.
    """
    store = engine.store
    if not store.has_own_records:
        return read_past_runs(store.workspace)
    return add_past_runs(store.workspace, _ended(engine, NEWEST_HERE))


def shared_past_runs(engine: Engine, spec: JobSpec) -> list[PastRun]:
    """Give what is known here, and what other machines have shared of a job and its nodes; shares ours.

    Blocks on Azure. A store that cannot be reached is left alone: what follows says so.
    """
    if not isinstance(engine, Attended):
        return past_runs(engine)
    known = add_past_runs(engine.store.workspace, _ended(engine, NEWEST_ON_AZURE))
    with suppress(LaunchError):
        known = _exchanged(engine, spec)
    return known


def soon_past_runs(engine: Engine, spec: JobSpec) -> list[PastRun]:
    """Give what is known here, and what others have shared as far as it comes within seconds."""
    known = past_runs(engine)
    if not isinstance(engine, Attended):
        return known
    size = engine.environment.clusters[spec.cluster].size
    ask = partial(_exchanged, engine, spec, is_patient=False)
    return add_soon(engine.store.workspace, job_key(spec), size, ask)


def remember(engine: Engine, handle: RunHandle) -> None:
    """Sum up a run that is over; nothing is kept of one that cannot be read."""
    with suppress(LaunchError):
        past = _summed_up(engine, handle)
        add_past_runs(engine.store.workspace, [past])
        if isinstance(engine, Attended):
            from jobs.blobs.store import open_runs_store

            share(open_runs_store(engine.environment), past)


def _exchanged(engine: Engine, spec: JobSpec, *, is_patient: bool = True) -> list[PastRun]:
    from jobs.blobs.store import open_runs_store

    blobs = open_runs_store(engine.environment)
    size = engine.environment.clusters[spec.cluster].size
    workspace = engine.store.workspace
    return exchange(blobs, workspace, job_key(spec), size, is_patient=is_patient)


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
