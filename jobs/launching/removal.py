"""Decide which runs may be removed, and remove them; `launch rm` and `launch prune` ask here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jobs.contracts.errors import EnvironmentFailure, LaunchError, Refused
from jobs.contracts.spec import RunHandle, RunRecord
from jobs.engines.base import Engine
from jobs.host import console
from jobs.runs.removal import not_over


def resumers(records: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Name for each run the runs that began with its checkpoints."""
    found: dict[str, list[str]] = {}
    for record in records:
        if record.plan.spec.resume is not None:
            found.setdefault(record.plan.spec.resume.run, []).append(record.id)
    return found


def refusal(
    engine: Engine, handle: RunHandle, *, going: Collection[str], resumed: Mapping[str, list[str]]
) -> LaunchError | None:
    """Say why a run is not removed beside the runs `going`; None if it may be."""
    run = handle.id
    if not is_over(engine, handle):
        return not_over(run)
    if engine.removal.is_kept(handle):
        return Refused(f"{run} is marked as kept", hint=f"launch keep --undo {run}")
    others = [each for each in resumed.get(run, ()) if each not in going]
    if others:
        message = f"{others[0]} resumed from {run}, whose record explains its first steps"
        return Refused(message, hint=f"launch rm {' '.join([run, *others])}")
    return None


def require_removable(
    engine: Engine, handles: Collection[RunHandle], *, is_again: bool = False
) -> None:
    """Raise the first reason why one of the runs cannot be removed; the others are printed.

    Damaged records are told the first time only.
    """
    damaged: list[LaunchError] = []
    going = {each.id for each in handles}
    resumed = resumers(engine.removal.records(min(going), damaged))
    if not is_again:
        console.warn_damaged(damaged)
    checked = [refusal(engine, each, going=going, resumed=resumed) for each in handles]
    refused = [each for each in checked if each is not None]
    for error in refused[1:]:
        console.report_error(error)
    if refused:
        raise refused[0]


def is_over(engine: Engine, handle: RunHandle) -> bool:
    """Tell whether a run can change no more, as far as its record and its engine tell."""
    try:
        return engine.store.status(handle).state.is_terminal()
    except EnvironmentFailure:
        if not engine.store.has_own_records:
            raise
        return True  # a damaged record: the engine looks for the run's supervisor
