"""Progress, time left and cost of runs that are on, as `ls`, `show` and `report` give them."""

import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunState
from jobs.host import console
from jobs.runs.forecast_file import KeptForecast, write_forecast
from jobs.runs.run_folder import RunEvent, append_event
from jobs.runs.store import RunStore
from jobs.runs.supervision import take_lock

NOW_S = 1_790_000_000.0


def stamp(seconds):
    return datetime.fromtimestamp(NOW_S + seconds, UTC).isoformat()


@pytest.fixture
def on(launching, monkeypatch):
    """Makes runs that began 100 s ago, with what they tell; `changes` are of the job."""
    locks = []
    monkeypatch.setattr(time, "time", lambda: NOW_S)

    def make(told=None, *, places=(), ended_s=None, state=RunState.COMPLETED, **changes):
        run = launching.add_run(**changes)
        run_dir = launching.workspace / "runs" / run
        (run_dir / "events.jsonl").unlink()
        append_event(run_dir, RunEvent(ts=stamp(-100), state=RunState.RUNNING))
        if ended_s is not None:
            append_event(run_dir, RunEvent(ts=stamp(ended_s), state=state, exit_code=0))
        else:
            locks.append(take_lock(run_dir))
        if told is not None:
            (run_dir / "progress.json").write_text(json.dumps(told))
            os.utime(run_dir / "progress.json", (NOW_S, NOW_S))
        lines = [{"time_s": NOW_S + second, "done": done} for second, done in places]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run_dir / "progress-history.jsonl").write_text(text)
        return run

    yield make
    for lock in locks:
        os.close(lock)


STEPS = {"done": 90, "total": 250, "unit": "step", "samples_per_unit": 64}
# A start-up of 10 s, then a step a second.
PLACES = [(-100, None), (-90, 0), (-60, 30), (-30, 60), (0, 90)]


def test_ls_shows_share_and_time_left_of_runs_that_are_on(launching, on):
    over = on(STEPS, places=PLACES, ended_s=0)
    runs = [
        on(name="silent"),
        on({"done": 3, "unit": "epoch"}, name="endless"),
        on(STEPS, places=PLACES, name="known"),
    ]
    typed = launching.type("ls")
    header, *rows = [line.split("  ") for line in typed.out.splitlines()]
    assert [word.strip() for word in header if word] == (
        ["RUN", "NAME", "STATE", "DONE", "LEFT", "SIZE", "CLUSTER", "AGE", "TIME", "REASON"]
    )
    shown = [[cell.strip() for cell in row if cell] for row in rows]
    ran, size = "1 min 40 s", "1x2"
    assert [[row[0], *row[2:5], row[-1]] for row in shown] == [
        [runs[2], "running", "36 %", "2 min 40 s", ran],
        [runs[1], "running", "3 epochs", size, ran],
        [runs[0], "running", size, "cpu", ran],
        [over, "completed", size, "cpu", ran],
    ]
    told = {run["id"]: run for run in launching.type("ls", "--json").json()}
    assert [told[run]["progress"] for run in (over, runs[0])] == [None, None]
    assert told[runs[2]]["progress"] == {
        "done": 90,
        "total": 250,
        "unit": "step",
        "share": 0.36,
        "left_s": 160,
        "samples_per_s": 64,
        "updated_s": NOW_S,
        "silent_s": None,
    }


def test_a_run_whose_progress_cannot_be_read_hides_no_other(launching, on, monkeypatch):
    runs = [on(STEPS, places=PLACES, name="known"), on(STEPS, places=PLACES, name="lost")]
    progress = RunStore.progress

    def lost(self, handle):
        if handle.id == runs[1]:
            raise LaunchError("the store gave no answer")
        return progress(self, handle)

    monkeypatch.setattr(RunStore, "progress", lost)
    typed = launching.type("ls")
    assert typed.err == "warning: the store gave no answer\n"
    assert ["36 %" in line for line in typed.out.splitlines()] == [False, False, True]


