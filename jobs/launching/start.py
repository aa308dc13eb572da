"""Starts a planned run and sees it through: plan, question, submit, follow, summary."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.contracts.errors import ExitCode, LaunchError, Refused
from jobs.contracts.spec import Environment, Plan, RunHandle, RunStatus
from jobs.engines.base import Attended, Engine
from jobs.host import console
from jobs.host.console import size_text, styled
from jobs.launching.ahead import look_ahead, progress_fields
from jobs.launching.follow import follow, see_through, wait_until_started
from jobs.launching.forecast_text import forecast_pairs
from jobs.launching.foresee import foresee, keep_forecast
from jobs.launching.known_runs import remember, soon_past_runs
from jobs.launching.plan import measure_code, plan_text
from jobs.runs.ending import main_figures, output_places
from jobs.runs.figures import figures_of
from jobs.runs.metrics import read_curves
from jobs.runs.outcome import (
    COLOURS,
    advice,
    attempts_of,
    commands_while_on,
    exit_code,
    explanation,
    headline,
    next_commands,
)
from jobs.runs.progress import read_progress
from jobs.stacks.cost import price_per_hour, price_text, spent, spent_text
from jobs.stacks.prices import with_list_prices

if TYPE_CHECKING:
    from jobs.runs.code import Snapshot

# More is data that lies beside the code, as a rule.
LARGE_CODE_BYTES = 10**9


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Options by which the user wants a run started; `stack` are the words that name the stack.

    `shown_by` is the command that shows what would be started, and starts nothing.
    """

    shown_by: Sequence[str]

    detach: bool = False
    fetch: bool = True
    yes: bool = False
    json: bool = False
    stack: Sequence[str] = field(default_factory=tuple)


def start(plan: Plan, secrets: Mapping[str, str], engine: Engine, wish: Wish) -> int:
    """Show the plan, start the run and, unless detached, follow it; gives the exit code."""
    code = measure_code(plan, engine)
    environment = engine.environment
    found = foresee(plan.spec, environment, soon_past_runs(engine, plan.spec))
    cluster = environment.clusters[plan.spec.cluster]
    forecast = forecast_pairs(found, plan.spec, cluster)
    console.say(plan_text(plan, environment, code, forecast))
    console.say()
    if isinstance(engine, Attended):
        engine.check_quota(plan)
    _ask_for_size(code, wish)
    _ask_for_money(plan, environment, wish)
    if any(each.source for each in plan.spec.inputs.values()):
        from jobs.launching.local_inputs import push_inputs

        plan = push_inputs(plan, engine)
    handle = engine.submit(plan, secrets)
    keep_forecast(found, handle, cluster.price_per_node_hour)
    try:
        if not wish.json:
            console.out(handle.id)
        if wish.detach:
            return _leave(engine, handle, wish)
        if console.is_terminal(sys.stderr):
            console.say(styled("Ctrl-C detaches; the run goes on", "dim", stream=sys.stderr))
        # The lines are data, too; but JSON has stdout to itself.
        status = _follow(engine, handle, is_quiet=wish.json)
    except KeyboardInterrupt:
        return detached(engine, handle, wish.stack)
    except LaunchError:
        console.say(f"\n{handle.id} may go on; it is no longer followed")
        console.say(commands_while_on(handle.id, wish.stack))
        console.say()
        raise
    if wish.json:
        console.out_json(status)
    say_summary(engine, handle, status, wish.stack, is_fetched=wish.fetch)
    if wish.fetch and isinstance(engine, Attended):
        _bring_home(engine, handle, wish)
    return exit_code(status)


def _bring_home(engine: Engine, handle: RunHandle, wish: Wish) -> None:
    try:
        folder = engine.fetch(handle, Path(handle.id))
    except LaunchError:
        again = shlex.join(["launch", "fetch", handle.id, *wish.stack])
        console.warn(f"the download stopped; {again} goes on with it")
        raise
    console.say(f"\noutputs and logs are in {folder}")


