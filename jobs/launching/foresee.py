"""Foresee a job on an environment's clusters from its runs before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite, log
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from jobs.contracts.spec import Environment, JobSpec, Plan, RunHandle
from jobs.foresight import azure
from jobs.foresight.forecast import forecast, takeover, twice
from jobs.foresight.one_gpu import OFF_BY, published_rate
from jobs.foresight.predict import NINE_OF_TEN
from jobs.foresight.work import Band, Checkpoints, Forecast, Limit, Place, Takeover, Twice, Work
from jobs.launching.links import neighbours_of
from jobs.launching.speeds import Speeds
from jobs.runs.forecast_file import KeptForecast, write_forecast
from jobs.runs.lengths import Unit, lengths_of
from jobs.runs.past import PastRun, job_key

NO_RUN = "00000000-000000-0000"
NUM_NAMED = 3  # runs that a forecast names
# How much shorter or longer a start may be than those before: images and data may be there already.
START_LOW, START_HIGH = 0.6, 1.7
# Where no start was measured.
LOCAL_START_S = Band(middle=8.0, low=2.0, high=40.0)
CLOUD_START_S = Band(middle=420.0, low=60.0, high=1200.0)


class Foreseen(Struct, frozen=True, kw_only=True):
    """Hold what is known of a job before it starts; without a forecast `unknown` says why.

    Rates count `unit`s. Of a job that never ran `published` names the rate that stands in for one.
    `prepare_s` is the part of the time that is over when the ranks start,
    `runs` are the newest of the `num_runs` that the forecast is made from.
    """

    forecast: Forecast | None = None
    unit: Unit = "sample"
    prepare_s: float = 0.0
    is_measured: bool = False
    next_limit: Takeover | None = None
    twice_the_nodes: Twice | None = None
    runs: tuple[str, ...] = ()
    num_runs: int = 0
    published: str | None = None
    unknown: str | None = None


class ForeseenPlan(Plan, frozen=True, kw_only=True):
    """Add the forecast to a plan, for `launch plan --json`."""

    foreseen: Foreseen


class Outlook:
    """Forecasts of a job on one cluster, with so many processes a node and any number of nodes.

    `runs` are those of `runs_like`, one or more.
    """

    def __init__(
        self,
        spec: JobSpec,
        environment: Environment,
        cluster: str,
        processes: int,
        runs: Sequence[PastRun],
        *,
        neighbours: Sequence[PastRun],
        doubt: tuple[float, str] | None = None,
    ) -> None:
        is_local = environment.workspace.is_folder
        self.runs = runs
        self.unit: Unit = runs[0].unit
        self.prepare_s = median([each.prepare_s for each in runs if each.prepare_s] or [0.0])
        nodes = environment.clusters[cluster]
        self.speeds = Speeds(runs, nodes, processes, spec.command, neighbours, doubt=doubt)
        self.place = _measured(_place(environment, cluster, processes), runs)
        self.work = self._work(spec, LOCAL_START_S if is_local else CLOUD_START_S)

    def at(self, nodes: int) -> Forecast:
        """Forecast so many nodes."""
        found = forecast(self.work, self.place, nodes, self.speeds.at(nodes))
        if self.unit != "step":
            return found
        # Inside, steps of one rank are counted (see Speeds).
        return replace(found, rate=found.rate.times(1 / nodes / self.place.processes_per_node))

    def all_of(self, nodes: int, most_nodes: int) -> Foreseen:
        """Forecast so many nodes, and tell what more of them would bring."""
        one = self.at(nodes)
        return Foreseen(
            forecast=one,
            unit=self.unit,
            prepare_s=self.prepare_s,
            is_measured=self.speeds.has_measured(nodes),
            next_limit=takeover(self.work, self.place, nodes, self.speeds.at),
            twice_the_nodes=twice(one, self.at(2 * nodes)) if 2 * nodes <= most_nodes else None,
            runs=tuple(each.run for each in self.runs[:NUM_NAMED]),
            num_runs=len(self.runs),
        )

    def _work(self, spec: JobSpec, usual_start_s: Band) -> Work:
        """Take the work from the newest run that tells all of it, scaled to the job's epochs."""
        whole = next((each for each in self.runs if each.total), None)
        samples, num_evaluations, evaluation_s = None, 0.0, 0.0
        per_epoch = 0.0
        if whole is not None and whole.total and spec.resume is None:
            share = self._epochs_share(spec, whole)
            samples = whole.total * share * (whole.world_size if self.unit == "step" else 1)
            num_evaluations = whole.num_evaluations * share
            evaluation_s = self._evaluation_s(whole)
            per_epoch = whole.total / (whole.epochs or 1.0) if self.unit == "sample" else 0.0
        read, brought = _input_bytes(spec)
        return Work(
            samples=samples,
            start_s=self._start_s(usual_start_s, brought),
            num_evaluations=num_evaluations,
            evaluation_s=Band.sure(evaluation_s),
            download_bytes=brought if self.place.line_bytes_per_s else 0.0,
            sample_bytes=read / per_epoch if per_epoch else 0.0,
            decoded_per_core=self._decoded_per_core(),
            checkpoints=_checkpoints(whole) if whole else None,
        )

    def _epochs_share(self, spec: JobSpec, whole: PastRun) -> float:
        epochs = lengths_of(spec.command).get("epoch")
        return epochs / whole.epochs if epochs and whole.epochs else 1.0

    def _evaluation_s(self, whole: PastRun) -> float:
        """Compute the seconds of an evaluation on one rank, of which all ranks get their share."""
        processes, sharing = self.place.processes_per_node, 1.0
        if not self.place.gpus_per_node:
            # As in training: processes that share cores share what these do.
            sharing = self.speeds.sharing.middle
        faster = (processes / whole.processes_per_node) ** sharing
        return whole.evaluation_s * whole.nodes * processes / faster

    def _start_s(self, usual_s: Band, download_bytes: float) -> Band:
        """Take the start from the runs before, without the download, which is a term of its own."""
        told = [
            (each.prepare_s or 0.0) + each.start_s for each in self.runs if each.start_s is not None
        ]
        if not told:
            return usual_s
        line = self.place.line_bytes_per_s
        downloaded_s = download_bytes / line if line else 0.0
        low, middle, high = min(told) * START_LOW, median(told), max(told) * START_HIGH
        return Band(
            low=max(low - downloaded_s, 0.0),
            middle=max(middle - downloaded_s, 0.0),
            high=max(high - downloaded_s, 0.0),
        )

    def _decoded_per_core(self) -> Band | None:
        told = [each.decoded_per_core for each in self.runs if each.decoded_per_core]
        if not told:
            return None
        return Band(middle=median(told), low=0.9 * min(told), high=1.1 * max(told))


