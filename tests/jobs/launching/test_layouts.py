"""The cheapest or fastest layout is that of looking at all numbers of nodes of all clusters."""

from __future__ import annotations

from math import inf, sqrt
from random import Random

import pytest
from msgspec.structs import replace

from jobs.contracts.spec import JobFile, JobRetry
from jobs.foresight.model import Term
from jobs.foresight.predict import NINE_OF_TEN
from jobs.foresight.work import Band, Speed
from jobs.launching.foresee import Outlook
from jobs.launching.layout import choose_layout
from jobs.launching.speeds import Speeds
from jobs.runs.past import PastRun, job_key
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_cluster, make_spec
from tests.seeds import dice

RUN = "20261123-120000-{:04d}"
SIZE = "Standard_NC24s_v3"
SPEC = make_spec(["python", "t.py"], cluster="gpu", processes_per_node=4, launcher="torch")
JOB = JobFile(name="test", image="test", script="t.py", processes_per_node=4, launcher="torch")


def past(number: int, nodes: int, source: Random) -> PastRun:
    return PastRun(
        run=RUN.format(number),
        key=job_key(SPEC),
        size=SIZE,
        gpus_per_node=4,
        cores_per_node=24,
        nodes=nodes,
        processes_per_node=4,
        rate=1000.0 * nodes**0.9,
        total=10 ** source.uniform(6, 9),
        epochs=1.0,
        batch=256.0 * nodes,
        prepare_s=source.uniform(10, 900),
        start_s=source.uniform(1, 300),
        parameters=25e6,
        evaluation_s=source.choice([0.0, 20.0]),
        num_evaluations=source.choice([0, 90]),
        checkpoint_every_s=source.uniform(60, 3600),
        checkpoint_blocking_s=source.uniform(0, 10),
    )


def clusters_of(source: Random, most_nodes: int):
    price = source.uniform(1, 20)
    usual = {"size": SIZE, "gpus_per_node": 4, "cpus_per_node": 24, "currency": "USD"}
    dedicated = replace(
        make_cluster(nodes=source.randint(1, most_nodes)), price_per_node_hour=price, **usual
    )
    low = replace(
        make_cluster(nodes=source.randint(1, most_nodes)),
        price_per_node_hour=price * source.uniform(0.1, 0.9),
        priority="low_priority",
        **usual,
    )
    return {"gpu": dedicated, "spot": low}


def best_by_looking_at_all(job, environment, runs, deadline_s, budget):
    """Forecast every number of nodes of every cluster; an independent way to the same."""
    best, best_key = None, (inf, inf)
    for name, cluster in environment.clusters.items():
        outlook = Outlook(SPEC, environment, name, 4, runs, neighbours=runs)
        for nodes in range(1, cluster.max_nodes + 1):
            one = outlook.at(nodes)
            time_s, cost = one.time_s.high, one.cost.high
            if one.restarts + NINE_OF_TEN * sqrt(one.restarts) > job.retry.max:
                continue
            if time_s > (deadline_s or inf) or cost > (budget or inf):
                continue
            key = (time_s, cost) if deadline_s is None else (cost, time_s)
            if key < best_key:
                best, best_key = one, key
    return best


def wish_of(source: Random):
    deadline_s = 10 ** source.uniform(3.3, 5.5)
    budget = 10 ** source.uniform(0.5, 4)
    return source.choice([(deadline_s, None), (None, budget), (deadline_s, budget)])


def check_case(number: int, most_nodes: int):
    source = dice(f"layouts {number}")
    environment = make_cloud_environment(clusters=clusters_of(source, most_nodes))
    runs = [past(2, 2, source), past(1, 1, source)]
    job = replace(JOB, retry=JobRetry(max=source.choice([0, 3, 50])))
    deadline_s, budget = wish_of(source)
    found = choose_layout(
        job, SPEC, environment, runs, num_nodes=None, deadline_s=deadline_s, budget=budget
    )
    expected = best_by_looking_at_all(job, environment, runs, deadline_s, budget)
    assert found.chosen == expected
    return expected


@pytest.fixture
def quick(monkeypatch):
    """Let the speed follow a formula: what is tried here is what is made of it."""

    def at(self, nodes):
        rate = 900.0 * nodes ** (0.95 - nodes / 3000)
        band = Band(middle=rate, low=rate * 0.9, high=rate * 1.1)
        return Speed(rate=band, binds=Term.ACROSS, relieved=rate * 1.2)

    monkeypatch.setattr(Speeds, "at", at)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("num_cases", [50, 200])
def test_the_layout_is_that_of_looking_at_all(num_cases):
    chosen = [check_case(number, 300) for number in range(num_cases)]
    nodes = [each.nodes for each in chosen if each is not None]
    assert len(nodes) > 0.3 * num_cases
    assert sum(each > 64 for each in nodes) > 0.05 * num_cases


@pytest.mark.parametrize("number", range(3))
def test_the_layout_by_predicted_speeds_is_that_of_looking_at_all(number):
    check_case(number, 100)
