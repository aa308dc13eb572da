"""`launch cancel`: end runs that are not over."""

from __future__ import annotations

import shlex

from jobs.commands import options
from jobs.commands.usage import make_app
from jobs.contracts.errors import ExitCode, LaunchError
from jobs.contracts.spec import RunHandle, RunState, RunStatus
from jobs.engines.base import Engine
from jobs.host import console

# The supervisor gives the ranks 10 s for a checkpoint, then kills them.
TIMEOUT_S = 25.0


def cancel(
    *,
    runs: options.ManyRuns,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """End runs.

    Waits until their processes have ended. A run that is over already is not changed.
    """
    from jobs.launching.follow import wait_until_over

    environment = options.open_environment(stack, env)
    # All names are looked up before the first run is touched.
    found = [options.open_run(run, environment) for run in runs]
    before = [_state(engine, handle) for engine, handle in found]
    # What goes wrong with one keeps no other on.
    refused = [_refusal(engine, handle) for engine, handle in found]
    unfinished = 0
    for (engine, handle), was, refusal in zip(found, before, refused, strict=True):
        if refusal is not None:
            continue
        # One that was to be started again is not any more.
        if was is not None and was.is_terminal() and _state(engine, handle) is was:
            console.say(f"{handle.id} was over already ({was.value})")
            continue
        try:
            status = wait_until_over(engine, handle, TIMEOUT_S)
        except LaunchError as error:
            unfinished += 1
            console.warn(f"{handle.id} was told to end; whether it did is unknown: {error.message}")
            continue
        if not status.state.is_terminal():
            unfinished += 1
            wait = shlex.join(["launch", "wait", handle.id, *options.stack_words(stack, env)])
            console.warn(f"{handle.id} is still {status.state.value}; {wait}")
            continue
        console.say(_end_line(status))
    errors = [each for each in refused if each is not None]
    for error in errors[1:]:
        console.report_error(error)
    if errors:
        raise errors[0]
    return int(ExitCode.UNFINISHED if unfinished else ExitCode.SUCCEEDED)


def _end_line(status: RunStatus) -> str:
    is_told = status.state is RunState.LOST and status.reason
    return f"{status.id} {status.state.value}" + (f": {status.reason}" if is_told else "")


def _state(engine: Engine, handle: RunHandle) -> RunState | None:
    try:
        return engine.store.status(handle).state
    except LaunchError:
        return None  # it can be ended all the same


def _refusal(engine: Engine, handle: RunHandle) -> LaunchError | None:
    try:
        engine.cancel(handle)
    except LaunchError as error:
        return error
    return None


app = make_app({"cancel": cancel})
