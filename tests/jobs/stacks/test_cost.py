"""The cost of a job is told before, while and after it is on."""

from __future__ import annotations

import msgspec
import pytest

from jobs.contracts.spec import Limits, RunState, RunStatus
from jobs.runs.outcome import AttemptBrief
from jobs.stacks.cost import Spent, money_text, price_text, spent, spent_text
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec

ENVIRONMENT = make_cloud_environment()


def priced(price, as_of=None):
    clusters = {
        name: msgspec.structs.replace(
            each, price_per_node_hour=price, currency="USD" if price else None, price_as_of=as_of
        )
        for name, each in ENVIRONMENT.clusters.items()
    }
    return msgspec.structs.replace(ENVIRONMENT, clusters=clusters)


def status(**changes):
    made = RunStatus(
        id="r1",
        name="job",
        state=RunState.COMPLETED,
        reason=None,
        exit_code=0,
        stack="dev",
        cluster="cpu",
        nodes=2,
        world_size=4,
        created="2026-01-02T03:00:00Z",
        started="2026-01-02T03:00:00Z",
        ended="2026-01-02T04:00:00Z",
        run_dir="/r1",
    )
    return msgspec.structs.replace(made, **changes)


def attempt(started, ended):
    return AttemptBrief(
        name="r1", started=started, ended=ended, state=RunState.COMPLETED, reason=None
    )


TWICE = [
    attempt("2026-01-02T03:00:00Z", "2026-01-02T03:15:00Z"),
    # An hour of waiting costs nothing.
    attempt("2026-01-02T04:15:00Z", "2026-01-02T04:30:00Z"),
]


@pytest.mark.parametrize(
    ("price", "wall_clock_s", "as_of", "text"),
    [
        (None, None, None, "unknown"),
        (0.0, 3600, None, "free"),
        (4.5, None, None, "9.00 USD/h"),
        (0.27, 7200, None, "0.540 USD/h, at most 1.08 USD"),
        (0.27, 1, None, "0.540 USD/h, under 0.001 USD"),
        (4.5, 1800, "2026-06-18", "9.00 USD/h, at most 4.50 USD (list price of 2026-06-18)"),
    ],
)
def test_a_price_says_what_it_may_come_to_and_how_old_it_is(price, wall_clock_s, as_of, text):
    spec = msgspec.structs.replace(
        make_spec(["true"]), nodes=2, limits=Limits(wall_clock_s=wall_clock_s, hang_s=60)
    )
    assert price_text(spec, priced(price, as_of).clusters["cpu"]) == text


def test_a_run_costs_the_time_of_all_its_attempts():
    cost = spent(status(), TWICE, priced(3.0, "2026-06-18"))
    assert cost == Spent(
        amount=3.0,
        currency="USD",
        num_nodes=2,
        ran_s=1800.0,
        price_per_node_hour=3.0,
        price_as_of="2026-06-18",
    )
    assert spent_text(cost) == (
        "about 3.00 USD (2 nodes x 30 min at 3.00 USD/h, list price of 2026-06-18)"
    )


def test_a_run_of_an_instant_has_cost_something():
    cost = spent(status(), [attempt("2026-01-02T03:00:00Z", "2026-01-02T03:00:01Z")], priced(0.3))
    assert cost is not None
    assert spent_text(cost) == "under 0.001 USD (2 nodes x 1.0 s at 0.300 USD/h)"


def test_an_attempt_that_a_clock_set_back_ended_before_it_began_has_cost_nothing():
    backwards = attempt("2026-01-02T05:00:00Z", "2026-01-02T04:00:00Z")
    cost = spent(status(), [*TWICE, backwards], priced(3.0))
    assert cost is not None
    assert (cost.ran_s, cost.amount) == (1800.0, 3.0)


def test_a_run_that_is_on_costs_until_now():
    running = status(state=RunState.RUNNING, ended=None)
    cost = spent(running, [attempt("2026-01-02T03:00:00Z", None)], priced(1.0))
    assert cost is not None
    assert cost.ran_s > 3600


@pytest.mark.parametrize(
    ("price", "attempts", "cluster"),
    [(0.0, TWICE, "cpu"), (None, TWICE, "cpu"), (3.0, [], "cpu"), (3.0, TWICE, "gone")],
)
def test_what_is_free_unknown_or_never_began_has_no_cost(price, attempts, cluster):
    assert spent(status(cluster=cluster), attempts, priced(price)) is None


def test_small_amounts_have_three_digits_and_none_is_called_nothing():
    assert [money_text(each, "USD") for each in (0, 0.0009, 0.0955, 1.2345)] == [
        "0.00 USD",
        "under 0.001 USD",
        "0.096 USD",
        "1.23 USD",
    ]
