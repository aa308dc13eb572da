"""Forecasts of constructed jobs, each figure worked out by hand."""

from math import inf

import msgspec
import pytest

from jobs.foresight.choose import choose
from jobs.foresight.forecast import forecast, takeover, twice
from jobs.foresight.model import Term
from jobs.foresight.work import Band, Checkpoints, Forecast, Limit, Place, Speed, Takeover, Work
from tests.seeds import dice

# 36,000 samples at 10/s a node: an hour.
WORK = {"samples": 36_000.0, "start_s": Band.sure(0.0)}
PLACE = {"cluster": "gpu", "processes_per_node": 4, "cores_per_node": 8}
MB = 1e6


def linear(nodes, **given):
    """A training of 10 samples/s a node, all of it compute."""
    speed = {"rate": Band.sure(10.0 * nodes), "binds": Term.COMPUTE, "relieved": 20.0 * nodes}
    return Speed(**speed | given)


def case(nodes=1, *, work=None, place=None, speed=None):
    return (
        Work(**WORK | (work or {})),
        Place(**PLACE | (place or {})),
        nodes,
        linear(nodes, **(speed or {})),
    )


def decoding(rate):
    return {"decoded_per_core": Band.sure(rate)}


def saving(**given):
    return {"checkpoints": Checkpoints(**given)}


STREAMED = {"sample_bytes": 2 * MB}
EXCHANGE = {"binds": Term.ACROSS, "relieved": 14.0}

