"""What runs before tell of the next one: its speed, its work, and the layout that keeps a wish."""

from math import exp, isfinite, sqrt

import pytest
from msgspec.structs import replace

from jobs.contracts.spec import (
    DatasetVersion,
    InputSpec,
    JobFile,
    JobRetry,
    ResumePoint,
)
from jobs.foresight.work import Limit
from jobs.host.console import duration_text
from jobs.launching.forecast_text import chosen_text, forecast_pairs, none_text
from jobs.launching.foresee import Foreseen, foresee, foresee_divided
from jobs.launching.layout import choose_layout
from jobs.launching.speeds import Speeds
from jobs.runs.past import PastRun, job_key
from jobs.stacks.cost import money_text
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_cluster, make_environment, make_spec
from tests.seeds import dice

RUN = "20261123-120000-{:04d}"
SIZE = "Standard_NC24s_v3"
GPUS = replace(
    make_cluster(nodes=8),
    size=SIZE,
    gpus_per_node=4,
    cpus_per_node=24,
    price_per_node_hour=12.0,
    currency="USD",
)
SPOT = replace(GPUS, priority="low_priority", price_per_node_hour=3.0)
CPUS = replace(make_cluster(nodes=4), cpus_per_node=4)
WORDS = ["python", "t.py", "--epochs", "2"]
SPEC = make_spec(WORDS, cluster="gpu", processes_per_node=4, launcher="torch")
CLOUD = make_cloud_environment(clusters={"gpu": GPUS, "spot": SPOT})


def past(number=1, **given):
    usual = {"nodes": 1, "processes_per_node": 4, "rate": 1000.0, "total": 3.6e6, "epochs": 1.0}
    usual |= {"size": SIZE, "gpus_per_node": 4, "cores_per_node": 24, "batch": 256.0}
    usual |= {"prepare_s": 240.0, "start_s": 60.0, "parameters": 25e6, "key": job_key(SPEC)}
    return PastRun(**{"run": RUN.format(number)} | usual | given)


def on_cpus(processes, rate, **given):
    sizes = {"size": "local", "gpus_per_node": 0, "cores_per_node": 4}
    return past(processes_per_node=processes, rate=rate, batch=None, **sizes, **given)


# --- Speeds -----------------------------------------------------------------------------------


def test_a_size_that_was_measured_has_its_rate_and_a_narrow_band():
    found = Speeds([past(), past(2, rate=1020.0)], GPUS, 4, ()).at(1).rate
    assert found.middle == pytest.approx(1010, rel=0.02)
    assert 1.05 < found.high / found.low < 1.5


def test_the_newest_runs_of_a_size_make_its_rate():
    newest = [past(number) for number in range(9, 4, -1)]
    old = past(1, rate=3000.0)
    assert Speeds([*newest, old], GPUS, 4, ()).at(1) == Speeds(newest, GPUS, 4, ()).at(1)
    assert Speeds([*newest[1:], old], GPUS, 4, ()).at(1) != Speeds(newest, GPUS, 4, ()).at(1)


def test_a_size_between_nodes_that_was_never_measured_is_wide_and_says_why():
    found = Speeds([past()], GPUS, 4, ()).at(2)
    assert found.why_wide is not None
    assert found.rate.high / found.rate.low >= 1.5
    assert 1000 < found.rate.middle < 2000


def test_runs_that_disagree_make_a_wide_band():
    steady = Speeds([past(1), past(2)], GPUS, 4, ()).at(1).rate
    noisy = Speeds([past(1), past(2, rate=2000.0)], GPUS, 4, ()).at(1).rate
    assert noisy.high / noisy.low > 1.5 * steady.high / steady.low


def test_published_rates_tell_of_links_that_no_run_has_used():
    one = past(processes_per_node=1, rate=350.0, batch=64.0)
    command = ["--batch-per-rank", "64"]
    [alone, two, eight] = [Speeds([one], GPUS, 4, command).at(nodes) for nodes in (1, 2, 8)]
    assert (alone.source, two.source) == (None, "published rates of 2018")
    # ResNet-50 on 32 V100s over Ethernet: 4,269 there, with 349.5 on one.
    assert eight.rate.low <= 4269 <= eight.rate.high
    assert eight.rate.high / eight.rate.low < 1.4
    [unknown] = [Speeds([one], replace(GPUS, size="Standard_X"), 4, command).at(8)]
    assert unknown.rate.high / unknown.rate.low > 5
    [own] = [Speeds([one, past(nodes=2, rate=1900.0, batch=512.0)], GPUS, 4, command).at(8)]
    assert own.source is None


