"""Choose the cluster and the nodes of a job by a deadline or a budget, and say why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

from jobs.contracts.errors import Refused
from jobs.contracts.spec import Environment, JobFile, JobSpec
from jobs.engines.base import Engine
from jobs.foresight.choose import Choice, choose
from jobs.foresight.predict import NINE_OF_TEN
from jobs.foresight.work import Forecast
from jobs.host import console
from jobs.jobfile.resolve import process_slots, size_on
from jobs.launching.forecast_text import chosen_text, none_text
from jobs.launching.foresee import Outlook, runs_like
from jobs.launching.known_runs import shared_past_runs
from jobs.launching.links import neighbours_of
from jobs.runs.past import PastRun

MOST_TRIED = 1024  # nodes one by one; beyond them doublings


def pick_layout(
    job: JobFile,
    spec: JobSpec,
    engine: Engine,
    *,
    num_nodes: int | None,
    deadline_s: float | None,
    budget: float | None,
) -> dict[str, str]:
    """Give the keys of the job file that place the job; raises Refused where no layout keeps both.

    Asks what other machines know of the job. `num_nodes` is the user's own choice.
    """
    environment = engine.environment
    past = shared_past_runs(engine, spec)
    choice = choose_layout(
        job, spec, environment, past, num_nodes=num_nodes, deadline_s=deadline_s, budget=budget
    )
    if choice.chosen is None:
        hint = "a longer --deadline or a larger --budget"
        if choice.nearest is None or choice.nearest.time_s is None:
            hint = "run it to its end once, then ask again"
        elif choice.lacks_retries:
            hint = "a larger `retry.max` with `preemption` in `retry.on`, or a dedicated cluster"
        elif budget is not None and choice.nearest.cost is None:
            hint = "no price is known of its nodes; --deadline needs none"
        raise Refused(none_text(choice, environment.clusters), hint=hint)
    one = choice.chosen
    console.say(
        chosen_text(one, environment.clusters[one.cluster], by_deadline=deadline_s is not None)
    )
    return {"nodes": str(one.nodes), "cluster": one.cluster}


def choose_layout(
    job: JobFile,
    spec: JobSpec,
    environment: Environment,
    past: Sequence[PastRun],
    *,
    num_nodes: int | None,
    deadline_s: float | None,
    budget: float | None,
) -> Choice:
    """Choose cluster and nodes (`num_nodes` if given) for a job; a cluster's nodes have one priority."""
    names = [job.cluster] if job.cluster else list(environment.clusters)
    tried: list[Forecast] = []
    for name in names:
        runs = runs_like(spec, environment, name, past)
        cluster = environment.clusters[name]
        _, processes = size_on(job, cluster)
        if not runs or processes > process_slots(cluster):
            continue
        others = neighbours_of(cluster, past)
        outlook = Outlook(spec, environment, name, processes, runs, neighbours=others)
        counts = [num_nodes] if num_nodes else _counts(cluster.max_nodes)
        if job.launcher == "none":  # nobody knows how processes share work that nothing connects
            counts = filter(outlook.speeds.has_measured, counts)
        tried += [outlook.at(count) for count in counts if count <= cluster.max_nodes]
    found = [each for each in tried if _is_restarted(job, each)]
    if tried and not found:
        nearest = min(tried, key=lambda each: each.restarts)
        return Choice(chosen=None, nearest=nearest, lacks_retries=True)
    return choose(found, deadline_s=deadline_s, budget=budget)


def _counts(most: int) -> Iterator[int]:
    yield from range(1, min(most, MOST_TRIED) + 1)
    count = 2 * MOST_TRIED
    while count < most:
        yield count
        count *= 2
    if most > MOST_TRIED:
        yield most


def _is_restarted(job: JobFile, found: Forecast) -> bool:
    """Tell whether the job's `retry` allows as many restarts as there may be."""
    most = job.retry.max if "preemption" in job.retry.on else 0
    return found.restarts + NINE_OF_TEN * sqrt(found.restarts) <= most