def runs_like(
    spec: JobSpec, environment: Environment, cluster: str, past: Sequence[PastRun]
) -> list[PastRun]:
    """Choose the runs of a job that ran on nodes like a cluster's, newest first, all in one unit."""
    key, nodes = job_key(spec), environment.clusters[cluster]
    found = [each for each in past if each.key == key and each.rate and each.is_on(nodes)]
    return [each for each in found if each.unit == found[0].unit]


def foresee(spec: JobSpec, environment: Environment, past: Sequence[PastRun]) -> Foreseen:
    """Foresee a planned job."""
    runs = runs_like(spec, environment, spec.cluster, past)
    cluster = environment.clusters[spec.cluster]
    if not runs and (found := _foresee_published(spec, environment, past)):
        return found
    if not runs:
        why = f"not known: no run of this job on {cluster.size} has told its rate"
        return Foreseen(unknown=f"{why}; run it once, e.g. with --nodes 1")
    others = neighbours_of(cluster, past)
    processes = spec.processes_per_node
    outlook = Outlook(spec, environment, spec.cluster, processes, runs, neighbours=others)
    if spec.launcher != "none":
        return outlook.all_of(spec.nodes, cluster.max_nodes)
    if not outlook.speeds.has_measured(spec.nodes):
        why = "not known: nothing connects the processes, and no run had as many of them"
        return Foreseen(unknown=why)
    return replace(outlook.all_of(spec.nodes, spec.nodes), next_limit=None)


def _foresee_published(
    spec: JobSpec, environment: Environment, past: Sequence[PastRun]
) -> Foreseen | None:
    """Foresee a job that never ran by the published rate of one such GPU; None without one."""
    cluster = environment.clusters[spec.cluster]
    one = published_rate(spec.command, cluster.size) if cluster.gpus_per_node else None
    if one is None or spec.launcher == "none":
        return None
    stand_in = PastRun(
        run=NO_RUN,
        size=cluster.size,
        gpus_per_node=cluster.gpus_per_node,
        cores_per_node=cluster.cpus_per_node,
        rate=one.rate,
        batch=one.batch,
        parameters=one.gradient_mb * 1e6 / 4,
    )
    outlook = Outlook(
        spec,
        environment,
        spec.cluster,
        spec.processes_per_node,
        [stand_in],
        neighbours=neighbours_of(cluster, past),
        doubt=(log(OFF_BY) / NINE_OF_TEN, f"this job never ran on {cluster.size}"),
    )
    kind = "half precision" if one.is_mixed else "fp32"
    told = f"{one.rate:g} images/s of {one.network} on one {one.gpu} in {kind} ({one.source})"
    found = outlook.all_of(spec.nodes, cluster.max_nodes)
    return replace(found, is_measured=False, runs=(), num_runs=0, published=told)


