"""The runs of a workspace: listed by pages, asked how they stand, kept once they are over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound, Unreached
from jobs.contracts.spec import DatasetVersion, InputSpec, JobRetry, RunState
from jobs.engines.azure_ml import status as watch
from jobs.engines.azure_ml.intents import Intent, write_intent
from jobs.engines.azure_ml.refusals import CloudRefusal, WorkspaceGone, explain, unreachable
from jobs.engines.azure_ml.retry import begin_again
from jobs.runs.failure import RankReport
from jobs.runs.run_folder import RunEvent
from jobs.runs.selection import Selection
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec

SPEC = make_spec(["python"], stack="dev", nodes=2, processes_per_node=3)
PREEMPTED = "PreemptionError: Nodes of this job got pre-empted."


@pytest.fixture
def runs(tmp_path: Path) -> MemoryRuns:
    return MemoryRuns(tmp_path)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds between any two looks: nothing seen is fresh."""
    ticks = count(step=10)
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(ticks)))


def test_a_run_that_reads_a_version_is_found_while_azure_ml_says_that_it_is_on(
    runs: MemoryRuns,
) -> None:
    dataset = DatasetVersion(name="d", version=1, digest="d" * 64, files=1, bytes=1)
    inputs = {"x": InputSpec(dataset=dataset, mode="download")}
    reading = msgspec.structs.replace(SPEC, inputs=inputs)
    handle = runs.add(reading, RUN, details("Running"), details("Completed", ended=70))
    runs.add(SPEC, "20261121-120000-0002", details("Running"))
    (runs.runs / "20261121-120000-0003").mkdir()  # of an earlier version: it has no record here
    other = msgspec.structs.replace(dataset, version=2, digest="e" * 64)
    assert runs.reader_of(other) is None
    assert runs.scripted.asked == []
    assert runs.reader_of(dataset) == handle.id
    assert runs.reader_of(dataset) is None
    asked = len(runs.scripted.asked)
    assert {each.split("/")[2] for each in runs.scripted.asked} == {RUN}
    assert runs.reader_of(dataset) is None
    assert len(runs.scripted.asked) == asked  # what is over is not asked for again


def test_where_azure_does_not_tell_no_run_counts_as_over(runs: MemoryRuns) -> None:
    dataset = DatasetVersion(name="d", version=1, digest="d" * 64, files=1, bytes=1)
    inputs = {"x": InputSpec(dataset=dataset, mode="download")}
    runs.add(msgspec.structs.replace(SPEC, inputs=inputs), RUN, refusal(None))
    with pytest.raises(Unreached):
        runs.reader_of(dataset)


def refusal(status: int | None) -> CloudRefusal:
    environment, host = make_cloud_environment(), "https://management.azure.com"
    if status is None:
        return unreachable(OSError("no answer"), environment=environment, host=host)
    return explain(status, b"no answer", environment=environment, what="", host=host)


def job(run: str, status: str = "Completed", **resources: Any) -> dict[str, Any]:
    own = {"stack": "dev", "cluster": "cpu", "processes_per_node": "3"}
    return {
        "name": run,
        "properties": {
            "tags": {"trainyard": "1"},
            "experimentName": "sweep",
            "status": status,
            "displayName": "train",
            "properties": {f"trainyard.{key}": value for key, value in own.items()},
            "resources": {"instanceCount": 2, **resources},
        },
    }


def test_a_run_goes_through_its_states(runs: MemoryRuns) -> None:
    answers = [
        details("Queued"),
        details("Preparing"),
        details("Running"),
        details("Finalizing"),
        details("Completed", ended=70),
    ]
    handle = runs.add(SPEC, RUN, *answers)
    seen = [runs.status(handle) for _ in answers]
    assert [each.state.value for each in seen] == [
        *("queued", "preparing", "running", "running", "completed"),
    ]
    assert msgspec.to_builtins(seen[-1]) == {
        "id": RUN,
        "name": "test",
        "state": "completed",
        "reason": None,
        "exit_code": 0,
        "stack": "dev",
        "cluster": "cpu",
        "nodes": 2,
        "world_size": 6,
        "created": "2026-11-21T12:00:00.000001Z",
        "started": "2026-11-21T12:00:10.000000Z",
        "ended": "2026-11-21T12:01:10.500000Z",
        "run_dir": handle.run_dir,
        "experiment": "test",
        "tags": {},
    }