def test_ls_of_runs_that_are_over_has_no_such_columns(launching, on):
    on(STEPS, places=PLACES, ended_s=0)
    assert launching.type("ls").out.split("\n")[0].split() == (
        ["RUN", "NAME", "STATE", "SIZE", "CLUSTER", "AGE", "TIME", "REASON"]
    )


def price(launching, amount):
    cluster = launching.environment.clusters["cpu"]
    priced = msgspec.structs.replace(cluster, price_per_node_hour=amount, currency="USD")
    made = msgspec.structs.replace(launching.environment, clusters={"cpu": priced})
    launching.write_environment(made)


def test_80_columns_hold_share_time_left_and_cost(launching, on, monkeypatch):
    price(launching, 36.0)
    on(STEPS, places=PLACES, name="a-name-of-a-job-that-is-long")
    monkeypatch.setattr(console, "terminal_width", lambda: 80)
    lines = launching.type("ls").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["RUN", "NAME", "STATE", "DONE", "LEFT", "COST", "AGE"]
    assert "running  36 %  2 min 40 s  1.00 of 2.60 USD" in lines[1]


def test_show_tells_progress_and_the_cost_at_the_end(launching, on):
    price(launching, 36.0)
    run = on(STEPS, places=PLACES)
    lines = launching.type("show", run).out.splitlines()
    assert [
        line.split(maxsplit=1)[1] for line in lines if line.startswith(("progress", "cost"))
    ] == [
        "36 %, step 90 of 250, about 2 min 40 s left, 64 samples/s",
        "about 1.00 USD (1 node x 1 min 40 s at 36.00 USD/h), about 2.60 USD at the end",
    ]
    told = launching.type("show", run, "--json").json()
    assert (told["progress"]["left_s"], told["cost"]["at_end"]) == (160, 2.6)


def test_show_says_that_a_run_stands_still(launching, on):
    run = on(STEPS, places=[(second - 600, done) for second, done in PLACES])
    path = launching.workspace / "runs" / run / "progress.json"
    os.utime(path, (NOW_S - 600, NOW_S - 600))
    assert "about 2 min 25 s left, 64 samples/s, no progress for 10 min\n" in (
        launching.type("show", run).out
    )


def test_the_end_of_a_run_tells_how_far_it_came(launching, on):
    run = on(STEPS, places=PLACES, ended_s=0, state=RunState.FAILED)
    told = launching.type("wait", run).err
    assert "progress  36 %, step 90 of 250, 64 samples/s\n" in told
    assert "progress" not in launching.type("wait", on({"done": 5}, ended_s=0)).err


FORECAST = KeptForecast(
    samples_per_s=60,
    low=50,
    high=66,
    time_s=80,
    time_low_s=70,
    time_high_s=90,
    cost=1,
    binds="loader",
)
PARTS = {"training": 70.0, "start-up": 4.0, "download of the data": 1.0, "evaluation": 5.0}


def test_report_shows_the_forecast_beside_what_came_of_it(launching, on):
    price(launching, 36.0)
    whole = {**STEPS, "total": 90}
    run = on(whole, places=PLACES, ended_s=8)
    write_forecast(Path(launching.workspace, "runs", run), FORECAST)
    *figures, binds, parts = launching.type("report", run).out.split("\n\n")[1].splitlines()
    assert [re.split(" {2,}", line) for line in figures] == [
        ["FORECAST", "PREDICTED", "90 % BAND", "ACTUAL", "OFF"],
        ["rate", "60 samples/s", "50 samples/s - 66 samples/s", "64 samples/s", "+7%"],
        ["time", "1 min 20 s", "1 min 10 s - 1 min 30 s", "1 min 48 s", "+35%, outside the band"],
        ["cost", "1 USD", "1.08 USD", "+8%"],
    ]
    assert binds == "was to bind: loader"
    assert parts == (
        "the time was: training 1 min 30 s (83%), start-up 10 s (9%), after the last step 8.0 s (7%)"
    )
    told = launching.type("report", run, "--json").json()["runs"][0]["forecast"]
    assert told["predicted"]["binds"] == "loader"
    assert [(each["figure"], each["actual"]) for each in told["figures"]] == [
        ("rate", 64),
        ("time", 108),
        ("cost", 1.08),
    ]
    assert [(each["what"], each["seconds"]) for each in told["parts"]] == [
        ("training", 90),
        ("start-up", 10),
        ("after the last step", 8),
    ]
    assert told["differences"] == []


