"""Sum up a finished run from its folder: its rate, its work and its pauses (docs/foresight.md).

Whatever a program wrote there may be wrong: a figure that cannot be is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import Cluster, JobSpec, RunState
from jobs.host.structs import prepared
from jobs.runs.checkpoints import whole_checkpoints
from jobs.runs.lengths import Unit, lengths_of
from jobs.runs.metrics import Curve, read_all_curves
from jobs.runs.outcome import attempts_of, parse_time
from jobs.runs.past import PastRun, job_key
from jobs.runs.progress import Progress, read_progress
from jobs.runs.report import number_of, read_summary
from jobs.runs.run_folder import RunEvent

MOST = 1e15
RATES = ("samples_per_s", "images_per_s")
SAMPLES = ("train_samples", "train_images")


class _Pace(Struct, frozen=True, kw_only=True):
    """Hold a run's rate and its total, in units of its progress."""

    unit: Unit
    rate: float
    total: float | None


def sum_up(
    run: str, spec: JobSpec, events: Sequence[RunEvent], run_dir: Path, cluster: Cluster
) -> PastRun:
    """Sum up a run that is over; one that tells no rate is a row without one."""
    summary = read_summary(run_dir / "summary.json")
    epochs = _number(summary, "epochs") or lengths_of(spec.command).get("epoch")
    progress = read_progress(run_dir)
    pace = _pace(summary, read_all_curves(run_dir / "metrics.jsonl"), progress, epochs)
    network = _network(summary)
    if pace is None and not network:
        return PastRun(run=run)
    pauses = progress.pace if progress is not None else None
    evaluation_s, num_evaluations = (pauses.pause_s, pauses.num_pauses) if pauses else (0.0, 0)
    prepare_s, ran_s = _times(run, events)
    is_whole = spec.resume is None and events[-1].state is RunState.COMPLETED
    total = pace.total if pace and is_whole else None
    start_s = None
    if pace and total and ran_s is not None:
        start_s = max(ran_s - total / pace.rate - evaluation_s * num_evaluations, 0.0)
    streamed = _number(summary, "streamed_bytes_per_s")
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
        **({"unit": pace.unit, "rate": pace.rate, "total": total} if pace else {}),
        "epochs": epochs,
        "batch": _number(summary, "batch_size") or _told_batch(progress),
        "parameters": _number(summary, "parameters"),
        "decoded_per_core": _number(summary, "decoded_per_core_per_s"),
        "node_bytes_per_s": streamed * spec.processes_per_node if streamed else None,
        "prepare_s": prepare_s,
        "start_s": start_s,
        "evaluation_s": evaluation_s,
        "num_evaluations": num_evaluations,
        "checkpoint_every_s": ran_s / saved if saved and ran_s else None,
        "checkpoint_blocking_s": _number(summary, "checkpoint_blocking_s") or 0.0,
        "checkpoint_bytes": float(newest[0].bytes) if newest else 0.0,
        **network,
    }
    try:
        return msgspec.convert(found, prepared(PastRun))
    except msgspec.ValidationError:  # a figure that no run has
        return PastRun(run=run)


def _pace(
    summary: dict[str, Any],
    curves: Sequence[Curve],
    progress: Progress | None,
    epochs: float | None,
) -> _Pace | None:
    """Find the rate: told by the program, else from how far it was at which time."""
    rate = told_rate(summary, curves)
    per_epoch = next((found for name in SAMPLES if (found := _number(summary, name))), None)
    samples = per_epoch * epochs if per_epoch and epochs else None
    if progress is not None:
        rate = rate or progress.samples_per_s
        samples = samples or progress.samples_total or progress.samples_done
    if rate:
        return _Pace(unit="sample", rate=rate, total=samples or None)
    if progress is None or progress.pace is None or progress.pace.unit_s <= 0:
        return None
    done = progress.total or progress.done or None
    return _Pace(unit=progress.unit, rate=1 / progress.pace.unit_s, total=done)


def _told_batch(progress: Progress | None) -> float | None:
    """Find the samples of a step of all ranks; None where the progress does not tell them."""
    if progress is None or progress.unit != "step" or not progress.done:
        return None
    batch = (progress.samples_done or 0.0) / progress.done
    return batch if 0 < batch <= MOST else None


def told_rate(summary: dict[str, Any], curves: Sequence[Curve]) -> float | None:
    """Find the samples/s of all ranks that the program measured itself; None where it told none."""
    told = [each.last[1] for each in curves if each.name in RATES and each.split in ("", "train")]
    rates = [_number(summary, name) for name in RATES]
    return next((each for each in [*rates, *told] if each and 0 < each <= MOST), None)


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


def _network(summary: dict[str, Any]) -> dict[str, float | None]:
    """Give what a check of the network found; empty for other programs."""
    bus, latency_us = _number(summary, "bus_gb_per_s"), _number(summary, "latency_us")
    if bus is None or latency_us is None:
        return {}
    told: object = summary.get("nodes_gb_per_s")
    inside = None
    with suppress(msgspec.ValidationError):
        nodes = msgspec.convert(told, list[float])
        inside = min((each for each in nodes if 0 < each <= MOST), default=None)
    return {"bus_gb_per_s": bus, "node_bus_gb_per_s": inside, "latency_s": latency_us / 1e6}


def _number(summary: dict[str, Any], name: str) -> float | None:
    value = number_of(summary.get(name))
    return value if value is not None and 0 < value <= MOST else None