def foresee_divided(
    spec: JobSpec,
    environment: Environment,
    past: Sequence[PastRun],
    *,
    whole: JobSpec,
    batch: float,
) -> Band | None:
    """Foresee the samples/s of a job whose ranks share the batch that another one has.

    `whole` is that job, whose runs tell of it, and `batch` that of all its ranks. None where no run
    has told samples, and their batch.
    """
    runs = runs_like(whole, environment, spec.cluster, past)
    if not runs or runs[0].unit != "sample" or not all(each.batch for each in runs):
        return None
    cluster = environment.clusters[spec.cluster]
    others = neighbours_of(cluster, past)
    speeds = Speeds(runs, cluster, spec.processes_per_node, whole.command, others)
    return speeds.at(spec.nodes, batch).rate


def keep_forecast(found: Foreseen, handle: RunHandle, price: float | None) -> None:
    """Keep what was foreseen with a run, to be compared with what came; never an error.

    Time and cost are those from the start of the ranks on, as of every run that is over; `price` is
    that of a node and hour.
    """
    one = found.forecast
    if one is None:
        return
    time_s = one.time_s if one.time_s and isfinite(one.time_s.high) else None
    time_s = _of_ranks(time_s, found.prepare_s) if time_s else None
    cost = time_s.times(one.nodes * price / 3600) if time_s and price else None
    kept = KeptForecast(
        samples_per_s=one.rate.middle if found.unit == "sample" else None,
        units_per_s=one.rate.middle if found.unit != "sample" else None,
        low=one.rate.low,
        high=one.rate.high,
        time_s=time_s.middle if time_s else None,
        time_low_s=time_s.low if time_s else None,
        time_high_s=time_s.high if time_s else None,
        cost=cost.middle if cost else None,
        cost_low=cost.low if cost else None,
        cost_high=cost.high if cost else None,
        binds=one.binds.value,
        unit=found.unit,
        parts=_parts_of_ranks(one.parts, found.prepare_s) if time_s else {},
    )
    with suppress(OSError):
        write_forecast(Path(handle.run_dir), kept)


def _parts_of_ranks(parts: Mapping[str, float], prepare_s: float) -> dict[str, float]:
    """Take what is over when the ranks start from the start-up, then from a download before them."""
    left_s = parts.get(Limit.START, 0.0) - prepare_s
    data_s = parts.get(Limit.DATA, 0.0) + min(left_s, 0.0)
    return {**parts, Limit.START.value: max(left_s, 0.0), Limit.DATA.value: max(data_s, 0.0)}


def _of_ranks(time_s: Band, prepare_s: float) -> Band:
    return Band(
        middle=max(time_s.middle - prepare_s, 0.0),
        low=max(time_s.low - prepare_s, 0.0),
        high=max(time_s.high - prepare_s, 0.0),
    )


def _place(environment: Environment, name: str, processes: int) -> Place:
    cluster = environment.clusters[name]
    is_local = environment.workspace.is_folder
    is_low = cluster.priority == "low_priority"
    return Place(
        cluster=name,
        processes_per_node=processes,
        cores_per_node=cluster.cpus_per_node,
        gpus_per_node=cluster.gpus_per_node,
        line_bytes_per_s=azure.line_bytes_per_s(cluster.size),
        store_bytes_per_s=None if is_local else azure.STORE_BYTES_PER_S,
        store_requests_per_s=None if is_local else azure.STORE_REQUESTS_PER_S,
        price_per_node_hour=cluster.price_per_node_hour,
        evictions_per_node_hour=azure.EVICTIONS_PER_NODE_HOUR if is_low else 0.0,
    )


def _measured(place: Place, runs: Sequence[PastRun]) -> Place:
    """Take what the store gave a node, where runs have told it, in place of the published figures.

    The lines are those of the runs on the fewest nodes; the store gives at least what it gave to all.
    """
    told = [(each.nodes, each.node_bytes_per_s) for each in runs if each.node_bytes_per_s]
    if not told or place.store_bytes_per_s is None:
        return place  # the store of this machine has no line
    fewest = min(nodes for nodes, _ in told)
    line = median(rate for nodes, rate in told if nodes == fewest)
    given = max(nodes * rate for nodes, rate in told)
    requests = place.store_requests_per_s
    return replace(
        place,
        line_bytes_per_s=line,
        store_bytes_per_s=max(place.store_bytes_per_s, given),
        store_requests_per_s=None
        if requests is None
        else max(requests, given / place.request_bytes),
    )


def _input_bytes(spec: JobSpec) -> tuple[float, float]:
    """Give the bytes that are read during the training, and those that come before it."""
    sizes = [(each.mode == "download", each.dataset.bytes) for each in spec.inputs.values()]
    read = sum(size for is_before, size in sizes if not is_before)
    return read, sum(size for is_before, size in sizes if is_before)


def _checkpoints(whole: PastRun) -> Checkpoints | None:
    if not whole.checkpoint_every_s:
        return None
    return Checkpoints(
        every_s=whole.checkpoint_every_s,
        bytes=whole.checkpoint_bytes,
        blocking_s=whole.checkpoint_blocking_s,
    )