def test_report_says_by_which_parts_the_time_differs_the_largest_first(launching, on):
    run = on({**STEPS, "total": 90}, places=PLACES, ended_s=8)
    write_forecast(
        Path(launching.workspace, "runs", run), msgspec.structs.replace(FORECAST, parts=PARTS)
    )
    table = launching.type("report", run).out.split("\n\n")[2].splitlines()
    assert [re.split(" {2,}", line) for line in table[:4]] == [
        ["PART", "PREDICTED", "ACTUAL", "DIFFERENCE"],
        ["training", "1 min 10 s", "1 min 30 s", "+20 s"],
        ["start and end", "5.0 s", "18 s", "+13 s"],
        ["checkpoints and evaluation", "5.0 s", "0.0 s", "-5.0 s"],
    ]
    told = launching.type("report", run, "--json").json()["runs"][0]["forecast"]
    assert told["differences"] == [
        {"kind": "training", "predicted_s": 70, "actual_s": 90},
        {"kind": "start and end", "predicted_s": 5, "actual_s": 18},
        {"kind": "checkpoints and evaluation", "predicted_s": 5, "actual_s": 0},
    ]


@pytest.mark.parametrize(("unit", "actual"), [("step", [1]), ("epoch", [])])
def test_a_rate_in_steps_is_compared_with_one_in_steps(launching, on, unit, actual):
    run = on({"done": 90, "total": 90, "unit": "step"}, places=PLACES, ended_s=8)
    kept = KeptForecast(unit=unit, units_per_s=1.25, low=1.0, high=1.5)
    write_forecast(Path(launching.workspace, "runs", run), kept)
    found = launching.type("report", run, "--json").json()["runs"][0]["forecast"]
    assert [each["actual"] for each in found["figures"] if each["figure"] == "rate"] == actual
    shown = launching.type("report", run).out
    assert ("rate    1.25 steps/s  " in re.sub("rate +", "rate    ", shown)) == bool(actual)


@pytest.mark.parametrize(
    "text", ["{", '{"time_s": -1}', '{"parts": {"training": -1}}', '{"time_s": "x"}', "[" * 30_000]
)
def test_a_forecast_that_cannot_be_read_is_left_out(launching, on, text):
    run = on(STEPS, places=PLACES, ended_s=0)
    Path(launching.workspace, "runs", run, "forecast.json").write_text(text)
    typed = launching.type("report", run)
    assert (typed.code, "FORECAST" in typed.out) == (0, False)


def test_the_rate_that_a_program_measured_itself_stands_beside_the_forecast(launching, on):
    run = on(ended_s=0)
    folder = Path(launching.workspace, "runs", run)
    (folder / "summary.json").write_text('{"samples_per_s": 63}')
    write_forecast(folder, FORECAST)
    found = launching.type("report", run, "--json").json()["runs"][0]["forecast"]
    assert [each["actual"] for each in found["figures"] if each["figure"] == "rate"] == [63]


def test_of_a_run_that_failed_only_the_rate_is_compared(launching, on):
    run = on(STEPS, places=PLACES, ended_s=0, state=RunState.FAILED)
    write_forecast(Path(launching.workspace, "runs", run), FORECAST)
    found = launching.type("report", run, "--json").json()["runs"][0]["forecast"]
    assert [each["figure"] for each in found["figures"]] == ["rate"]