def test_what_is_over_is_asked_for_once_by_this_machine(runs: MemoryRuns, tmp_path: Path) -> None:
    handle = runs.add(SPEC, RUN, details("Completed", ended=70))
    before = runs.status(handle)
    later = MemoryRuns(tmp_path)
    assert later.status(handle) == before
    assert later.scripted.asked == []


def test_a_waiting_run_says_what_its_cluster_says(runs: MemoryRuns) -> None:
    handle = runs.add(SPEC, RUN, details("Queued"))
    busy = {"scaleSettings": {"maxNodeCount": 2}, "nodeStateCounts": {"runningNodeCount": 2}}
    runs.scripted.compute = {"properties": {"properties": busy}}
    assert runs.status(handle).reason == "all 2 nodes of cluster `cpu` are busy"
    runs.scripted.details[RUN] = [details("Unapproved")]
    assert runs.status(handle).reason == "Azure ML waits until somebody approves it"


def test_a_run_that_its_limit_on_cost_ended_says_so_as_the_stand_in_says(
    runs: MemoryRuns,
) -> None:
    limits = msgspec.structs.replace(SPEC.limits, wall_clock_s=90.0, cost=0.5)
    spec = msgspec.structs.replace(SPEC, limits=limits)
    ended = {
        **details("Canceled", ended=100),
        "warnings": [{"message": "It exceeded its maximum."}],
    }
    status = runs.status(runs.add(spec, RUN, ended))
    assert (status.state, status.reason) == (
        RunState.FAILED,
        "limits.cost: 0.5 became a time limit of 1 min 30 s: It exceeded its maximum.",
    )


def test_attempts_are_one_run(runs: MemoryRuns) -> None:
    spec = msgspec.structs.replace(SPEC, retry=JobRetry(max=3))
    handle = runs.add(spec, RUN, details("Failed", PREEMPTED, ended=30))
    runs.scripted.details[f"{RUN}_2"] = [details("Running")]
    assert runs.status(handle).state is RunState.RUNNING
    assert runs.newest_attempt(handle) == 2
    assert runs.events(handle) == [
        RunEvent(ts="2026-11-21T12:00:00.000001Z", state=RunState.QUEUED),
        RunEvent(ts="2026-11-21T12:00:10.000000Z", state=RunState.RUNNING, attempt=f"{RUN}.1"),
        RunEvent(
            ts="2026-11-21T12:00:30.500000Z",
            state=RunState.PREPARING,
            reason=f"Azure took a node away: {PREEMPTED}",
            attempt=f"{RUN}.1",
        ),
        RunEvent(ts="2026-11-21T12:00:10.000000Z", state=RunState.RUNNING, attempt=f"{RUN}.2"),
    ]


def test_a_failure_is_told_by_the_rank_that_failed_first_as_the_stand_in_says(
    runs: MemoryRuns,
) -> None:
    killed = RankReport(rank=0, host="a", signal=9, exited_s=12.0, stopped_s=11.0)
    failed = RankReport(rank=1, host="b", exit_code=7, exited_s=10.0, last_lines="no luck")
    for report in (killed, failed):
        name = f"{RUN}/ranks/1/{report.rank:05}.json"
        runs.memory.blobs[name] = msgspec.json.encode(report)
    handle = runs.add(SPEC, RUN, details("Failed", "exited with status code 137", ended=20))
    status = runs.status(handle)
    assert (status.exit_code, status.reason) == (7, "rank 1 on b: exit code 7: no luck")
    error = runs.error(handle)
    assert error is not None
    assert (error.rank, error.message) == (1, "no luck")


def leave_record(runs: MemoryRuns, **found: Any) -> None:
    report = RankReport(**{"rank": 0, "exit_code": 1, "ended_s": 1.0, **found})
    runs.memory.blobs[f"{RUN}/ranks/1/{report.rank:05}.json"] = msgspec.json.encode(report)


@pytest.mark.parametrize(
    "told",
    [
        "the cache has evicted what it needs",
        "cannot write: disk quota exceeded",
        "no heartbeat of the parameter server",
        "exit code 75",
        "the loop exceeded the maximum number of steps",
    ],
)
def test_words_of_a_program_start_nothing_again(runs: MemoryRuns, told: str) -> None:
    retry = JobRetry(max=3, on=("preemption", "node_failure"))
    spec = msgspec.structs.replace(SPEC, retry=retry)
    handle = runs.add(spec, RUN, details("Failed", told, ended=40))
    leave_record(runs, host="n1", last_lines=f"error: {told}")
    (attempt,) = runs.attempts(handle)
    standing = attempt.standing
    assert (standing.state, standing.cause, standing.reason, standing.exit_code) == (
        RunState.FAILED,
        "program",
        f"rank 0 on n1: exit code 1: {told}",
        1,
    )
    assert not begin_again(runs, handle)
    assert runs.scripted.sent == []