# What it is about, the case, the limit, and the seconds of the whole job.
CASES = [
    # Nothing but the training: 36,000 / (10 n).
    ("compute", case(), Limit.COMPUTE, 3600),
    ("compute on four nodes", case(4), Limit.COMPUTE, 900),
    ("exchange between", case(2, speed={"binds": Term.ACROSS}), Limit.ACROSS, 1800),
    ("exchange inside", case(speed={"binds": Term.INSIDE}), Limit.INSIDE, 3600),
    ("waiting", case(4, speed={"binds": Term.SYNCHRONISATION}), Limit.SYNCHRONISATION, 900),
    # A loader of c samples/s on each of 8 cores.
    ("loader with room", case(work=decoding(1.5)), Limit.COMPUTE, 3600),
    ("loader at 8/s", case(work=decoding(1.0)), Limit.LOADER, 4500),
    ("loader on four nodes", case(4, work=decoding(1.0)), Limit.LOADER, 1125),
    (
        "loader, few cores",
        case(work=decoding(2.0), place={"cores_per_node": 4}),
        Limit.LOADER,
        4500,
    ),
    (
        "loader, many cores",
        case(work=decoding(1.0), place={"cores_per_node": 16}),
        Limit.COMPUTE,
        3600,
    ),
    # Samples of 2 MB over a node's line.
    (
        "line with room",
        case(work=STREAMED, place={"line_bytes_per_s": 30 * MB}),
        Limit.COMPUTE,
        3600,
    ),
    ("line of 8/s", case(work=STREAMED, place={"line_bytes_per_s": 16 * MB}), Limit.LINE, 4500),
    (
        "lines of four nodes",
        case(4, work=STREAMED, place={"line_bytes_per_s": 16 * MB}),
        Limit.LINE,
        1125,
    ),
    (
        "line not used",
        case(work={"sample_bytes": 0.0}, place={"line_bytes_per_s": 1.0}),
        Limit.COMPUTE,
        3600,
    ),
    # The store's bytes and requests are shared by all nodes.
    (
        "store with room",
        case(work=STREAMED, place={"store_bytes_per_s": 25 * MB}),
        Limit.COMPUTE,
        3600,
    ),
    ("store of 5/s", case(work=STREAMED, place={"store_bytes_per_s": 10 * MB}), Limit.STORE, 7200),
    (
        "store, four nodes",
        case(4, work=STREAMED, place={"store_bytes_per_s": 40 * MB}),
        Limit.STORE,
        1800,
    ),
    (
        "requests of 1 MB",
        case(work=STREAMED, place={"store_requests_per_s": 10.0, "request_bytes": MB}),
        Limit.STORE,
        7200,
    ),
    (
        "requests of 4 MB",
        case(work=STREAMED, place={"store_requests_per_s": 10.0, "request_bytes": 4 * MB}),
        Limit.COMPUTE,
        3600,
    ),
    # The slowest of two decides.
    (
        "line before loader",
        case(work=STREAMED | decoding(1.0), place={"line_bytes_per_s": 10 * MB}),
        Limit.LINE,
        7200,
    ),
    (
        "loader before line",
        case(work=STREAMED | decoding(0.5), place={"line_bytes_per_s": 10 * MB}),
        Limit.LOADER,
        9000,
    ),
    (
        "line before store",
        case(2, work=STREAMED, place={"line_bytes_per_s": 4 * MB, "store_bytes_per_s": 10 * MB}),
        Limit.LINE,
        9000,
    ),
    (
        "store before lines",
        case(4, work=STREAMED, place={"line_bytes_per_s": 4 * MB, "store_bytes_per_s": 10 * MB}),
        Limit.STORE,
        7200,
    ),
    # Half of what is before the first step, against half of the training.
    ("short start", case(work={"start_s": Band.sure(3500)}), Limit.COMPUTE, 7100),
    ("long start", case(work={"start_s": Band.sure(3700)}), Limit.START, 7300),
    ("start of many nodes", case(8, work={"start_s": Band.sure(500)}), Limit.START, 950),
    (
        "start before exchange",
        case(work={"start_s": Band.sure(2100)}, speed=EXCHANGE),
        Limit.START,
        5700,
    ),
    (
        "exchange before start",
        case(work={"start_s": Band.sure(2000)}, speed=EXCHANGE),
        Limit.ACROSS,
        5600,
    ),
    # 40 GB over 10 MB/s: 4,000 s.
    (
        "download",
        case(work={"download_bytes": 4e10}, place={"line_bytes_per_s": 10 * MB}),
        Limit.DATA,
        7600,
    ),
    (
        "short download",
        case(work={"download_bytes": 1e10}, place={"line_bytes_per_s": 10 * MB}),
        Limit.COMPUTE,
        4600,
    ),
    (
        "download shares the store",
        case(
            4,
            work={"download_bytes": 1e10},
            place={"line_bytes_per_s": 10 * MB, "store_bytes_per_s": 20 * MB},
        ),
        Limit.DATA,
        900 + 2000,
    ),
    (
        "download by each line",
        case(
            4,
            work={"download_bytes": 1e10},
            place={"line_bytes_per_s": 10 * MB, "store_bytes_per_s": 99 * MB},
        ),
        Limit.DATA,
        900 + 1000,
    ),
    # Six or sixty checkpoints in an hour.
    ("checkpoints", case(work=saving(every_s=600, blocking_s=60)), Limit.COMPUTE, 3960),
    ("many checkpoints", case(work=saving(every_s=60, blocking_s=62)), Limit.CHECKPOINTS, 7320),
    (
        "checkpoints that are late",  # 3 GB take 300 s, every 60 s
        case(work=saving(every_s=60, bytes=3e9), place={"line_bytes_per_s": 10 * MB}),
        Limit.CHECKPOINTS,
        3600 + 60 * 240,
    ),
    (
        "checkpoints in time",
        case(work=saving(every_s=600, bytes=3e9), place={"line_bytes_per_s": 10 * MB}),
        Limit.COMPUTE,
        3600,
    ),
    # Four ranks a node share each evaluation.
    (
        "evaluation",
        case(work={"num_evaluations": 10, "evaluation_s": Band.sure(1200)}),
        Limit.COMPUTE,
        6600,
    ),
    (
        "long evaluation",
        case(work={"num_evaluations": 10, "evaluation_s": Band.sure(1600)}),
        Limit.EVALUATION,
        7600,
    ),
    (
        "evaluation on four nodes",
        case(4, work={"num_evaluations": 10, "evaluation_s": Band.sure(1600)}),
        Limit.EVALUATION,
        1900,
    ),
    # The loader eased would meet the line: 4,500 - 4,000 s are less than half of the start.
    (
        "start behind two limits",
        case(
            work=STREAMED | decoding(1.0) | {"start_s": Band.sure(1100)},
            place={"line_bytes_per_s": 18 * MB},
        ),
        Limit.START,
        5600,
    ),
    ("endless work", case(work={"samples": 36e9}), Limit.COMPUTE, 36e8),
]