def check(bus_gb_per_s, **given):
    usual = {"rate": None, "total": None, "epochs": None, "nodes": 2, "latency_s": 1e-4}
    usual |= {"key": "c" * 16}
    return past(9, bus_gb_per_s=bus_gb_per_s, **usual | {"node_bus_gb_per_s": 20.0} | given)


def test_a_check_of_the_network_tells_of_links_that_no_run_has_used():
    one, command = past(processes_per_node=1, rate=350.0, batch=64.0), ["--batch-per-rank", "64"]
    [slow, fast] = [Speeds([one], GPUS, 4, command, [check(bus)]).at(8) for bus in (0.5, 20.0)]
    assert slow.source == fast.source == f"the check of the network {RUN.format(9)}"
    # 100 MB at 0.5 GB/s twice over take 0.4 s; 64 samples 0.18 s.
    assert slow.rate.middle == pytest.approx(32 * 64 / 0.5, rel=0.15)
    assert fast.rate.low > 0.8 * 32 * 350
    for found in (slow, fast):
        assert (found.why_wide, found.rate.high / found.rate.low < 1.55) == (None, True)


def other(number, nodes, rate, **given):
    usual = {"key": "d" * 16, "parameters": 60e6, "batch": 64.0 * 4 * nodes}
    return past(number, nodes=nodes, rate=rate, **usual | given)


def test_other_jobs_tell_of_links_that_no_run_has_used():
    # 240 MB: 0.74 s of which 0.35 s are computed, at some 1.1 ms/MB.
    others = [other(8, 2, 8 * 64 / 0.74), other(7, 1, 4 * 64 / 0.37)]
    others += [other(6, 1, 64 / 0.35, processes_per_node=1, batch=64.0)]
    one, command = past(processes_per_node=1, rate=350.0, batch=64.0), ["--batch-per-rank", "64"]
    found = Speeds([one], GPUS, 4, command, others).at(2)
    assert found.source == f"runs of other jobs, the newest {RUN.format(8)}"
    assert (found.why_wide, found.rate.high / found.rate.low < 1.5) == (None, True)
    # 100 MB take 0.19 to 0.22 s, of which some 0.1 s are hidden behind 0.18 s.
    assert found.rate.middle == pytest.approx(8 * 64 / 0.29, rel=0.15)
    assert Speeds([one], GPUS, 4, command, [check(1.0), *others]).at(2) == found
    lone = [replace(each, nodes=1, batch=256.0) for each in others]
    told = [Speeds([one], GPUS, 4, command, each).at(2) for each in (lone, [])]
    assert told[0] == told[1]


@pytest.mark.parametrize("lack", ["rate", "batch", "parameters"])
def test_other_jobs_that_do_not_tell_all_of_it_are_left_out(lack):
    one = past(processes_per_node=1, rate=350.0, batch=64.0)
    found = Speeds([one], GPUS, 4, (), [replace(other(8, 2, 700.0), **{lack: None})]).at(2)
    assert found.source == "published rates of 2018"


def test_a_forecast_takes_the_newest_check_between_such_nodes():
    environment = make_cloud_environment(clusters={"gpu": GPUS})
    other = check(1.0, size="Standard_X", run=RUN.format(12))
    alone = check(1.0, nodes=1, run=RUN.format(11))
    newest = check(1.0, run=RUN.format(10))
    one = past(processes_per_node=1, rate=350.0, batch=64.0)
    spec = replace(SPEC, nodes=2)
    found = foresee(spec, environment, [other, alone, newest, check(9.0), one])
    assert found.forecast is not None
    assert found.forecast.source == f"the check of the network {RUN.format(10)}"
    assert dict(forecast_pairs(found, spec, GPUS))["known by"].endswith(
        f"; none of this size; the exchange between nodes by {found.forecast.source}"
    )