@pytest.mark.parametrize(
    "record",
    [
        {"last_lines": "error: connection reset by peer"},
        {"last_lines": "error: it was told to stop", "stopped_s": 0.5},
        {"exit_code": None, "signal": 9},
        {"exit_code": 75, "last_lines": "preempted: at step 5"},
    ],
)
def test_a_node_that_went_is_azures_to_tell(runs: MemoryRuns, record: dict[str, Any]) -> None:
    handle = runs.add(SPEC, RUN, details("Failed", PREEMPTED, ended=40))
    leave_record(runs, **record)
    (attempt,) = runs.attempts(handle)
    assert attempt.standing.cause == "preemption"


def test_a_silent_azure_is_waited_for_from_the_submit_on(
    runs: MemoryRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = runs.add(SPEC, RUN, refusal(503), details("Completed", ended=70))
    runs.statuses.expect(handle)
    assert [runs.status(handle).state for _ in range(2)] == [RunState.QUEUED, RunState.COMPLETED]
    assert "trying again for 15 min; the run goes on" in capsys.readouterr().err


@pytest.mark.parametrize("status", [None, 408, 409, 429, 503])
def test_an_azure_that_does_not_answer_is_waited_for(
    runs: MemoryRuns,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
) -> None:
    silence = [refusal(status)] * 3
    handle = runs.add(SPEC, RUN, details("Running"), *silence, details("Completed", ended=70))
    states = [runs.status(handle).state.value for _ in range(5)]
    assert states == ["running"] * 4 + ["completed"]
    assert capsys.readouterr().err.count("no answer") == 1
    monkeypatch.setattr(watch, "PATIENCE_S", 15.0)
    other = runs.add(SPEC, RUN.replace("0001", "0002"), details("Running"), refusal(status))
    runs.status(other)
    runs.status(other)
    with pytest.raises(CloudRefusal):
        runs.status(other)


def test_who_may_not_ask_hears_it_at_once(runs: MemoryRuns) -> None:
    handle = runs.add(SPEC, RUN, details("Running"), refusal(403))
    runs.status(handle)
    with pytest.raises(CloudRefusal):
        runs.status(handle)


@pytest.mark.parametrize(
    ("answer", "intent", "expected"),
    [
        (None, None, (RunState.LOST, "Azure ML no longer has this job")),
        (
            WorkspaceGone("gone", hint=None, status=404, code="", text=""),
            None,
            (RunState.LOST, "the workspace `W` was deleted with its records of the run"),
        ),
        (
            None,
            "given-up.json",
            (
                RunState.LOST,
                "Azure ML never received it: its submission was interrupted or refused",
            ),
        ),
    ],
    ids=["deleted", "no-workspace", "given-up"],
)
def test_a_run_without_a_job_is_lost(
    runs: MemoryRuns, answer: Any, intent: str | None, expected: tuple[RunState, str]
) -> None:
    handle = runs.add(SPEC, RUN, answer)
    if intent:
        Path(handle.run_dir, intent).write_text("{}")
    status = runs.status(handle)
    assert (status.state, status.reason) == expected


def test_a_list_takes_no_more_jobs_than_it_shows(runs: MemoryRuns) -> None:
    runs.scripted.jobs = [job(f"20261121-1200{n:02}-0000") for n in range(59, -1, -1)]
    listed = runs.list(3)
    assert [each.id for each in listed] == [f"20261121-1200{n}-0000" for n in (59, 58, 57)]
    assert runs.scripted.num_listed == 3
    assert (listed[0].name, listed[0].world_size, listed[0].cluster) == ("train", 6, "cpu")


def test_a_list_is_of_the_runs_that_are_wanted(runs: MemoryRuns) -> None:
    ids = [f"20261121-1200{n:02}-0000" for n in range(59, -1, -1)]
    runs.scripted.jobs = [job(run) for run in ids]
    for number, run in enumerate(ids):
        body = runs.scripted.jobs[number]["properties"]
        body["displayName"] = f"job-{number % 2}"
        body["tags"] |= {"seed": str(number % 3)}
        body["experimentName"] = "sweep" if number < 6 else "other"
        # Only the details tell that a run which failed was preempted.
        is_last = number == 59
        body["status"] = "Failed" if is_last else "Completed"
        told = details("Failed", PREEMPTED, ended=30) if is_last else details("Completed", ended=30)
        runs.scripted.details[run] = [told]

    def listed(limit: int | None = 20, **wanted: Any) -> list[str]:
        return [each.id for each in runs.list(limit, Selection(**wanted))]

    assert listed(2, name="job-1") == [ids[1], ids[3]]
    assert listed(name="job-1", experiment="s*", tags=(("seed", "0"),)) == [ids[3]]
    assert listed(states=frozenset({RunState.PREEMPTED})) == [ids[59]]
    assert listed(states=frozenset({RunState.FAILED})) == []
    runs.scripted.num_listed = 0
    assert listed(since="2026-11-21T12:00:58.000000Z") == ids[:2]
    assert runs.scripted.num_listed == 3
    (status,) = runs.list(1)
    assert (status.experiment, status.tags) == ("sweep", {"seed": "0"})


def test_a_list_by_a_tag_asks_for_it_and_takes_only_ours(runs: MemoryRuns) -> None:
    theirs = job("20261121-120001-0001")
    theirs["properties"]["tags"] = {"team": "vision"}
    runs.scripted.jobs = [theirs, job(RUN)]
    runs.scripted.jobs[1]["properties"]["tags"]["team"] = "vision"
    runs.scripted.details[RUN] = [details("Completed", ended=30)]
    wanted = Selection(tags=(("team", "vision"),))
    assert [each.id for each in runs.list(20, wanted)] == [RUN]
    assert runs.scripted.queries == [{"tag": "team", "listViewType": "ActiveOnly"}]


def test_a_run_that_azure_has_not_got_yet_is_listed_where_it_is_wanted(runs: MemoryRuns) -> None:
    folder = Path(runs.add(SPEC, RUN, details("Queued")).run_dir)
    write_intent(folder, Intent(plan_digest="", code="", since_s=time.time()))
    assert [each.id for each in runs.list(20, Selection(name="test"))] == [RUN]
    for selection in (Selection(name="x"), Selection(since="2027-01-01T00:00:00.000000Z")):
        assert runs.list(20, selection) == []


def test_a_long_list_asks_for_no_run_apart(runs: MemoryRuns) -> None:
    runs.scripted.jobs = [job(f"20261121-12{n:02}00-0000", "Failed") for n in range(59, -1, -1)]
    assert [each.state for each in runs.list(None)] == [RunState.FAILED] * 60
    assert runs.scripted.asked == []


def test_a_list_shows_a_run_once_and_only_ours(runs: MemoryRuns) -> None:
    runs.scripted.jobs = [job(f"{RUN}_2", "Running"), job("olive_tree"), job(RUN, "Failed")]
    runs.scripted.details[f"{RUN}_2"] = [details("Running")]
    assert [(each.id, each.state.value) for each in runs.list()] == [(RUN, "running")]


def test_one_odd_run_does_not_end_a_list_as_the_stand_in_says(
    runs: MemoryRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, limited, damaged = (f"20261121-12000{n}-0001" for n in (1, 2, 3))
    runs.add(SPEC, RUN, details("Completed", ended=40))
    warned = {"warnings": [{"message": "The run exceeded its maximum duration."}]}
    runs.scripted.details[limited] = [{**details("Canceled", ended=50), **warned}]
    runs.scripted.details[odd] = [explain_odd()]
    runs.scripted.jobs = [
        job("99999999-999999-zzzz"),
        job(limited, "Canceled"),
        job(odd, "Running"),
        job(RUN),
    ]
    folder = Path(runs.add(SPEC, damaged).run_dir)
    (folder / "run.json").write_bytes(b"{")
    write_intent(folder, Intent(plan_digest="", code="", since_s=time.time()))
    listed = [(each.id, each.state.value) for each in runs.list()]
    assert listed == [(limited, "cancelled"), (odd, "running"), (RUN, "completed")]
    told = capsys.readouterr().err.splitlines()
    named = [run for line in told for run in (odd, limited, damaged) if run in line]
    assert sorted(named) == [odd, limited, damaged]


def explain_odd() -> CloudRefusal:
    environment, host = make_cloud_environment(), "https://westeurope.api.azureml.ms"
    return explain(400, b"{}", environment=environment, what="asking", host=host)


@pytest.mark.parametrize("name", ["99999999-999999-zzzz", "20260230-120000-0001"])
def test_an_id_that_is_no_time_is_no_run(runs: MemoryRuns, name: str) -> None:
    with pytest.raises(NotFound, match=f"there is no run `{name}`"):
        runs.find(name)


def test_runs_are_found_by_id_prefix_and_last(runs: MemoryRuns) -> None:
    ids = ["20261122-090000-0000", "20261121-130000-0000", RUN]
    for run in ids:
        runs.add(SPEC, run, details("Completed", ended=30))
    runs.scripted.jobs = [job(run) for run in ids]
    assert runs.find("last").id == ids[0]
    assert runs.find(RUN).id == RUN
    assert runs.find("20261121-13").id == ids[1]
    with pytest.raises(LaunchError, match="fits 2 runs"):
        runs.find("20261121")
    with pytest.raises(NotFound):
        runs.find("2025")


def test_a_run_of_another_machine_is_known_by_its_record_in_the_store(
    runs: MemoryRuns, tmp_path: Path
) -> None:
    elsewhere = MemoryRuns(tmp_path / "elsewhere")
    handle = elsewhere.add(SPEC, RUN, details("Running"))
    runs.memory.blobs[f"{RUN}/run.json"] = Path(handle.run_dir, "run.json").read_bytes()
    assert runs.record(runs.find(RUN)) == elsewhere.record(handle)
    with pytest.raises(NotFound, match="there is no run `20260101-000000-0000`"):
        runs.find("20260101-000000-0000")


def test_a_run_without_its_record_is_found_where_there_is_a_job(
    runs: MemoryRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.scripted.jobs = [job(RUN, "Running")]
    with pytest.raises(NotFound, match=f"the record of {RUN} was deleted from the store"):
        runs.record(runs.find(RUN))
    silence = EnvironmentFailure("the store is silent", hint="")
    monkeypatch.setattr(runs.memory, "read_range", raising(silence))
    with pytest.raises(EnvironmentFailure, match="the store is silent"):
        runs.record(runs.find(RUN))
    with pytest.raises(EnvironmentFailure, match="the store is silent"):
        runs.find("20260101-000000-0000")


def raising(error: Exception) -> Callable[[str], bytes]:
    def read(*_: object) -> bytes:
        raise error

    return read


def test_progress_comes_from_the_store_and_keeps_the_time_at_which_it_changed(
    runs: MemoryRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = runs.add(SPEC, RUN, details("Running"))
    assert runs.progress(handle) is None
    blobs = runs.memory.blobs
    blobs[f"{RUN}/metrics.jsonl"] = b'{"step": 7, "name": "loss", "value": 1}\n'
    metrics = runs.progress(handle)
    assert metrics is not None
    assert (metrics.done, metrics.unit) == (7, "step")
    path = Path(handle.run_dir, "progress.json")
    for done, when_s in ((30, 70.0), (40, 80.0)):
        blobs[f"{RUN}/progress.json"] = f'{{"done": {done}, "total": 60}}'.encode()
        runs.progress(handle)
        os.utime(path, (when_s, when_s))
        again = runs.progress(handle)
        assert again is not None
        assert (again.done, again.updated_s) == (done, when_s)
    lines = b'{"time_s": 40, "done": null}\n{"time_s": 45, "done": 5}\n{"time_s": 55, "done": 15}\n'
    blobs[f"{RUN}/progress-history.jsonl"] = lines
    found = runs.progress(handle)
    assert found is not None
    assert found.pace is not None
    assert found.pace.unit_s == 1
    # Whoever is on a node may write there.
    blobs[f"{RUN}/progress.json"] = b" " * (1 << 20)
    same = runs.progress(handle)
    assert same is not None
    assert same.done == 40
    assert capsys.readouterr().err.startswith(
        f"warning: `{RUN}/progress.json` in the store is longer"
    )


def test_figures_and_checkpoints_come_from_the_store(runs: MemoryRuns) -> None:
    handle = runs.add(SPEC, RUN, details("Running"))
    whole, cut = f"checkpoints/{RUN}/step-000000020-aa", f"checkpoints/{RUN}/step-000000030-bb"
    runs.memory.blobs = {
        f"{RUN}/metrics.jsonl": b"{}\n",
        f"{whole}/model/part.bin": b"12345",
        f"{whole}/manifest.json": b'{"step": 20}',
        f"{cut}/part.bin": b"1",
    }
    runs.bring(handle)
    assert Path(handle.run_dir, "metrics.jsonl").read_bytes() == b"{}\n"
    found = runs.checkpoints(handle)
    assert [(each.name, each.step, each.bytes) for each in found] == [("step-000000020-aa", 20, 17)]
