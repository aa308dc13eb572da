"""Measure a job at several sizes, one run each, and write the scaling report into a folder.

`points.json` there holds what was measured and which run is on, so that a bench that was killed goes
on where it was.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from jobs.contracts.errors import LaunchError, Refused
from jobs.contracts.spec import Cluster, JobSpec, Plan, RunHandle
from jobs.engines.base import Engine
from jobs.foresight.work import Band
from jobs.host import console
from jobs.host.cache import content_key
from jobs.host.console import count_text, duration_text
from jobs.host.disturbance import disturbance, read_cpu_times
from jobs.host.files import write_file
from jobs.host.untrusted import parse_json, read_small
from jobs.launching.bench_run import (
    MOST_TIMES,
    TELL_PROGRESS,
    find_tagged,
    late_text,
    measured,
    submit,
    watch,
)
from jobs.launching.foresee import CLOUD_START_S, LOCAL_START_S, foresee, foresee_divided
from jobs.launching.known_runs import past_runs, remember
from jobs.runs.past import job_key
from jobs.runs.scaling import (
    PARTS,
    Point,
    Row,
    Size,
    csv_text,
    markdown,
    report_table,
    rows_of,
    share_cells,
)
from jobs.stacks.cost import money_text

STATE, CSV, PAGE, PICTURE = "points.json", "scaling.csv", "scaling.md", "scaling.svg"
_MOST_STATE_BYTES = 1 << 20
# Thought of the part of a run that is measured with, when its price is told before.
WARM_UP_S = 60.0


class Kept(Struct, frozen=True, kw_only=True):
    """What a bench has done so far; `key` is that of `bench_key`."""

    key: str
    points: tuple[Point, ...] = ()


class Scaled(Struct, frozen=True, kw_only=True):
    """A scaling report as `launch bench --json` prints it."""

    folder: str
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a bench is to be made: where it writes, how long a steady rate is measured, unasked or not.

    `stack` are the words that name the stack.
    """

    folder: Path
    measure_s: float
    yes: bool
    stack: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A size, and the job planned for it."""

    size: Size
    plan: Plan


class Bench:
    """A bench of planned sizes, smallest first, in a folder."""

    def __init__(
        self, planned: Sequence[Planned], secrets: Mapping[str, str], engine: Engine, wish: Wish
    ) -> None:
        self._planned = planned
        self._secrets = secrets
        self._engine = engine
        self._wish = wish
        self._key = bench_key(planned[0].plan.spec, engine.environment.clusters)
        self._points = self._read_state()
        self._error: LaunchError | None = None

    def run(self) -> Scaled:
        """Ask once, measure what is not measured, write the report; gives it."""
        left = [each for each in self._planned if not self._is_measured(each.size)]
        if left:
            self._say_before(left)
        for each in left:
            self._measure(each)
            self._write_report()
        if not any(point.rate for point in self._points.values()):
            raise self._error or self._nothing_measured()
        self._write_report()
        return Scaled(folder=str(self._wish.folder), rows=self._rows())

    def _nothing_measured(self) -> LaunchError:
        """Tell why the first size has no rate."""
        point = next(iter(self._points.values()))
        hint = f"`launch logs {point.run}` shows what it printed; {TELL_PROGRESS}"
        return LaunchError(f"no size was measured: {point.why}", hint=hint)

    def _rows(self) -> list[Row]:
        found = [self._points.get(each.size, Point(size=each.size)) for each in self._planned]
        return rows_of(found)

    def _is_measured(self, size: Size) -> bool:
        point = self._points.get(size)
        if point is None or point.rate is None:
            return False
        if size.scaling == "weak":
            return True
        # Its batch is that of the smallest size, divided: it may have been another one.
        first = self._points.get(self._planned[0].size)
        return first is not None and first.batch == point.batch

    def _say_before(self, left: Sequence[Planned]) -> None:
        """Show what will be run and its price, and ask where it costs money."""
        clusters = self._engine.environment.clusters
        seconds = self._reckoned_s()
        sizes = ", ".join(str(each.size) for each in left)
        done = len(self._planned) - len(left)
        already = f"; {count_text(done, 'size')} measured before" if done else ""
        console.say(f"bench     {left[0].plan.spec.name} at {sizes} (nodes x processes){already}")
        console.say(
            f"time      about {duration_text(seconds * len(left))}, one run after the other"
        )
        prices = [clusters[each.plan.spec.cluster].price_per_node_hour for each in left]
        spent = [
            each.plan.spec.nodes * price * seconds / 3600
            for each, price in zip(left, prices, strict=True)
            if price
        ]
        if not spent and None not in prices:
            return
        currency = clusters[left[0].plan.spec.cluster].currency
        runs = count_text(len(left), "run")
        text = f"about {money_text(sum(spent), currency)} for all {runs}"
        if not spent:
            text = f"unknown for all {runs}: no price of these nodes is known"
        elif None in prices:
            text += "; the price of some nodes is not known"
        else:
            text += f", {money_text(MOST_TIMES * sum(spent), currency)} at most"
        console.say(f"price     {text}")
        console.say(f"          a run is ended after {MOST_TIMES} times its time")
        if not self._wish.yes and not console.confirm(f"This spends money: {text}. Start them?"):
            message = "not started"
            raise Refused(message, hint="--nodes with fewer sizes costs less")

    def _reckoned_s(self) -> float:
        """Reckon the time of a run: its start, its warm-up and the time that is measured."""
        start_s = LOCAL_START_S if self._engine.environment.workspace.is_folder else CLOUD_START_S
        return start_s.middle + WARM_UP_S + self._wish.measure_s

    def _limit_s(self, plan: Plan) -> float | None:
        """Give the time after which a run is ended; None where its nodes are free."""
        price = self._engine.environment.clusters[plan.spec.cluster].price_per_node_hour
        return None if price == 0 else MOST_TIMES * self._reckoned_s()

    def _measure(self, each: Planned) -> None:
        """Measure one size by a run; what fails is noted and the others go on."""
        engine, limit_s = self._engine, self._limit_s(each.plan)
        point = self._points.get(each.size) or Point(size=each.size)
        before = read_cpu_times()
        try:
            handle = self._handle_of(point)
            if handle is None:
                point = replace(self._foreseen(each), tag=token_hex(8))
                self._keep(point)
                handle = submit(engine, each.plan, self._secrets, point.tag or "", limit_s)
            point = replace(point, run=handle.id, tag=None)
            self._keep(point)
            console.say(f"{each.size}: {handle.id}")
            is_late = watch(engine, handle, self._wish.measure_s, limit_s)
            found = measured(engine, point, handle)
        except KeyboardInterrupt:
            self._keep(replace(point, run=None))
            raise
        except LaunchError as error:
            self._error = self._error or error
            console.warn(f"{each.size}: {error.message}")
            if point.run is not None:
                end = shlex.join(["launch", "cancel", point.run, *self._wish.stack])
                console.warn(f"{point.run} may go on: the same command follows it, `{end}` ends it")
            return
        if engine.environment.workspace.is_folder:
            ranks = each.plan.spec.nodes * each.plan.spec.processes_per_node
            why = disturbance(before, read_cpu_times(), num_ranks=ranks)
            found = replace(found, disturbed=why)
        if found.why and is_late:
            found = replace(found, why=f"{found.why}; it {late_text(self._reckoned_s())}")
        self._keep(found)
        remember(engine, handle)
        if found.why:
            console.warn(f"{each.size}: {found.why}")

    def _handle_of(self, point: Point) -> RunHandle | None:
        """Find the run that a bench before has begun for a size; None where it has to begin anew."""
        if point.run is None and point.tag is not None:
            return find_tagged(self._engine, point.tag)
        if point.run is None or point.why is not None:
            return None
        try:
            return self._engine.store.find(point.run)
        except LaunchError:
            return None

    def _foreseen(self, each: Planned) -> Point:
        """Foresee the rate of a size by the runs before, those of this bench included."""
        spec = each.plan.spec
        cluster = self._engine.environment.clusters[spec.cluster]
        price = cluster.price_per_node_hour
        point = Point(
            size=each.size,
            price_per_hour=price * spec.nodes if price else None,
            currency=cluster.currency,
        )
        rate = self._foreseen_rate(each)
        if rate is None:
            return point
        return replace(
            point, predicted=rate.middle, predicted_low=rate.low, predicted_high=rate.high
        )

    def _foreseen_rate(self, each: Planned) -> Band | None:
        environment, past = self._engine.environment, past_runs(self._engine)
        if each.size.scaling == "weak":
            found = foresee(each.plan.spec, environment, past).forecast
            return found.rate if found else None
        first = self._planned[0]
        measured_first = self._points.get(first.size)
        if measured_first is None or not measured_first.batch:
            return None
        return foresee_divided(
            each.plan.spec,
            environment,
            past,
            whole=first.plan.spec,
            batch=measured_first.batch,
        )

    def _keep(self, point: Point) -> None:
        self._points[point.size] = point
        kept = Kept(key=self._key, points=tuple(self._points.values()))
        content = msgspec.json.format(msgspec.json.encode(kept))
        _write(self._wish.folder / STATE, content)

    def _read_state(self) -> dict[Size, Point]:
        """Read what was measured before; raises LaunchError for a folder of another job."""
        path = self._wish.folder / STATE
        try:
            kept = parse_json(read_small(path, _MOST_STATE_BYTES), Kept)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            message = f"`{path}` cannot be read: {error}"
            raise LaunchError(message, hint="--into another folder, or remove it") from None
        if kept.key != self._key:
            message = f"`{self._wish.folder}` holds the bench of another job, or of other arguments, nodes, image or data"
            raise LaunchError(message, hint="--into another folder")
        return {each.size: each for each in kept.points}

    def _write_report(self) -> None:
        rows = self._rows()
        if not any(row.point.rate for row in rows):
            return
        from jobs.runs.scaling_picture import draw_scaling

        spec = self._planned[0].plan.spec
        folder = self._wish.folder
        cluster = self._engine.environment.clusters[spec.cluster]
        title = f"Scaling of {spec.name} on {cluster.size or spec.cluster}"
        _write(folder / CSV, csv_text(rows).encode())
        _write(folder / PAGE, markdown(title, self._about(), rows, PICTURE).encode())
        draw_scaling(title, rows, folder / PICTURE)

    def _about(self) -> list[str]:
        spec = self._planned[0].plan.spec
        cluster = self._engine.environment.clusters[spec.cluster]
        gpus = f", {count_text(cluster.gpus_per_node, 'GPU')}" if cluster.gpus_per_node else ""
        return [
            f"`{' '.join(spec.command)}`",
            f"nodes: {cluster.size or 'this machine'}, {count_text(cluster.cpus_per_node, 'core')}{gpus}",
            f"measured {time.strftime('%Y-%m-%d', time.gmtime())}: median of windows without warm-up and "
            "pauses, 95 % interval; predicted before each run from the runs before it",
        ]


def say_scaled(found: Scaled) -> None:
    """Print a report."""
    currency = next((row.point.currency for row in found.rows if row.point.currency), None)
    console.out(report_table(found.rows, currency))
    if any(row.shares for row in found.rows):
        cells = [[str(row.point.size), *share_cells(row)] for row in found.rows if row.shares]
        console.out(
            "\n" + console.table(["STEP", *(part.upper() for part in PARTS), "TOGETHER"], cells)
        )
    remarks = [f"{row.point.size}: {each}" for row in found.rows for each in row.notes]
    if remarks:
        console.say("\n" + "\n".join(remarks))
    console.say(f"\nreport: {Path(found.folder, PAGE)}, {CSV}, {PICTURE}")


def sizes_of(nodes: Sequence[int], processes: Sequence[int], *, is_strong: bool) -> list[Size]:
    """List the sizes to measure, fewest ranks first; strong ones beside all but the smallest."""
    weak = sorted(
        (Size(nodes=n, processes_per_node=p) for n in set(nodes) for p in set(processes)),
        key=lambda each: (each.ranks, each.nodes),
    )
    strong = [replace(each, scaling="strong") for each in weak[1:]] if is_strong else []
    return [*weak, *strong]


def bench_key(spec: JobSpec, clusters: Mapping[str, Cluster]) -> str:
    """Name what all sizes of a bench share: the job, its versions of image and data, the nodes.

    `spec` is that of the smallest size, whose command is not divided.
    """
    cluster = clusters[spec.cluster]
    digests = sorted(each.dataset.digest for each in spec.inputs.values() if not each.source)
    place = [spec.cluster, cluster.size, cluster.priority, spec.priority]
    return content_key([job_key(spec), spec.image, *place, *digests])


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror or error}"
        raise LaunchError(message, hint="--into a folder that can be written") from None