def test_processes_that_share_cores_are_faster_by_a_power_that_runs_tell():
    [one, two, four] = [Speeds([on_cpus(1, 100.0)], CPUS, each, ()).at(1) for each in (1, 2, 4)]
    assert one.rate.middle == pytest.approx(100)
    assert two.rate.middle == pytest.approx(100 * 2**0.3)
    assert four.rate.middle == pytest.approx(100 * 4**0.3)
    assert (one.why_wide, two.why_wide) == (
        None,
        "processes share the cores of a node, and only 1 on one were measured",
    )
    known = [on_cpus(1, 100.0), on_cpus(2, 190.0)]
    assert Speeds(known, CPUS, 4, ()).at(1).rate.middle == pytest.approx(360, rel=0.05)
    assert Speeds(known, CPUS, 8, ()).at(1).rate == Speeds(known, CPUS, 4, ()).at(1).rate


@pytest.mark.parametrize(
    ("runs", "command", "batch"),
    [
        # One size: the command says whose batch it is.
        ([past()], ["--batch-per-rank", "64"], 64),
        ([past()], ["--per_device_train_batch_size=64"], 64),
        ([past()], ["--batch-size", "256"], 32),
        ([past()], [], 64),
        # Two sizes show it themselves.
        ([past(), past(2, nodes=2, rate=1900.0, batch=512.0)], ["--batch-size", "256"], 64),
        ([past(), past(2, nodes=2, rate=1900.0, batch=256.0)], ["--batch-per-rank", "64"], 32),
    ],
)
def test_the_batch_of_a_gpu_follows_what_is_known(runs, command, batch):
    assert Speeds(runs, GPUS, 4, command)._asked(2).batch_per_gpu == batch


def test_steps_are_counted_as_those_of_all_ranks():
    runs = [past(unit="step", rate=2.0, total=7200.0, batch=None, parameters=None)]
    found = foresee(replace(SPEC, command=("python", "t.py")), CLOUD, of_plain(runs)).forecast
    assert found is not None
    assert found.rate.middle == pytest.approx(2.0, rel=0.01)
    assert found.time_s is not None
    assert found.time_s.middle == pytest.approx(3600 + 300, rel=0.01)


def of_plain(runs):
    return [replace(each, key=job_key(replace(SPEC, command=("python", "t.py")))) for each in runs]


# --- Forecasts --------------------------------------------------------------------------------


def test_a_job_is_foreseen_from_a_run_of_half_its_epochs():
    found = foresee(SPEC, CLOUD, [past()])
    one = found.forecast
    assert one is not None
    assert one.time_s is not None
    assert one.cost is not None
    assert one.gpu_hours is not None
    # 7.2 million samples at 1,000/s, and 300 s before.
    assert one.time_s.middle == pytest.approx(7500, rel=0.01)
    assert one.cost.middle == pytest.approx(25.0, rel=0.01)
    assert one.gpu_hours.middle == pytest.approx(4 * 7500 / 3600, rel=0.01)
    assert one.time_s.low < 7200
    assert one.time_s.high > 7800
    assert (one.binds, found.is_measured, found.runs) == (Limit.COMPUTE, True, (RUN.format(1),))
    assert found.twice_the_nodes is not None
    assert 1 < found.twice_the_nodes.faster < 2


@pytest.mark.parametrize(
    "change",
    [{"key": "0" * 16}, {"rate": None}, {"size": "Standard_ND96asr_v4"}, {"cores_per_node": 12}],
)
def test_runs_of_other_jobs_and_on_other_nodes_tell_nothing(change):
    found = foresee(SPEC, CLOUD, [past(**change)])
    why = "not known: no run of this job on Standard_NC24s_v3 has told its rate"
    assert found == Foreseen(unknown=f"{why}; run it once, e.g. with --nodes 1")


