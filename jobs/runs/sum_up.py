"""Sum up a finished run from its folder: its rate, its work and its pauses (docs/foresight.md).

Whatever a program wrote there may be wrong: a figure that cannot be is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import Cluster, JobSpec, RunState
from jobs.host.untrusted import parse_json, read_small
from jobs.runs.checkpoints import whole_checkpoints
from jobs.runs.outcome import attempts_of, parse_time
from jobs.runs.past import PastRun, Unit, epochs_of, job_key
from jobs.runs.report import number_of, read_summary
from jobs.runs.store import RunEvent

MOST_BYTES = 64 << 20
MOST = 1e15
RATES = ("samples_per_s", "images_per_s")
SAMPLES = ("train_samples", "train_images")
LEAST_MEASURED_S = 1.0


class _Line(Struct, frozen=True):
    """A line of metrics; the fields of anything else are wrong in type."""

    ts: str
    name: str
    value: float | None = None
    split: str = ""
    step: float | None = None
    epoch: float | None = None


class _Pace(Struct, frozen=True, kw_only=True):
    """How fast a run went, and how far."""

    unit: Unit
    rate: float
    total: float | None


def sum_up(
    run: str, spec: JobSpec, events: Sequence[RunEvent], run_dir: Path, cluster: Cluster
) -> PastRun:
    """Sum up a run that is over; one that tells no rate is a row without one."""
    summary = read_summary(run_dir / "summary.json")
    lines = _read_lines(run_dir)
    epochs = _number(summary, "epochs") or epochs_of(spec.command)
    pace = _pace(summary, lines, epochs)
    if pace is None:
        return PastRun(run=run)
    evaluation_s, num_evaluations = _evaluations(lines, pace, epochs)
    prepare_s, ran_s = _times(run, events)
    is_whole = ran_s is not None and spec.resume is None and events[-1].state is RunState.COMPLETED
    total = pace.total if is_whole else None
    start_s = None
    if total and ran_s is not None:
        start_s = max(ran_s - total / pace.rate - evaluation_s * num_evaluations, 0.0)
    saved = _number(summary, "checkpoints_saved")
    newest = whole_checkpoints(run_dir)[:1]
    found = {
        "run": run,
        "key": job_key(spec),
        "size": cluster.size,
        "gpus_per_node": cluster.gpus_per_node,
        "cores_per_node": cluster.cpus_per_node,
        "nodes": spec.nodes,
        "processes_per_node": spec.processes_per_node,
        "unit": pace.unit,
        "rate": pace.rate,
        "total": total,
        "epochs": epochs,
        "batch": _number(summary, "batch_size"),
        "parameters": _number(summary, "parameters"),
        "decoded_per_core": _number(summary, "decoded_per_core_per_s"),
        "prepare_s": prepare_s,
        "start_s": start_s,
        "evaluation_s": evaluation_s,
        "num_evaluations": num_evaluations,
        "checkpoint_every_s": ran_s / saved if saved and ran_s else None,
        "checkpoint_bytes": float(newest[0].bytes) if newest else 0.0,
    }
    try:
        return msgspec.convert(found, PastRun)
    except msgspec.ValidationError:  # a figure that no run has
        return PastRun(run=run)


def _pace(summary: dict[str, Any], lines: Sequence[_Line], epochs: float | None) -> _Pace | None:
    """Find the rate: told by the program, else from the times of its metrics."""
    told = [each.value for each in lines if each.name in RATES and each.split in ("", "train")]
    rate = next((found for name in RATES if (found := _number(summary, name))), None)
    rate = rate or next((each for each in reversed(told) if each and 0 < each <= MOST), None)
    if rate is not None:
        samples = next((found for name in SAMPLES if (found := _number(summary, name))), None)
        return _Pace(
            unit="sample", rate=rate, total=samples * epochs if samples and epochs else None
        )
    return _timed(lines, "step") or _timed(lines, "epoch")


def _timed(lines: Sequence[_Line], unit: Unit) -> _Pace | None:
    """Take the rate from the first to the last metric that names a step (or epoch) and a time."""
    placed = [(each.step if unit == "step" else each.epoch, _seconds(each.ts)) for each in lines]
    whole = [(at, time_s) for at, time_s in placed if at is not None and time_s is not None]
    if len(whole) < 2:
        return None
    (first, began_s), (last, ended_s) = whole[0], whole[-1]
    if ended_s - began_s < LEAST_MEASURED_S or last <= first:
        return None
    return _Pace(unit=unit, rate=(last - first) / (ended_s - began_s), total=last)


def _evaluations(lines: Sequence[_Line], pace: _Pace, epochs: float | None) -> tuple[float, int]:
    """Compute what lies between two epochs beside training, and how often.

    Metrics of another split than `train` mark the ends of epochs.
    """
    ends: dict[float, float] = {}
    for each in lines:
        time_s = _seconds(each.ts)
        is_end = each.split not in ("", "train") and each.epoch is not None and time_s is not None
        if is_end and each.epoch is not None and time_s is not None:
            ends.setdefault(each.epoch, time_s)
    periods = [
        (later_s - earlier_s) / (later - earlier)
        for (earlier, earlier_s), (later, later_s) in pairwise(sorted(ends.items()))
    ]
    if not periods or not pace.total or not epochs or pace.unit != "sample":
        return 0.0, 0
    spare_s = fmean(periods) - pace.total / epochs / pace.rate
    return max(spare_s, 0.0), round(epochs)


def _times(run: str, events: Sequence[RunEvent]) -> tuple[float | None, float | None]:
    """Give the seconds before the ranks started and from then to the end; None where they restarted."""
    attempts = attempts_of(run, events)
    if len(attempts) != 1 or not attempts[0].ended:
        return None, None
    began = parse_time(attempts[0].started)
    asked = next((each.ts for each in events if each.state is RunState.PREPARING), events[0].ts)
    prepare_s = (began - parse_time(asked)).total_seconds()
    ran_s = (parse_time(attempts[0].ended) - began).total_seconds()
    is_odd = prepare_s < 0 or ran_s <= 0
    return (None, None) if is_odd else (prepare_s, ran_s)


def _read_lines(run_dir: Path) -> list[_Line]:
    try:
        content = read_small(run_dir / "metrics.jsonl", MOST_BYTES)
    except OSError:
        return []
    found: list[_Line] = []
    for line in content.splitlines():
        try:
            found.append(parse_json(line, _Line))
        except msgspec.DecodeError:
            continue
    return found


def _number(summary: dict[str, Any], name: str) -> float | None:
    value = number_of(summary.get(name))
    return value if value is not None and 0 < value <= MOST else None


def _seconds(ts: str) -> float | None:
    try:
        return datetime.fromisoformat(ts).timestamp()
    except (ValueError, OverflowError):
        return None
