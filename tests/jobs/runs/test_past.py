"""Finished runs summed up, kept and read again, whoever wrote what is read."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from jobs.contracts.spec import RunState
from jobs.runs.past import (
    FILE,
    MOST_RUNS,
    PastRun,
    add_past_runs,
    job_key,
    read_past_runs,
)
from jobs.runs.run_folder import RunEvent
from jobs.runs.sum_up import sum_up
from tests.fakes.gangs import make_cluster, make_spec

RUN = "20261123-120000-0001"
BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
CLUSTER = replace(make_cluster(nodes=2), cpus_per_node=8)
SPEC = make_spec(["python", "train.py", "--epochs", "3"])
KEY = job_key(SPEC)


def at(seconds):
    return (BEGAN + timedelta(seconds=seconds)).isoformat()


# Asked for at 0, prepared from 10, running from 40 to 240.
EVENTS = [
    RunEvent(ts=at(0), state=RunState.QUEUED),
    RunEvent(ts=at(10), state=RunState.PREPARING),
    RunEvent(ts=at(40), state=RunState.RUNNING),
    RunEvent(ts=at(240), state=RunState.COMPLETED),
]
SUMMARY = {"images_per_s": 50.0, "train_images": 2000, "epochs": 3, "batch_size": 100}


def line(seconds, **given):
    return json.dumps({"ts": at(seconds), "name": "loss", "value": 1.0} | given)


def summed_up(run_dir, *, summary=None, lines=(), events=EVENTS, spec=SPEC):
    if summary is not None:
        (run_dir / "summary.json").write_text(json.dumps(summary))
    (run_dir / "metrics.jsonl").write_text("".join(f"{each}\n" for each in lines))
    return sum_up(RUN, spec, events, run_dir, CLUSTER)


def write_progress(run_dir, **given):
    """60 steps of 2 s from the 60th second on, and 5 s of evaluation after each epoch of 20."""
    began_s = BEGAN.timestamp()
    places = [{"time_s": began_s + 40, "done": None}]
    places += [
        {"time_s": began_s + 60 + 2 * step + 5 * (max(step - 1, 0) // 20), "done": step}
        for step in range(61)
    ]
    lines = "".join(f"{json.dumps(each)}\n" for each in places)
    (run_dir / "progress-history.jsonl").write_text(lines)
    told = {"done": 60, "total": 60, "unit": "step", "units_per_epoch": 20}
    (run_dir / "progress.json").write_text(json.dumps(told | given))
    os.utime(run_dir / "progress.json", (began_s + 190, began_s + 190))


def test_a_run_is_summed_up_by_its_summary_and_its_progress(tmp_path):
    write_progress(tmp_path)
    kept = {"checkpoints_saved": 4, "checkpoint_blocking_s": 1.5}
    found = summed_up(
        tmp_path, summary=SUMMARY | {"parameters": 25e6, "streamed_bytes_per_s": 2e8} | kept
    )
    assert found == PastRun(
        run=RUN,
        key=KEY,
        size="local",
        cores_per_node=8,
        nodes=1,
        processes_per_node=2,
        rate=50.0,
        total=6000.0,
        epochs=3.0,
        batch=100.0,
        parameters=25e6,
        node_bytes_per_s=4e8,  # of two ranks
        prepare_s=30.0,
        start_s=70.0,  # 200 less 120 of training and twice 5
        evaluation_s=5.0,
        num_evaluations=2,
        checkpoint_every_s=50.0,
        checkpoint_blocking_s=1.5,
    )


def test_a_script_that_writes_its_progress_alone_is_summed_up(tmp_path):
    write_progress(tmp_path, samples_per_unit=100)
    found = summed_up(tmp_path)
    assert (found.unit, found.rate, found.total) == ("sample", pytest.approx(50, rel=0.01), 6000)
    assert found.batch == 100
    write_progress(tmp_path, unit="sample")
    assert summed_up(tmp_path).batch is None
    write_progress(tmp_path)
    found = summed_up(tmp_path)
    assert (found.unit, found.rate, found.total) == ("step", pytest.approx(0.5, rel=0.01), 60)


def test_a_rate_of_the_metrics_counts_where_there_is_no_summary(tmp_path):
    lines = [line(60, name="samples_per_s", value=rate, step=1, split="train") for rate in (9, 11)]
    found = summed_up(tmp_path, lines=lines)
    assert (found.unit, found.rate, found.total, found.epochs) == ("sample", 11.0, None, 3.0)


@pytest.mark.parametrize(("axis", "last"), [("step", 400), ("epoch", 3)])
def test_without_any_rate_the_times_of_steps_or_epochs_make_one(tmp_path, axis, last):
    lines = [line(60, **{axis: 0}), "torn", line(160, **{axis: last})]
    found = summed_up(tmp_path, lines=lines)
    assert (found.unit, found.rate, found.total) == (axis, last / 100, last)
    assert found.start_s == pytest.approx(100)


@pytest.mark.parametrize(
    "change",
    [
        {"events": [*EVENTS[:-1], RunEvent(ts=at(240), state=RunState.FAILED)]},
        {"spec": replace(SPEC, resume={"run": RUN, "step": 3})},
    ],
    ids=["failed", "resumed"],
)
def test_a_run_that_did_not_do_all_of_it_tells_its_rate_alone(tmp_path, change):
    found = summed_up(tmp_path, summary=SUMMARY, **change)
    assert (found.rate, found.total, found.start_s) == (50.0, None, None)


def test_a_check_of_the_network_tells_its_bandwidths_without_a_rate(tmp_path):
    told = {"bus_gb_per_s": 12.5, "latency_us": 30.0, "nodes_gb_per_s": [90.0, 80.0]}
    found = summed_up(tmp_path, summary=told)
    assert (found.rate, found.bus_gb_per_s, found.node_bus_gb_per_s) == (None, 12.5, 80.0)
    assert (found.latency_s, found.nodes) == (pytest.approx(30e-6), SPEC.nodes)


@pytest.mark.parametrize("nodes", ["fast", [None], [-1.0], {"a": 1}, []])
def test_figures_of_nodes_that_are_none_are_left_out(tmp_path, nodes):
    told = {"bus_gb_per_s": 12.5, "latency_us": 30.0, "nodes_gb_per_s": nodes}
    assert summed_up(tmp_path, summary=told).node_bus_gb_per_s is None
    assert summed_up(tmp_path, summary=told | {"bus_gb_per_s": -1}) == PastRun(run=RUN)


def test_a_run_that_was_restarted_tells_its_work_and_no_start(tmp_path):
    events = [*EVENTS[:3], RunEvent(ts=at(99), state=RunState.PREPARING), *EVENTS[2:]]
    found = summed_up(tmp_path, summary=SUMMARY, events=events)
    assert (found.rate, found.total, found.start_s) == (50.0, 6000.0, None)


@pytest.mark.parametrize(
    "rate", [0, -1, 5e-324, "fast", None, True, 1e30, [5], float("nan"), float("inf"), 10**400]
)
def test_a_rate_that_cannot_be_is_none(tmp_path, rate):
    found = summed_up(tmp_path, summary={"samples_per_s": rate, "train_samples": 5, "epochs": 1})
    assert found == PastRun(run=RUN) or rate is True


def test_files_that_are_none_tell_nothing(tmp_path):
    (tmp_path / "summary.json").write_text("[" * 100_000)
    (tmp_path / "metrics.jsonl").mkdir()
    assert sum_up(RUN, SPEC, EVENTS, tmp_path, CLUSTER) == PastRun(run=RUN)


# --- The file ---------------------------------------------------------------------------------


def test_runs_are_kept_newest_first_and_not_twice(tmp_path):
    old, new = PastRun(run="20261101-000000-0000", rate=1.0), PastRun(run=RUN, rate=2.0)
    assert add_past_runs(tmp_path, [old]) == [old]
    assert add_past_runs(tmp_path, [new, new]) == [new, old]
    assert add_past_runs(tmp_path, []) == read_past_runs(tmp_path) == [new, old]
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_only_the_newest_runs_are_kept(tmp_path):
    many = [PastRun(run=f"20261101-{number:06d}-0000") for number in range(MOST_RUNS + 5)]
    kept = add_past_runs(tmp_path, many)
    assert kept == read_past_runs(tmp_path) == many[:4:-1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": -1.0},
        {"rate": "1"},
        {"rate": 1e300},
        {"batch": 5e-324},
        {"run": "../../etc"},
        {"run": f"{RUN}\n"},
        {"key": "x" * 16},
        {"nodes": 0},
        {"size": "a" * 1000},
        {"unit": "furlong"},
        {"prepare_s": -5},
    ],
)
def test_lines_that_cannot_be_are_passed_over(tmp_path, wrong):
    # The last line of a run counts.
    lines = ["[" * 9999, "\x00", json.dumps({"run": RUN, "more": 1})]
    lines.append(json.dumps({"run": RUN} | wrong))
    (tmp_path / FILE).write_text("\n".join(lines))
    assert read_past_runs(tmp_path) == [PastRun(run=RUN)]


def test_a_file_that_is_none_or_too_long_is_as_good_as_missing(tmp_path):
    assert read_past_runs(tmp_path) == []
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(1 << 30)
    assert read_past_runs(tmp_path) == []
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    assert add_past_runs(tmp_path / "folder", [PastRun(run=RUN)]) == [PastRun(run=RUN)]


# --- Which runs are of one job ------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 8},
        {"processes_per_node": 1},
        {"image": "test@sha256:abc"},
        {"command": ("python", "train.py", "--epochs=9")},
        {"cluster": "other"},
    ],
)
def test_runs_of_another_size_or_length_are_of_one_job(change):
    assert job_key(replace(SPEC, **change)) == KEY


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"image": "test2"},
        {"launcher": "torch"},
        {"env": {"OMP_NUM_THREADS": "1"}},
        {"command": ("python", "train.py", "--epochs", "3", "--amp")},
        {"command": ("python", "train.py", "--epochs", "3", "3")},
        {"command": ("python", "train.py", "--epochs=3", "--amp")},
    ],
)
def test_runs_of_other_programs_are_of_other_jobs(change):
    assert job_key(replace(SPEC, **change)) != KEY