def test_a_job_that_never_ran_is_foreseen_by_the_published_rate_of_such_a_gpu():
    spec = replace(SPEC, command=("python", "-m", "trainer.pytorch.resnet50"), nodes=1)
    found = foresee(spec, CLOUD, [])
    one = found.forecast
    assert one is not None
    told = "367 images/s of resnet50 on one V100 in fp32 (NVIDIA's DeepLearningExamples, 2021)"
    assert (found.published, found.runs, found.num_runs) == (told, (), 0)
    assert 3 * 367 < one.rate.middle <= 4 * 367
    assert 3.9 < one.rate.high / one.rate.low < 6
    assert (one.time_s, one.why_wide) == (None, "this job never ran on Standard_NC24s_v3")
    pairs = dict(forecast_pairs(found, spec, GPUS))
    assert pairs["known by"].startswith(f"{told}, half to twice of it; run it once, e.g. ")
    assert pairs["known by"].endswith("wide band: this job never ran on Standard_NC24s_v3")
    # One run of its own, and nothing published counts.
    own = past(key=job_key(spec), rate=700.0)
    ran = foresee(spec, CLOUD, [own])
    assert (ran.published, ran.runs) == (None, (own.run,))
    assert foresee(replace(spec, launcher="none"), CLOUD, []).forecast is None
    on_cpus = make_cloud_environment(clusters={"gpu": replace(GPUS, gpus_per_node=0)})
    assert foresee(spec, on_cpus, []).forecast is None


def test_a_resumed_job_has_a_rate_and_no_time():
    resumed = replace(SPEC, resume=ResumePoint(run=RUN.format(1), step=5))
    found = foresee(resumed, CLOUD, [past()]).forecast
    assert found is not None
    assert (found.rate.middle, found.time_s) == (pytest.approx(1000, rel=0.01), None)


def with_input(mode, size):
    version = DatasetVersion(name="d", version=1, digest="0" * 64, files=1, bytes=int(size))
    return replace(SPEC, inputs={"d": InputSpec(dataset=version, mode=mode)})


def test_a_divided_batch_is_foreseen_by_runs_that_were_not_divided():
    runs = [past(1), past(2, nodes=2, rate=1900.0, batch=512.0)]
    two = replace(SPEC, nodes=2, command=("python", "t.py", "--batch", "32"))

    def rate(batch, runs=runs):
        found = foresee_divided(two, CLOUD, runs, whole=SPEC, batch=batch)
        return found and found.middle

    assert rate(512.0) == pytest.approx(1900, rel=0.02)
    # A quarter of the samples hides a quarter as much of the exchange.
    assert rate(64.0) < 0.9 * rate(256.0) < 0.9 * 2000
    assert rate(256.0, []) is None
    assert rate(256.0, [replace(each, unit="step") for each in runs]) is None
    assert rate(256.0, [replace(each, batch=None) for each in runs]) is None


def test_a_streamed_set_is_limited_by_the_store_from_some_nodes_on():
    # 3.6 TB in 3.6 million samples: 1 MB each, of which the store serves 6,250 a second.
    spec = with_input("stream", 3.6e12)
    runs = [
        past(number, nodes=nodes, rate=980.0 * nodes, key=job_key(spec), start_s=0.0, prepare_s=5.0)
        for number, nodes in ((1, 1), (2, 4), (3, 8))
    ]
    found = foresee(spec, CLOUD, runs)
    assert found.forecast is not None
    assert found.next_limit is not None
    assert (found.next_limit.nodes, found.next_limit.limit) == (7, Limit.STORE)


def test_a_streamed_set_is_limited_by_the_line_of_a_node():
    # 14.4 TB in 3.6 million samples: 4 MB each, of which a line of 3 GB/s brings 750 a second.
    spec = with_input("stream", 14.4e12)
    found = foresee(spec, CLOUD, [past(key=job_key(spec))]).forecast
    assert found is not None
    assert (found.binds, found.rate.middle) == (Limit.LINE, pytest.approx(750))


def test_what_the_store_gave_a_node_counts_before_what_is_published():
    # 1 MB a sample; the page of the size says 3 GB/s.
    spec = with_input("stream", 3.6e12)
    rates = [2e8, 9e8, 4e8, 3e7]
    runs = [
        past(number, key=job_key(spec), node_bytes_per_s=rate, nodes=4 if rate == 3e7 else 1)
        for number, rate in enumerate(rates)
    ]
    found = foresee(spec, CLOUD, runs).forecast
    assert found is not None
    assert (found.binds, found.rate.middle) == (Limit.LINE, pytest.approx(400))


def test_a_store_that_gave_more_than_is_published_may_do_so_again():
    spec = with_input("stream", 36e12)  # 10 MB a sample; 6.25 GB/s are published
    runs = [
        past(number, key=job_key(spec), nodes=nodes, rate=990.0 * nodes, node_bytes_per_s=1e10)
        for number, nodes in enumerate((1, 2, 4))
    ]
    found = foresee(replace(spec, nodes=8), CLOUD, runs).forecast
    assert found is not None
    assert found.rate.middle == pytest.approx(4e10 / 1e7)


