"""Takes the steps in their order within a limit of money, and removes what was made."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from jobs.contracts.errors import LaunchError
from jobs.host import console
from jobs.host.console import duration_text
from tools.prove_azure import stack_steps
from tools.prove_azure.cost import estimate
from tools.prove_azure.record import Outcome, StepRecord
from tools.prove_azure.session import Denied, Session
from tools.prove_azure.steps import Step
from tools.prove_azure.unknowns import find_denied

INSIDE = "inside"


class OverBudget(Exception):
    """The next step could cost more than is left."""


def prove(s: Session, steps: Sequence[Step], *, limit: float, keep: bool) -> None:
    """Take every step that is not done yet; then destroy, whatever has happened."""
    stays = keep
    if s.record.up_since_s is not None:
        # Since it was cut off, the stack has cost at least what an idle one does.
        away_s = max(0.0, time.time() - s.record.saved_s)
        s.record.spent += s.prices.of(hours=away_s / 3600, node_hours=0.0)
    try:
        for step in steps:
            if not s.record.is_done(step.name):
                _take(s, step, limit)
            if step.name == INSIDE and s.record.steps[INSIDE].outcome == "failed":
                # Whoever gets into the network goes on with this very stack.
                stays = True
                console.say(f"stack {s.stack} stays up and costs {s.prices.idle:.2f} USD an hour")
                console.say(f"hint: go on from inside of its network, or {_cleaning(s)}")
                break
    except OverBudget as stop:
        console.say(f"stopped: {stop}")
    finally:
        if s.record.up_since_s is not None and not stays:
            clean_up(s)


def clean_up(s: Session) -> None:
    """Destroy the stack, or say how."""
    s.step = "clean up"
    console.say(f"destroying stack {s.stack}; a second Ctrl-C leaves it as it is")
    try:
        try:
            stack_steps.repair(s)
            stack_steps.destroy(s)
        except Denied as denied:
            _blame(s, denied, ("U14", "U6"))
            console.say(f"`pulumi destroy` did not work, the group is deleted: {denied.words}")
            stack_steps.delete_group(s)
        stack_steps.purge(s)
    except (Denied, LaunchError, KeyboardInterrupt) as error:
        words = error.words if isinstance(error, Denied) else str(error) or "interrupted"
        console.say(f"stack {s.stack} is NOT gone and may cost money: {words}")
        console.say(f"hint: {_cleaning(s)}")
    s.save()


def _cleaning(s: Session) -> str:
    """Word the command that destroys this stack."""
    private = "" if s.stack.startswith("dev") else "--private "
    place = f"--name {s.settings['name']} --location {s.record.location}"
    return f'make prove-azure PROVE="{private}--clean {place}"'


def minutes_of(steps: Iterable[Step]) -> list[tuple[float, float]]:
    """List what the estimate of costs needs."""
    return [(step.minutes, step.node_minutes) for step in steps]


def _take(s: Session, step: Step, limit: float) -> None:
    """Take one step, and write down how it ended."""
    s.step = step.name
    needed = s.record.steps.get(step.needs)
    if needed is not None and needed.outcome != "done":
        _end(s, step, "left out", 0.0, f"`{step.needs}` has not succeeded")
        return
    if step.needs_stack and not _is_up(s, step, limit):
        return
    _hold(s, [step], limit)
    began = time.monotonic()
    outcome, words = _act(s, step)
    _end(s, step, outcome, time.monotonic() - began, words)


def _hold(s: Session, steps: Sequence[Step], limit: float) -> None:
    """Stop in front of steps that could cost more than is left."""
    most = estimate(s.prices, minutes_of(steps))
    if s.record.spent + most > limit:
        spent = f"{s.record.spent:.2f} of {limit:.2f} USD are spent"
        first = "with the stack brought up before it, " if len(steps) > 1 else ""
        message = f"{first}`{steps[-1].name}` may cost {most:.2f} USD, and {spent}"
        raise OverBudget(message)


def _is_up(s: Session, step: Step, limit: float) -> bool:
    """Tell whether the stack is up; bring it back where an interrupted proof has destroyed it."""
    if not s.record.is_done("up"):
        _end(s, step, "left out", 0.0, "the stack is not up")
        return False
    if s.record.up_since_s is not None:
        return True
    again = Step(step.name, _again, ("U13",), minutes=60)
    _hold(s, [again, step], limit)
    outcome, words = _act(s, again)
    if outcome == "failed":
        _end(s, step, "left out", 0.0, words)
    return outcome == "done"


def _again(s: Session) -> None:
    stack_steps.purge(s)
    stack_steps.up(s)


def _act(s: Session, step: Step) -> tuple[Outcome, str]:
    """Act, and write down what it has cost, however it ends."""
    began = time.monotonic()
    try:
        step.act(s)
    except Denied as denied:
        _blame(s, denied, step.settles)
        return "failed", denied.words
    finally:
        hours = (time.monotonic() - began) / 3600
        nodes = step.node_minutes / step.minutes
        s.record.spent += s.prices.of(hours=hours, node_hours=nodes * hours)
        s.save()
    return "done", ""


def _blame(s: Session, denied: Denied, settles: tuple[str, ...]) -> None:
    """Note which assumption the words deny; none where they tell of something else."""
    found = denied.unknown or getattr(find_denied(denied.words, settles), "id", None)
    if found:
        s.denies(found, denied.words)


def _end(s: Session, step: Step, outcome: Outcome, seconds: float, words: str) -> None:
    s.record.steps[step.name] = StepRecord(outcome=outcome, seconds=round(seconds, 1), words=words)
    s.save()
    line = f"{outcome:>8}  {step.name:<13} {duration_text(seconds):>12}  {step.does}"
    console.say(line)
    for each in words.splitlines()[:6]:
        console.say(f"          {each}")
