"""Find what tells how fast the links between a cluster's nodes are, where no run of a job does (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from jobs.contracts.spec import Cluster
from jobs.foresight.published import SOURCE, published_rows
from jobs.foresight.rows import Row
from jobs.runs.past import Key, PastRun

FABRIC = "between nodes"
MOST_JOBS = 2
# A check of the network as a training: an exchange of so much, and next to no computing.
CHECK_MB, LEAST_STEP_S = 100.0, 1e-5


def neighbours_of(cluster: Cluster, past: Sequence[PastRun]) -> list[PastRun]:
    """Choose the runs of any job, and checks of the network, on nodes like a cluster's."""
    return [each for each in past if each.is_on(cluster)]


def links_of(size: str, neighbours: Sequence[PastRun]) -> tuple[list[Row], str | None]:
    """Find rows that calibrate the links of a VM size, all of one fabric, and whose they are.

    `neighbours` are newest first. Sizes of other jobs that ran on several nodes; without them the newest
    check between nodes, else published rates, else nothing.
    """
    if jobs := _jobs_between_nodes(neighbours):
        rows = [row for runs in jobs for row in _rows_of_job(runs)]
        return rows, f"runs of other jobs, the newest {jobs[0][0].run}"
    for check in neighbours:
        if check.bus_gb_per_s and check.nodes > 1:
            return _rows_of_check(check), f"the check of the network {check.run}"
    rows = published_rows(size)
    return rows, SOURCE if rows else None


def _jobs_between_nodes(runs: Sequence[PastRun]) -> list[list[PastRun]]:
    """Group the runs that tell all of a row by their job; those of the newest jobs on several nodes."""
    jobs: dict[Key, list[PastRun]] = {}
    for run in runs:
        if run.rate and run.unit == "sample" and run.batch and run.parameters:
            jobs.setdefault(run.key, []).append(run)
    found = [each for each in jobs.values() if any(run.nodes > 1 for run in each)]
    return found[:MOST_JOBS]


def _rows_of_job(runs: Sequence[PastRun]) -> list[Row]:
    """Make a row of the newest run of each size."""
    sizes: dict[tuple[int, int], Row] = {}
    for run in runs:
        row = Row(
            series=f"job {run.key}",
            gpus=run.world_size,
            gpus_per_node=run.processes_per_node,
            rate=run.rate,
            gradient_mb=4 * (run.parameters or 0.0) / 1e6,
            batch_per_gpu=(run.batch or 0.0) / run.world_size,
            fabric=FABRIC,
        )
        sizes.setdefault((run.nodes, run.processes_per_node), row)
    return list(sizes.values())


def _rows_of_check(check: PastRun) -> list[Row]:
    """Make rows of a training that does nothing but exchange, as fast as a check found it."""
    one = Row(
        series="check",
        gpus=1,
        gpus_per_node=check.processes_per_node,
        rate=1 / LEAST_STEP_S,
        gradient_mb=CHECK_MB,
        batch_per_gpu=1,
        fabric=FABRIC,
    )
    found = [one]
    for gpus, bus in (
        (check.world_size, check.bus_gb_per_s),
        (check.processes_per_node, check.node_bus_gb_per_s),
    ):
        if bus and gpus > 1:
            seconds = 2 * (gpus - 1) / gpus * CHECK_MB / 1e3 / bus + (check.latency_s or 0.0)
            found.append(replace(one, gpus=gpus, rate=gpus / (LEAST_STEP_S + seconds)))
    return found