def test_a_download_is_a_part_of_the_start_that_was_measured():
    # 600 GB over 3 GB/s: 200 of the 300 s.
    spec = with_input("download", 6e11)
    found = foresee(spec, CLOUD, [past(key=job_key(spec))]).forecast
    assert found is not None
    assert found.time_s is not None
    assert found.time_s.middle == pytest.approx(7500, rel=0.01)


def test_checkpoints_take_the_time_that_training_stood_still_for_them():
    def seconds(**told):
        found = foresee(SPEC, CLOUD, [past(checkpoint_every_s=60.0, **told)]).forecast
        assert found is not None
        assert found.time_s is not None
        return found.time_s.middle

    share = seconds(checkpoint_blocking_s=6.0) / seconds()
    assert share == pytest.approx(1.1, abs=0.01)


def test_the_text_names_figures_bands_limit_and_source():
    found = foresee(SPEC, CLOUD, [past()])
    pairs = dict(forecast_pairs(found, SPEC, GPUS))
    assert list(pairs) == ["forecast", "binds", "twice", "known by"]
    assert pairs["forecast"].startswith("1,000 (946 to 1,057) samples/s, 2 h 5 min (")
    assert ", 25.00 USD (" in pairs["forecast"]
    assert pairs["forecast"].endswith("), 8.33 GPU-hours")
    more = found.twice_the_nodes
    assert pairs["twice"] == f"with 2 nodes: {more.faster:.3g}x faster, {more.dearer:.3g}x dearer"
    assert pairs["known by"] == f"1 run of this job, the newest {RUN.format(1)}"


# --- Layouts ----------------------------------------------------------------------------------

JOB = JobFile(name="test", image="test", script="t.py", processes_per_node=4, launcher="torch")
RUNS = [past(number, nodes=nodes, rate=950.0 * nodes) for number, nodes in enumerate((1, 2, 4, 8))]


def chosen(job=JOB, runs=RUNS, num_nodes=None, **wish):
    usual = {"deadline_s": None, "budget": None}
    return choose_layout(job, SPEC, CLOUD, runs, num_nodes=num_nodes, **usual | wish)


def test_a_deadline_takes_the_cheapest_nodes_that_keep_it():
    one = chosen(deadline_s=3600).chosen
    assert one is not None
    assert one.time_s is not None
    # 7.2 million samples at 950/s a node: two nodes are too late, three are not.
    assert (one.cluster, one.nodes) == ("gpu", 3)
    text = chosen_text(one, GPUS, by_deadline=True)
    start = "chose 3 nodes of cluster `gpu` (dedicated), the cheapest that keeps the deadline in 19 of 20 cases: "
    assert one.time_s.middle < one.time_s.high <= 3600
    most = f"{duration_text(one.time_s.high)} at most, {money_text(one.cost.high, 'USD')}"
    assert text == start + most


def test_low_priority_nodes_are_chosen_where_the_job_may_be_restarted():
    job = replace(JOB, retry=JobRetry(max=9))
    one = chosen(
        job, [replace(each, checkpoint_every_s=600.0) for each in RUNS], deadline_s=5400
    ).chosen
    assert one is not None
    assert (one.cluster, one.restarts > 0) == ("spot", True)
    assert chosen(JOB, deadline_s=5400).chosen.cluster == "gpu"


@pytest.mark.parametrize(("most", "cluster"), [(1, "gpu"), (2, "spot")])
def test_a_job_may_be_restarted_more_often_than_is_expected(most, cluster):
    # 29 million samples at 950/s and 0.05 evictions an hour: 0.4 are expected, in 1 of 20 cases 1.5.
    runs = [replace(each, total=1.44e7, checkpoint_every_s=600.0) for each in RUNS]
    job = replace(JOB, retry=JobRetry(max=most))
    assert chosen(job, runs, num_nodes=1, deadline_s=99_999).chosen.cluster == cluster


def test_a_budget_takes_the_fastest_nodes_that_keep_it():
    one, all_of_them = chosen(budget=30.0).chosen, chosen(budget=300.0).chosen
    assert one is not None
    assert all_of_them is not None
    assert one.cost.high <= 30 < one.cost.high * 1.2
    assert (one.nodes < 8, all_of_them.nodes) == (True, 8)


