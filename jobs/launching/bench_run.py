"""Start the run that measures one size, watch it until its rate is steady, and read that rate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path

from msgspec.structs import replace

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Plan, RunHandle, RunState
from jobs.engines.base import Attended, Engine
from jobs.host import console
from jobs.host.console import duration_text
from jobs.launching.follow import wait_until_over, wait_until_started
from jobs.launching.status_line import status_line
from jobs.runs.metrics import read_curves
from jobs.runs.outcome import explanation, headline, parse_time
from jobs.runs.progress import read_history
from jobs.runs.scaling import Point
from jobs.runs.steady import LEAST_WINDOWS, Steady, steady

LOOK_EVERY_S, LOOK_ON_AZURE_S = 1.0, 10.0
# A program that says nothing for so long may never do it.
SILENCE_S = 60.0
TELL_PROGRESS = "what a program tells: docs/run-directory.md#progress"
# By this tag of a run the next bench finds the one that a killed bench could not note any more.
TAG = "bench"
TOLD_PARTS = {
    "step_s": "told_step_s",
    **{name: name for name in ("compute_s", "exchange_s", "data_wait_s", "host_s")},
}
NEWEST = 200  # runs that are looked at for it
# A run whose nodes cost money is ended after so many times the time that was reckoned for it.
MOST_TIMES = 3


def submit(
    engine: Engine, plan: Plan, secrets: Mapping[str, str], tag: str, limit_s: float | None
) -> RunHandle:
    """Start a run with a tag as `launch run` does: quota looked at, local inputs pushed.

    It has `limit_s` as its wall clock, so that it ends in time where nobody watches it any more.
    """
    if isinstance(engine, Attended):
        engine.check_quota(plan)
    if any(each.source for each in plan.spec.inputs.values()):
        from jobs.launching.local_inputs import push_inputs

        plan = push_inputs(plan, engine)
    limits = plan.spec.limits
    clock_s = min((each for each in (limits.wall_clock_s, limit_s) if each), default=None)
    spec = replace(
        plan.spec,
        tags={**plan.spec.tags, TAG: tag},
        limits=replace(limits, wall_clock_s=clock_s),
    )
    return engine.submit(replace(plan, spec=spec, request=engine.plan(spec).request), secrets)


def find_tagged(engine: Engine, tag: str) -> RunHandle | None:
    """Find the run with a tag among the newest of this machine; None where there is none."""
    for name in engine.store.names()[:NEWEST]:
        handle = engine.store.handle(name)
        with suppress(LaunchError):  # no run yet, or a damaged one
            if engine.store.record(handle).plan.spec.tags.get(TAG) == tag:
                return handle
    return None


def watch(engine: Engine, handle: RunHandle, measure_s: float, limit_s: float | None) -> bool:
    """Wait until a run is over, or was measured for long enough: then it is ended.

    Gives whether it was ended because its ranks had run for `limit_s` before.
    """
    store, is_late = engine.store, False
    try:
        status = wait_until_started(engine, handle)
        began_s = parse_time(status.started).timestamp() if status.started else time.time()
        every_s = LOOK_ON_AZURE_S if isinstance(engine, Attended) else LOOK_EVERY_S
        silent_until_s: float | None = time.monotonic() + SILENCE_S
        with status_line(engine, handle, status):
            while not store.status(handle).state.is_terminal():
                # It also brings the history from a node.
                if store.progress(handle) is not None:
                    silent_until_s = None
                elif silent_until_s is not None and time.monotonic() > silent_until_s:
                    silent_until_s = None
                    console.warn(f"{handle.id} has told no progress yet ({TELL_PROGRESS})")
                found = steady(read_history(Path(handle.run_dir)))
                is_measured = found is not None and found.seconds >= measure_s
                is_late = limit_s is not None and time.time() - began_s >= limit_s
                if is_measured or is_late:
                    engine.cancel(handle)
                    break
                time.sleep(every_s)
        wait_until_over(engine, handle)
    except KeyboardInterrupt:
        console.say(f"\nending {handle.id}; the same command goes on with this size")
        engine.cancel(handle)
        raise
    return is_late


def measured(engine: Engine, point: Point, handle: RunHandle) -> Point:
    """Read what a run that is over tells of its rate; without one the point says why."""
    store = engine.store
    store.bring(handle)
    run_dir = Path(handle.run_dir)
    status = store.status(handle)
    if status.state not in (RunState.COMPLETED, RunState.CANCELLED):
        error = store.error(handle)
        text = explanation(error) if error else ""
        why = f"{headline(status, error)}{': ' + text.splitlines()[0] if text else ''}"
        return replace(point, why=why)
    found = steady(read_history(run_dir))
    progress = store.progress(handle)
    if found is None or progress is None:
        why = (
            f"`{handle.id}` was too short to measure: fewer than {LEAST_WINDOWS} windows of its progress"
            if progress is not None
            else f"`{handle.id}` tells no progress"
        )
        return replace(point, why=why)
    per_unit = 1.0
    unit: str = progress.unit
    if progress.samples_done and progress.done:
        per_unit, unit = progress.samples_done / progress.done, "sample"
    elif point.size.scaling == "weak":
        # Each rank does as much as it would alone.
        per_unit, unit = float(point.size.ranks), f"rank-{progress.unit}"
    step_s = 1 / found.rate if progress.unit == "step" else None
    return replace(
        point,
        **_rates(found, per_unit),
        unit=unit,
        step_s=step_s,
        batch=per_unit if step_s is not None and unit == "sample" else None,
        **_told_parts(run_dir),
    )


def late_text(reckoned_s: float) -> str:
    """Say that a run was ended after a multiple of the time that was reckoned for it."""
    return f"was ended after {MOST_TIMES} times the {duration_text(reckoned_s)} that are reckoned for it"


def _rates(found: Steady, per_unit: float) -> dict[str, float | int]:
    return {
        "rate": found.rate * per_unit,
        "low": found.low * per_unit,
        "high": found.high * per_unit,
        "variation": found.variation,
        "num_windows": found.num_windows,
        "warm_up_s": found.warm_up_s,
    }


def _told_parts(run_dir: Path) -> dict[str, float]:
    """Read the parts of a step that a program measured itself: means of the newest half."""
    found: dict[str, float] = {}
    for curve in read_curves(run_dir / "metrics.jsonl"):
        if curve.name in TOLD_PARTS and curve.split in ("", "train"):
            values = [each for each in curve.values[len(curve.values) // 2 :] if isfinite(each)]
            found[TOLD_PARTS[curve.name]] = max(sum(values) / len(values), 0.0) if values else 0.0
    return found
