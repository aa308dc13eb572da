"""`launch plan` and `run` with what runs before tell of a job."""

import json

import msgspec
import pytest

from jobs.contracts.spec import RunState
from jobs.runs.forecast_file import read_forecast
from jobs.runs.past import FILE
from jobs.runs.run_folder import RunEvent
from tests.fakes.launching import FakeEngine

JOB = "name: x\nimage: pytorch\nscript: train.py\nlauncher: torch\nargs: {epochs: 2}\n"
SUMMARY = {"samples_per_s": 100, "train_samples": 18_000, "epochs": 2, "batch_size": 50}
NOTHING = "forecast  not known: no run of this job on local has told its rate; run it once, e.g. with --nodes 1\n"


@pytest.fixture
def job(launching):
    (launching.folder / "train.py").write_text("")
    [name] = launching.environment.clusters
    priced = msgspec.structs.replace(
        launching.environment.clusters[name], price_per_node_hour=6.0, currency="EUR"
    )
    environment = msgspec.structs.replace(launching.environment, clusters={name: priced})
    launching.write_environment(environment)
    return launching.write_job(JOB)


def run_once(launching, job, summary=SUMMARY):
    """Run the job out of sight for 400 s, 360 of them training; returns its id."""
    typed = launching.type("run", job, "--detach", "--yes", "--processes-per-node", "1")
    run = typed.out.strip()
    folder = launching.workspace / "runs" / run
    (folder / "summary.json").write_text(json.dumps(summary))
    times = {
        0: RunState.QUEUED,
        5: RunState.PREPARING,
        15: RunState.RUNNING,
        415: RunState.COMPLETED,
    }
    lines = [
        RunEvent(ts=f"2026-11-23T12:{seconds // 60:02}:{seconds % 60:02}+00:00", state=state)
        for seconds, state in times.items()
    ]
    (folder / "events.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    FakeEngine.submitted.clear()
    return run


def test_the_plan_of_a_job_that_never_ran_says_what_to_do(launching, job):
    assert NOTHING in launching.type("plan", job).out
    assert launching.type("plan", job, "--json").json()["foreseen"]["forecast"] is None


def test_the_plan_of_a_job_that_ran_tells_rate_time_and_cost(launching, job):
    run = run_once(launching, job)
    out = launching.type("plan", job, "--processes-per-node", "1").out
    [line] = [each for each in out.splitlines() if each.startswith("forecast")]
    assert line.startswith("forecast  100 (")
    assert ") samples/s, 6 min 50 s (" in line
    assert ", 0.683 EUR (" in line
    assert f"known by  1 run of this job, the newest {run}\n" in out
    found = launching.type("plan", job, "--processes-per-node", "1", "--json").json()
    assert found["engine"] == "local"
    told = found["foreseen"]["forecast"]
    assert (told["rate"]["middle"], told["time_s"]["middle"], told["binds"]) == (
        pytest.approx(100),
        pytest.approx(410),
        "compute",
    )


def test_another_number_of_epochs_scales_the_work(launching, job):
    run_once(launching, job)
    words = ("plan", job, "--processes-per-node", "1", "--set", "args.epochs=4", "--json")
    assert launching.type(*words).json()["foreseen"]["forecast"]["time_s"]["middle"] == (
        pytest.approx(770)
    )


def test_a_run_keeps_its_forecast_and_says_it_before_it_asks(launching, job):
    run_once(launching, job)
    refused = launching.type("run", job, "--processes-per-node", "1")
    assert refused.code == 2
    assert "forecast  100 (" in refused.err
    typed = launching.type("run", job, "--processes-per-node", "1", "--detach", "--yes")
    kept = read_forecast(launching.workspace / "runs" / typed.out.strip())
    assert kept is not None
    # Without the 10 s before the ranks start.
    assert (kept.samples_per_s, kept.time_s, kept.cost) == (
        pytest.approx(100),
        pytest.approx(400),
        pytest.approx(400 / 600),
    )


def test_a_followed_run_is_summed_up_at_its_end(launching, job):
    assert launching.type("run", job, "--yes").code == 0
    assert len((launching.workspace / FILE).read_text().splitlines()) == 1


def test_a_deadline_chooses_the_nodes_and_says_why(launching, job):
    run_once(launching, job)
    words = ("--processes-per-node", "1", "--deadline")
    one = launching.type("plan", job, *words, "10m")
    assert "size      1 node x 1 process\n" in one.out
    assert one.err.startswith(
        "chose 1 node of cluster `cpu` (dedicated), the cheapest that keeps the deadline in 19 of 20 cases: "
    )
    assert "size      2 nodes x 1 process\n" in (
        launching.type("plan", job, *words, "10h", "--set", "nodes=2").out
    )
    larger = launching.write_job(JOB + "nodes: 2\n")
    assert launching.type("run", larger, *words, "10m", "--detach", "--yes").code == 0
    [(plan, _)] = FakeEngine.submitted
    assert plan.spec.nodes == 1


def test_a_layout_that_nothing_keeps_is_refused_with_the_nearest(launching, job):
    run_once(launching, job)
    typed = launching.type("plan", job, "--deadline", "1s")
    assert (typed.code, typed.out) == (3, "")
    assert "error: none: no layout keeps it in 19 of 20 cases; nearest is 2 nodes" in typed.err
    poor = launching.type("run", job, "--budget", "0.01", "--yes")
    assert poor.code == 3
    assert "nearest is 1 node of cluster `cpu`" in poor.err
    assert FakeEngine.submitted == []


def test_a_layout_of_a_job_that_never_ran_is_refused(launching, job):
    typed = launching.type("plan", job, "--budget", "5")
    assert typed.code == 3
    assert typed.err.endswith("hint: run it to its end once, then ask again\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--deadline", "6"),
        ("--deadline", "soon"),
        ("--deadline", "0s"),
        ("--budget", "-1"),
        ("--budget", "nan"),
    ],
)
def test_wishes_that_are_no_times_or_amounts_are_refused(launching, job, words):
    typed = launching.type("plan", job, *words)
    assert (typed.code, words[1] in typed.err) == (2, True)


def test_hostile_files_of_runs_never_keep_a_plan_from_being_shown(launching, job):
    run_once(launching, job, summary={"samples_per_s": 1e308, "train_samples": "x", "epochs": [1]})
    (launching.workspace / FILE).write_bytes(b"\xff{}\n[[[\n")
    assert NOTHING in launching.type("plan", job).out