def test_what_the_user_has_fixed_is_kept():
    assert chosen(num_nodes=8, deadline_s=9000).chosen.nodes == 8
    fixed = replace(JOB, cluster="spot", retry=JobRetry(max=99))
    assert chosen(fixed, deadline_s=20_000).chosen.cluster == "spot"


def test_a_job_that_never_ends_has_no_number_of_restarts():
    slow = replace(SPEC, cluster="spot")
    runs = [past(rate=1.0, total=3.6e6)]
    found = foresee(slow, CLOUD, runs)
    assert found.forecast is not None
    assert not isfinite(found.forecast.restarts)
    pairs = dict(forecast_pairs(found, slow, SPOT))
    assert list(pairs) == ["forecast", "binds", "known by"]
    assert "no end: nodes are taken away sooner" in pairs["forecast"]


def test_of_processes_that_nothing_connects_only_sizes_that_ran_are_foreseen():
    alone = replace(SPEC, launcher="none")
    runs = [replace(each, key=job_key(alone)) for each in RUNS[:2]]
    assert foresee(replace(alone, nodes=4), CLOUD, runs) == Foreseen(
        unknown="not known: nothing connects the processes, and no run had as many of them"
    )
    known = foresee(replace(alone, nodes=2), CLOUD, runs)
    assert known.forecast is not None
    assert (known.next_limit, known.twice_the_nodes) == (None, None)
    wish = {"num_nodes": None, "deadline_s": None, "budget": 1e6}
    found = choose_layout(replace(JOB, launcher="none"), alone, CLOUD, runs, **wish).chosen
    assert found is not None
    assert found.nodes == 2


def test_where_no_layout_keeps_it_the_nearest_is_named():
    found = chosen(deadline_s=600)
    assert found.chosen is None
    text = none_text(found, CLOUD.clusters)
    near = "nearest is 8 nodes of cluster `gpu` (dedicated): "
    assert text.startswith(f"none: no layout keeps it in 19 of 20 cases; {near}")
    nothing = none_text(chosen(runs=[], deadline_s=600), CLOUD.clusters)
    assert nothing == "none: no run of this job has told its rate on a cluster that it may run on"
    low = none_text(chosen(replace(JOB, cluster="spot"), deadline_s=9000), CLOUD.clusters)
    assert low == (
        "none: nodes may be taken away more often than `retry.max` allows, "
        "least of all 1 node of cluster `spot` (low priority)"
    )
    aimless = [replace(each, total=None) for each in RUNS]
    assert none_text(chosen(runs=aimless, deadline_s=600), CLOUD.clusters) == (
        "none: no run of this job has told yet how much work it is"
    )


@pytest.mark.parametrize("num_cases", [25, 150])
def test_figures_of_anybody_never_break_a_forecast(tmp_path, num_cases):
    source = dice(3)
    environment = replace(make_environment(tmp_path), clusters={"gpu": GPUS, "cpu": CPUS})
    for _ in range(num_cases):
        cluster = source.choice(["gpu", "cpu"])
        nodes = environment.clusters[cluster]

        def figure():
            return source.choice([None, exp(source.uniform(-20, 34)), 1e15, 1e-15])

        runs = [
            past(
                number,
                rate=figure() or 1.0,
                total=figure(),
                epochs=figure(),
                batch=figure(),
                parameters=figure(),
                start_s=source.choice([None, 0.0, 1e9]),
                checkpoint_every_s=figure(),
                decoded_per_core=figure(),
                nodes=source.choice([1, 2, 1_000_000]),
                processes_per_node=source.choice([1, 4, 1_000_000]),
                unit=source.choice(["sample", "step", "epoch"]),
                size=nodes.size,
                gpus_per_node=nodes.gpus_per_node,
                cores_per_node=nodes.cpus_per_node,
            )
            for number in range(source.randint(1, 4))
        ]
        spec = replace(SPEC, cluster=cluster)
        found = foresee(spec, environment, runs)
        assert found.forecast is not None
        rate = found.forecast.rate
        assert 0 < rate.low <= rate.middle <= rate.high
        assert isfinite(sqrt(rate.middle))
        assert forecast_pairs(found, spec, nodes)