@pytest.mark.parametrize(
    ("about", "given", "limit", "time_s"), CASES, ids=[each[0] for each in CASES]
)
def test_the_limit_and_the_time_of_a_constructed_job(about, given, limit, time_s):
    found = forecast(*given)
    assert found.time_s is not None
    assert (found.binds, found.time_s.middle) == (limit, pytest.approx(time_s))
    assert found.node_hours == found.time_s.times(given[2] / 3600)


def test_forty_jobs_are_constructed():
    assert len(CASES) >= 40
    assert {each[2] for each in CASES} == set(Limit)


def test_a_forecast_has_all_figures_with_their_bands():
    work, place, nodes, speed = case(
        2,
        work={"start_s": Band(middle=300.0, low=180.0, high=420.0)},
        place={"price_per_node_hour": 3.0, "gpus_per_node": 4},
        speed={"rate": Band(middle=20.0, low=18.0, high=22.5)},
    )
    # Trained in 1,600 to 2,000 s: 200 less or more and 120 less or more make 233.24.
    assert msgspec.to_builtins(forecast(work, place, nodes, speed)) == {
        "cluster": "gpu",
        "nodes": 2,
        "processes_per_node": 4,
        "rate": {"middle": 20.0, "low": 18.0, "high": 22.5},
        "time_s": pytest.approx({"middle": 2100, "low": 1866.76, "high": 2333.24}, abs=0.01),
        "cost": pytest.approx({"middle": 3.5, "low": 3.1113, "high": 3.8887}, abs=1e-4),
        "node_hours": pytest.approx({"middle": 1.16667, "low": 1.0371, "high": 1.29624}, abs=1e-4),
        "gpu_hours": pytest.approx({"middle": 4.66667, "low": 4.1484, "high": 5.18497}, abs=1e-4),
        "binds": "compute",
        "restarts": 0.0,
        "why_wide": None,
        "source": None,
        "parts": {
            "start-up": 300.0,
            "training": pytest.approx(1800.0),
            "checkpoints": 0.0,
            "download of the data": 0.0,
            "evaluation": 0.0,
            "restarts": 0.0,
        },
    }


def test_work_that_nobody_knows_has_a_rate_alone():
    found = forecast(
        *case(work={"samples": None} | decoding(1.0), place={"price_per_node_hour": 1.0})
    )
    assert (found.rate, found.binds) == (Band.sure(8.0), Limit.LOADER)
    assert (found.time_s, found.cost, found.node_hours) == (None, None, None)


def test_evictions_cost_half_an_interval_and_a_start_each():
    # 1 an hour on each of two nodes; 300 + 60 s each: T = 1,860 + T / 1,800 * 360.
    given = case(
        2,
        work=saving(every_s=600) | {"start_s": Band.sure(60)},
        place={"evictions_per_node_hour": 1.0},
    )
    found = forecast(*given)
    restarts = 1860 / 1800 / 0.8
    assert found.time_s is not None
    assert found.restarts == pytest.approx(restarts)
    assert found.time_s.middle == pytest.approx(2325)
    assert found.time_s.low == pytest.approx(1860)  # fewer than none there cannot be
    assert found.time_s.high == pytest.approx(1860 + (restarts + 1.645 * restarts**0.5) * 360)


