"""Predict the speed of a job on nodes of one kind from its runs before (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import exp, hypot, log, sqrt

from msgspec import Struct

from jobs.contracts.spec import Cluster
from jobs.foresight.predict import NINE_OF_TEN, Predictor
from jobs.foresight.rows import Row
from jobs.foresight.work import Band, Speed
from jobs.launching.links import links_of
from jobs.runs.past import PastRun

NEWEST = 5  # runs of one size that count
# Standard deviation of the rate of one run to the next, as a logarithm, and how many runs it counts
# for: CPUs share cores and caches with whatever else runs.
NOISE, CPU_NOISE, NOISE_RUNS = 0.02, 0.05, 4
# The rate of processes that share the cores of a node grows with this power of their number:
# middle and standard deviation before anything was measured. 0 is a process that uses all cores
# well, 1 one that uses a single core.
SHARING, SHARING_SPREAD = 0.3, 0.35
_PER_RANK = re.compile(r"per[-_](rank|gpu|device|replica|worker|process)")


class Measured(Struct, frozen=True, kw_only=True):
    """Hold the rate of a size, the mean of its newest runs; `batch` is of all ranks."""

    nodes: int
    processes_per_node: int
    rate: float
    num_runs: int
    batch: float | None

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.processes_per_node


class Speeds:
    """Speeds of a job with so many processes on each node, on any number of nodes.

    `runs` are of one job, on nodes of the cluster's kind, newest first, each with a rate in one
    unit. Steps are counted as those of one rank: a step of more ranks does more. `neighbours`
    are other jobs' runs on such nodes, newest first; they count until a run has used the links.
    `doubt` is the deviation of what is no run of the job, as a logarithm, and why.
    """

    def __init__(
        self,
        runs: Sequence[PastRun],
        cluster: Cluster,
        processes_per_node: int,
        command: Sequence[str],
        neighbours: Sequence[PastRun] = (),
        *,
        doubt: tuple[float, str] | None = None,
    ) -> None:
        self._doubt_spread, self._doubt = doubt or (0.0, None)
        self.unit = runs[0].unit
        self._has_gpus = cluster.gpus_per_node > 0
        self._cores = cluster.cpus_per_node
        self._processes = processes_per_node
        self.measured, self._noise = _join(runs, NOISE if self._has_gpus else CPU_NOISE)
        self._is_per_rank = _is_per_rank(self.measured, command)
        parameters = next((each.parameters for each in runs if each.parameters), None)
        self._gradient_mb = 4 * parameters / 1e6 if parameters else None
        self.sharing = _sharing(self.measured, self._cores, self._noise)
        has_across = any(each.nodes > 1 for each in self.measured)
        others: list[Row] = []
        self._source: str | None = None
        if self._has_gpus and not has_across:
            others, self._source = links_of(cluster.size, neighbours)
        self._fabric = others[0].fabric if others else ""
        own = [self._row(each) for each in self._nearest()]
        self._predictor = Predictor([*own, *others])

    def at(self, nodes: int, batch: float | None = None) -> Speed:
        """Predict the speed on so many nodes; `batch` is that of all ranks, where it is another one."""
        row = self._asked(nodes, batch)
        found = self._predictor.predict(row)
        same = (
            [each.num_runs for each in self.measured if self._is_of(each, nodes)]
            if not batch
            else []
        )
        noise = self._noise * sqrt(1 + 1 / max(same, default=1))
        shared, why = self._shared(nodes)
        extra = NINE_OF_TEN * hypot(noise, shared, self._doubt_spread)
        down = hypot(log(found.rate / found.low), extra)
        up = hypot(log(found.high / found.rate), extra)
        return Speed(
            rate=Band(middle=found.rate, low=found.rate * exp(-down), high=found.rate * exp(up)),
            binds=found.binds,
            relieved=found.rate * self._predictor.relief(row),
            why_wide=self._doubt or why or found.why_wide,
            source=self._source if nodes > 1 else None,
        )

    def has_measured(self, nodes: int) -> bool:
        """Tell whether a run had this size."""
        return any(self._is_of(each, nodes) for each in self.measured)

    def _is_of(self, each: Measured, nodes: int) -> bool:
        return (each.nodes, each.processes_per_node) == (nodes, self._processes)

    def _nearest(self) -> list[Measured]:
        """Choose the sizes to predict from: with GPUs all, else of each number of nodes the nearest."""
        if self._has_gpus:
            return self.measured
        found: dict[int, Measured] = {}
        for each in self.measured:
            known = found.get(each.nodes)
            if known is None or self._distance(each) < self._distance(known):
                found[each.nodes] = each
        return list(found.values())

    def _distance(self, each: Measured) -> float:
        return abs(self._steps_apart(each))

    def _steps_apart(self, each: Measured) -> float:
        """Compute the logarithm of how many more processes share the cores than in a measured size."""
        return log(min(self._processes, self._cores) / min(each.processes_per_node, self._cores))

    def _row(self, each: Measured) -> Row:
        """Make a row of the model, whose units are GPUs, or nodes where there are none."""
        if self._has_gpus:
            rate, units, world = each.rate, each.world_size, each.world_size
        else:
            rate = each.rate * exp(self.sharing.middle * self._steps_apart(each))
            units, world = each.nodes, each.nodes * self._processes
        return Row(
            series="job",
            gpus=units,
            gpus_per_node=each.processes_per_node if self._has_gpus else 1,
            rate=rate,
            gradient_mb=self._gradient_mb,
            batch_per_gpu=self._batch(each, world, units),
            fabric=self._fabric,
        )

    def _asked(self, nodes: int, batch: float | None = None) -> Row:
        world = nodes * self._processes
        units = world if self._has_gpus else nodes
        return Row(
            series="job",
            gpus=units,
            gpus_per_node=self._processes if self._has_gpus else 1,
            gradient_mb=self._gradient_mb,
            batch_per_gpu=batch / units if batch else self._batch(self._nearest()[0], world, units),
            fabric=self._fabric,
        )

    def _batch(self, like: Measured, world: int, units: int) -> float | None:
        """Compute the samples of one unit in a step of so many ranks."""
        if self.unit == "step":
            return world / units
        if like.batch is None:
            return None
        of_all = like.batch / like.world_size * world if self._is_per_rank else like.batch
        return of_all / units

    def _shared(self, nodes: int) -> tuple[float, str | None]:
        """Give the deviation that the sharing of cores brings, and why it is wide."""
        if self._has_gpus:
            return 0.0, None
        nearest = min(
            self._nearest(), key=lambda each: (abs(log(each.nodes / nodes)), self._distance(each))
        )
        apart = self._distance(nearest)
        sizes = {each.processes_per_node for each in self.measured}
        if not apart or len(sizes) > 1:
            return self.sharing.deviation * apart, None
        count = nearest.processes_per_node
        why = f"processes share the cores of a node, and only {count} on one were measured"
        return self.sharing.deviation * apart, why


class Sharing(Struct, frozen=True, kw_only=True):
    """Hold the power by which more processes on the same cores are faster, and its deviation."""

    middle: float
    deviation: float


def _join(runs: Sequence[PastRun], noise: float) -> tuple[list[Measured], float]:
    """Join the runs of each size by their geometric mean; give their deviation, too."""
    sizes: dict[tuple[int, int, float | None], list[float]] = {}
    for run in runs:
        rates = sizes.setdefault((run.nodes, run.processes_per_node, run.batch), [])
        if run.rate and len(rates) < NEWEST:
            rates.append(log(run.rate * (run.world_size if run.unit == "step" else 1)))
    means = {size: sum(rates) / len(rates) for size, rates in sizes.items()}
    squares = sum((each - means[size]) ** 2 for size, rates in sizes.items() for each in rates)
    spare = sum(len(rates) - 1 for rates in sizes.values())
    found = [
        Measured(
            nodes=nodes,
            processes_per_node=processes,
            rate=exp(means[nodes, processes, batch]),
            num_runs=len(rates),
            batch=batch,
        )
        for (nodes, processes, batch), rates in sizes.items()
    ]
    return found, sqrt((NOISE_RUNS * noise**2 + squares) / (NOISE_RUNS + spare))


def _is_per_rank(measured: Sequence[Measured], command: Sequence[str]) -> bool:
    """Tell whether more ranks make a larger batch; as the runs show, else as the command says."""
    known = [each for each in measured if each.batch]
    if len({each.world_size for each in known}) > 1:
        return len({each.batch for each in known}) > 1
    if any(_PER_RANK.search(word) for word in command):
        return True
    given = {str(int(each.batch)) for each in known if each.batch and each.batch.is_integer()}
    return not any(name == "--batch-size" and value in given for name, value in pairwise(command))


def _sharing(measured: Sequence[Measured], cores: int, noise: float) -> Sharing:
    """Fit the power by which more processes on a node's cores are faster, beginning with a prior."""
    weight = SHARING_SPREAD**-2
    total = weight * SHARING
    for at, one in enumerate(measured):
        for other in measured[:at]:
            apart = log(min(one.processes_per_node, cores) / min(other.processes_per_node, cores))
            if one.nodes == other.nodes and apart:
                precision = apart**2 / (2 * noise**2)
                weight += precision
                total += precision * log(one.rate / other.rate) / apart
    return Sharing(middle=total / weight, deviation=weight**-0.5)
