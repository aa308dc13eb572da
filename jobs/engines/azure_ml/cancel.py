"""Cancel runs for good, so that no later command starts them again.

Azure ML forgets a cancel of a job that is over. So a run that could be started again has it written
beside its record, before Azure ML hears of it; that holds on every machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import RunHandle
from jobs.engines.azure_ml.intents import give_up, hold, mark_submitted, read_intent
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.refusals import CloudRefusal
from jobs.engines.azure_ml.results import cancel_mark
from jobs.host import console

if TYPE_CHECKING:
    from jobs.engines.azure_ml.runs import CloudRuns


def cancel_run(runs: CloudRuns, handle: RunHandle) -> None:
    """End a run for good; see `Engine.cancel`."""
    from jobs.engines.azure_ml.submission import cancel_job

    if may_go_on(runs, handle):
        try:
            runs.blobs.create(cancel_mark(handle.id), b"")
        except EnvironmentFailure as error:
            # Its nodes cost money now; that it may be started again costs some later.
            console.warn(f"{error.message}; so an attached `launch` may start {handle.id} again")
        # Somebody may have started an attempt just before: it is to end, too.
        runs.statuses.forget(handle)
    try:
        cancel_job(runs.client, job_name(handle.id, _newest_attempt(runs, handle)))
    except CloudRefusal as refusal:
        if refusal.status != 404 or runs.details(handle.id, 1) is not None:
            raise
        close_intent(runs, handle)
    else:
        mark_submitted(Path(handle.run_dir))  # if that was not known, the same again is another run
    runs.statuses.forget(handle)


def close_intent(runs: CloudRuns, handle: RunHandle) -> None:
    """Close an open intent, so that the same job typed again is another run."""
    run_dir = Path(handle.run_dir)
    if read_intent(run_dir) is None:
        return
    with hold(run_dir) as is_ours:
        if runs.details(handle.id, 1) is not None:
            mark_submitted(run_dir)
        elif is_ours:
            give_up(run_dir)
        else:
            message = f"another `launch` is submitting {handle.id} at this moment"
            raise EnvironmentFailure(message, hint=f"launch cancel {handle.id}, when it is done")


def may_go_on(runs: CloudRuns, handle: RunHandle) -> bool:
    """Tell whether another attempt of the run may be started."""
    try:
        retry = runs.record(handle).plan.spec.retry
        last = runs.attempts(handle)[-1]
    except LaunchError:
        return True  # so far as anybody knows
    is_over = last.standing.state.is_terminal() and last.standing.cause not in retry.on
    return last.number <= retry.max and not is_over


def _newest_attempt(runs: CloudRuns, handle: RunHandle) -> int:
    try:
        return runs.newest_attempt(handle)
    except LaunchError:
        # Whatever is out of reach, Resource Manager alone ends a job.
        jobs, number = f"{runs.client.workspace}/jobs", 1
        while runs.client.find(f"{jobs}/{job_name(handle.id, number + 1)}") is not None:
            number += 1
        return number