def test_work_without_checkpoints_that_is_taken_away_too_often_never_ends():
    found = forecast(*case(place={"evictions_per_node_hour": 2.0, "price_per_node_hour": 0.0}))
    assert (found.time_s, found.cost) == (Band.sure(inf), Band.sure(0.0))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # The store serves 47/s: the fifth node waits.
        (
            case(work=STREAMED, place={"store_bytes_per_s": 94 * MB}),
            Takeover(nodes=5, limit=Limit.STORE),
        ),
        # 3,600 / n is less than 250 from the 15th node on.
        (case(work={"start_s": Band.sure(250)}), Takeover(nodes=15, limit=Limit.START)),
        (case(), None),
        (case(3, work=decoding(1.0)), None),
    ],
)
def test_the_limit_that_takes_over_is_named_with_its_nodes(given, expected):
    work, place, nodes, _ = given
    assert takeover(work, place, nodes, linear) == expected


def test_twice_the_nodes_are_compared():
    work, place, _, _ = case(work={"start_s": Band.sure(360)})
    one, two = (forecast(work, place, nodes, linear(nodes)) for nodes in (1, 2))
    compared = twice(one, two)
    assert (compared.faster, compared.dearer) == pytest.approx((3960 / 2160, 2 * 2160 / 3960))
    known = [msgspec.structs.replace(each, time_s=None) for each in (one, two)]
    assert twice(*known).faster == pytest.approx(2.0)


# --- Which layout -----------------------------------------------------------------------------


def layout(cluster, nodes, time_s, cost):
    spread = Band(middle=time_s, low=0.8 * time_s, high=1.25 * time_s)
    return Forecast(
        cluster=cluster,
        nodes=nodes,
        processes_per_node=4,
        rate=Band.sure(1.0),
        time_s=spread,
        cost=Band(middle=cost, low=0.9 * cost, high=1.1 * cost),
        node_hours=None,
        gpu_hours=None,
        binds=Limit.COMPUTE,
        restarts=0.0,
        why_wide=None,
    )


def best_by_looking_at_all(candidates, deadline_s, budget):
    """Sort those that keep both by what is asked for; an independent way to the same."""
    kept = []
    for each in candidates:
        if deadline_s is not None and each.time_s.high > deadline_s:
            continue
        if budget is not None and each.cost.high > budget:
            continue
        time_and_cost = (each.time_s.high, each.cost.high)
        kept.append((time_and_cost if deadline_s is None else time_and_cost[::-1], each))
    kept.sort(key=lambda pair: pair[0])
    return kept[0][1] if kept else None


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_is_that_of_looking_at_all(seed):
    source = dice(seed)
    candidates = [
        layout(cluster, nodes, source.uniform(1, 100), source.uniform(1, 100))
        for cluster in ("dedicated", "low", "other")
        for nodes in range(1, source.randint(2, 12))
    ]
    wish = source.choice([(True, False), (False, True), (True, True)])
    deadline_s = source.uniform(1, 90) if wish[0] else None
    budget = source.uniform(1, 90) if wish[1] else None
    found = choose(candidates, deadline_s=deadline_s, budget=budget)
    expected = best_by_looking_at_all(candidates, deadline_s, budget)
    assert found.chosen == expected
    assert (found.nearest is None) == (expected is not None)


def test_a_choice_goes_by_the_slow_and_dear_ends():
    found = [layout("a", 1, 10, 10)]
    assert choose(found, deadline_s=12.5).chosen == found[0]
    assert choose(found, deadline_s=12.4).chosen is None
    assert choose(found, budget=11.01).chosen == found[0]
    assert choose(found, budget=10.9).chosen is None


def test_the_nearest_miss_goes_over_by_the_least_factor():
    late, dear = layout("a", 1, 100, 1), layout("a", 9, 10, 30)
    found = choose([late, dear], deadline_s=100, budget=11)
    assert (found.chosen, found.nearest) == (None, late)
    assert choose([], deadline_s=1) == choose([], budget=1)