def say_summary(
    engine: Engine,
    handle: RunHandle,
    status: RunStatus,
    stack: Sequence[str],
    *,
    is_fetched: bool = False,
) -> None:
    """Print how the run ended, its cost, and the commands to type next.

    `is_fetched` says that what it made is brought home from Azure right after.
    """
    error = engine.store.error(handle)
    head = headline(status, error)
    console.say()
    console.say(styled(head, COLOURS[status.state], "bold", stream=sys.stderr))
    text = explanation(error) if error is not None else ""
    if text:
        console.say(text)
    if remedy := advice(error):
        console.say(f"\nhint: {remedy}")
    attempts = attempts_of(status.id, engine.store.events(handle))
    if cost := spent(status, attempts, with_list_prices(engine.environment)):
        console.say(f"cost: {spent_text(cost)}")
    if told := ending_fields(engine, handle, status):
        console.say(console.fields(told))
    if status.state.is_terminal():
        remember(engine, handle)
    console.say()
    checkpoints = engine.store.checkpoints(handle) if status.state.is_terminal() else ()
    step = checkpoints[0].step if checkpoints else None
    is_attended = isinstance(engine, Attended)
    tree = next_commands(
        status,
        error,
        stack,
        checkpoint_step=step,
        has_preparation=is_attended,
        is_fetched=is_attended and is_fetched,
    )
    console.say(tree)


def ending_fields(engine: Engine, handle: RunHandle, status: RunStatus) -> list[tuple[str, str]]:
    """Word the main figures of a run that is over, and where its outputs are.

    Nothing more is told of a run whose results cannot be read: the end itself is worth more.
    """
    store = engine.store
    try:
        store.bring(handle)
        outputs = store.record(handle).plan.spec.outputs
        places = output_places(status, dict(store.places(handle)), outputs)
    except LaunchError as error:
        console.warn(error.message)
        return []
    run_dir = Path(handle.run_dir)
    figures = figures_of(read_curves(run_dir / "metrics.jsonl"))
    ahead = look_ahead(status, read_progress(run_dir), engine.environment)
    return [*main_figures(figures), *progress_fields(status, ahead), *places]


def detached(engine: Engine, handle: RunHandle, stack: Sequence[str]) -> int:
    """Say that the run goes on, and how to come back; for a Ctrl-C."""
    status = engine.store.status(handle)
    console.say()
    if status.state.is_terminal():
        console.say(headline(status, None))
    else:
        console.say(f"detached; {handle.id} goes on ({status.state.value})")
    console.say(next_commands(status, None, stack))
    return int(ExitCode.INTERRUPTED)


def _follow(engine: Engine, handle: RunHandle, *, is_quiet: bool) -> RunStatus:
    if not is_quiet:
        return follow(engine, handle)
    wait_until_started(engine, handle)
    return see_through(engine, handle)


def _leave(engine: Engine, handle: RunHandle, wish: Wish) -> int:
    if wish.json:
        console.out_json(engine.store.status(handle))
    console.say(commands_while_on(handle.id, wish.stack))
    return int(ExitCode.SUCCEEDED)


def _ask_for_size(code: Snapshot | None, wish: Wish) -> None:
    if wish.yes or code is None or code.bytes <= LARGE_CODE_BYTES:
        return
    if not console.confirm(f"The code is {size_text(code.bytes)}. Copy it into the run?"):
        message = "not started"
        raise Refused(message, hint="list files that are not code in .launchignore")


def _ask_for_money(plan: Plan, environment: Environment, wish: Wish) -> None:
    cluster = environment.clusters[plan.spec.cluster]
    price = price_per_hour(plan.spec, cluster)
    if wish.yes or price == 0:
        return
    question = f"This spends money: {price_text(plan.spec, cluster)}. Start it?"
    if not console.confirm(question):
        message = "not started"
        raise Refused(message, hint=f"`{shlex.join(wish.shown_by)}` shows it without a question")
