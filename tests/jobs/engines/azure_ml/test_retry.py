"""When another attempt of a run on Azure ML is due."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import JobRetry, JobSpec, Limits, RunHandle, RunState
from jobs.engines.azure_ml import status as watch
from jobs.engines.azure_ml.cancel import cancel_run
from jobs.engines.azure_ml.history import Attempt, attempt_of
from jobs.engines.azure_ml.intents import Intent, hold, read_intent, write_intent
from jobs.engines.azure_ml.refusals import CloudRefusal, explain, unreachable
from jobs.engines.azure_ml.retry import NextAttempt, begin_again, next_attempt
from jobs.engines.azure_ml.submission import submit_attempt
from jobs.runs.outcome import parse_time
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.cloud_stack import make_cloud_environment
from tests.fakes.gangs import make_spec

SOON = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
PREEMPTED = "PreemptionError: Nodes of this job got pre-empted."
LOST = "Node x became unusable"  # nobody has quoted Azure's words


HOST = "https://management.azure.com"


def refusal(status: int) -> CloudRefusal:
    return explain(status, b"no", environment=make_cloud_environment(), what="", host=HOST)


def silence() -> CloudRefusal:
    return unreachable(OSError("no answer"), environment=make_cloud_environment(), host=HOST)


def job(*, most: int = 2, limit_s: float | None = None, **retry: tuple[str, ...]) -> JobSpec:
    limits = Limits(wall_clock_s=limit_s, hang_s=60)
    return make_spec(["python"], retry=JobRetry(max=most, **retry), limits=limits)


def attempts(*messages: str, status: str = "Failed") -> list[Attempt]:
    """Each 10 minutes long."""
    return [
        attempt_of(number, details(status, message, ended=610))
        for number, message in enumerate(messages, 1)
    ]


@pytest.mark.parametrize(
    ("spec", "before", "expected"),
    [
        (job(), attempts(PREEMPTED), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts(PREEMPTED, LOST), NextAttempt(number=3, timeout_s=None)),
        (job(), attempts(PREEMPTED, LOST, LOST), None),
        (job(most=0), attempts(PREEMPTED), None),
        (job(on=("node_failure",)), attempts(PREEMPTED), None),
        (job(on=("node_failure",)), attempts(LOST), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts("exited with status code 3"), None),
        (job(), attempts("exited with status code 75"), NextAttempt(number=2, timeout_s=None)),
        (job(), attempts("", status="Canceled"), None),
        (job(), attempts("", status="Running"), None),
        (job(limit_s=3600), attempts(PREEMPTED), NextAttempt(number=2, timeout_s=2940)),
        (job(limit_s=3600), attempts(LOST, LOST), NextAttempt(number=3, timeout_s=2340)),
        (job(limit_s=659), attempts(PREEMPTED), None),
    ],
)
def test_an_attempt_is_due_by_cause_number_and_time_left_as_the_stand_in_says(
    spec: JobSpec, before: list[Attempt], expected: NextAttempt | None
) -> None:
    assert next_attempt(spec, before, SOON) == expected


def test_what_ended_longer_than_a_day_ago_is_left_as_it_is() -> None:
    before = attempts(PREEMPTED)
    day_after = parse_time(before[-1].ended or "") + timedelta(hours=24)
    assert next_attempt(job(), before, day_after) == NextAttempt(number=2, timeout_s=None)
    assert next_attempt(job(), before, day_after + timedelta(seconds=1)) is None


@pytest.fixture
def preempted(tmp_path: Path) -> tuple[MemoryRuns, RunHandle]:
    """A run whose nodes were taken back just now."""
    runs = MemoryRuns(tmp_path)
    now = datetime.now(UTC).isoformat()
    ended = {**details("Failed", PREEMPTED), "startTimeUtc": now, "endTimeUtc": now}
    return runs, runs.add(job(), RUN, ended)


def test_a_cancelled_run_is_not_begun_again(preempted: tuple[MemoryRuns, RunHandle]) -> None:
    runs, handle = preempted
    assert runs.status(handle).state is RunState.PREEMPTED
    cancel_run(runs, handle)
    assert runs.scripted.sent == [f"POST {RUN}/cancel"]
    status = runs.status(handle)
    assert (status.state, status.reason) == (
        RunState.CANCELLED,
        f"Azure took a node away: {PREEMPTED}",
    )
    assert not begin_again(runs, handle)
    assert runs.scripted.sent == [f"POST {RUN}/cancel"]


def test_two_terminals_that_see_the_end_at_once_send_one_attempt(
    preempted: tuple[MemoryRuns, RunHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sends the job of one name: a second `PUT` of it starts nothing."""
    runs, handle = preempted
    put = runs.scripted.put

    def after_another_terminal(*sent: Any, **more: Any) -> Any:
        monkeypatch.setattr(runs.scripted, "put", put)
        assert begin_again(runs, handle)
        return put(*sent, **more)

    monkeypatch.setattr(runs.scripted, "put", after_another_terminal)
    assert begin_again(runs, handle)
    assert runs.scripted.sent == [f"PUT {RUN}_2", f"PUT {RUN}_2"]
    assert not begin_again(runs, handle)


def test_what_another_has_cancelled_since_it_was_seen_is_not_begun_again(
    preempted: tuple[MemoryRuns, RunHandle],
) -> None:
    runs, handle = preempted
    assert runs.status(handle).state is RunState.PREEMPTED
    runs.memory.create(f"{RUN}/cancelled", b"")
    assert not begin_again(runs, handle)
    assert runs.scripted.sent == []


def test_an_attempt_that_is_sent_while_another_cancels_is_cancelled(
    preempted: tuple[MemoryRuns, RunHandle],
) -> None:
    runs, handle = preempted
    runs.scripted.after_put = lambda: runs.memory.create(f"{RUN}/cancelled", b"")
    assert begin_again(runs, handle)
    assert runs.scripted.sent == [f"PUT {RUN}_2", f"POST {RUN}_2/cancel"]


@pytest.mark.parametrize("cut_off", [KeyboardInterrupt(), silence()])
def test_an_attempt_whose_start_was_cut_off_is_looked_for_and_said(
    preempted: tuple[MemoryRuns, RunHandle],
    capsys: pytest.CaptureFixture[str],
    cut_off: BaseException,
) -> None:
    runs, handle = preempted
    assert runs.status(handle).state is RunState.PREEMPTED

    def cut() -> None:
        runs.scripted.details[f"{RUN}_2"] = [None]  # it is carried out later, if at all
        raise cut_off

    runs.scripted.after_put = cut
    with pytest.raises(type(cut_off)):
        begin_again(runs, handle)
    known = f"it is unknown whether attempt 2 of {RUN} is on; launch cancel {RUN} ends it"
    assert known in capsys.readouterr().err
    assert runs.status(handle).state is RunState.QUEUED


def test_an_attempt_that_is_refused_is_not_said_to_be_on(
    preempted: tuple[MemoryRuns, RunHandle], capsys: pytest.CaptureFixture[str]
) -> None:
    runs, handle = preempted

    def refuse() -> None:
        raise refusal(403)

    runs.scripted.after_put = refuse
    with pytest.raises(CloudRefusal):
        begin_again(runs, handle)
    assert capsys.readouterr().err == ""


def test_what_ended_is_asked_for_until_it_is_told_in_full(
    preempted: tuple[MemoryRuns, RunHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run history may be behind: then there is a state, and no reason and no end."""
    runs, handle = preempted
    ticks = count(step=10)
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(ticks)))
    runs.scripted.details[RUN].insert(0, {"status": "Failed"})
    assert runs.status(handle).ended is None
    assert runs.status(handle).state is RunState.PREEMPTED
    assert begin_again(runs, handle)
    assert runs.status(handle).state is RunState.QUEUED


def test_a_cancel_ends_the_attempt_that_another_has_begun_since(
    preempted: tuple[MemoryRuns, RunHandle],
) -> None:
    runs, handle = preempted
    assert runs.newest_attempt(handle) == 1
    runs.scripted.details[f"{RUN}_2"] = [details("Queued")]
    cancel_run(runs, handle)
    assert runs.scripted.sent == [f"POST {RUN}_2/cancel"]


def test_the_same_again_after_a_cancel_is_another_run(
    preempted: tuple[MemoryRuns, RunHandle],
) -> None:
    """Also where whoever sent the job was interrupted, and does not know whether it arrived."""
    runs, handle = preempted
    run_dir = Path(handle.run_dir)
    write_intent(run_dir, Intent(plan_digest="p", code="c", since_s=time.time()))
    cancel_run(runs, handle)
    assert read_intent(run_dir) is None


@pytest.fixture
def never_sent(tmp_path: Path) -> tuple[MemoryRuns, RunHandle]:
    """A run whose `launch` was cut off before it sent the job."""
    runs = MemoryRuns(tmp_path)
    handle = runs.add(job())
    intent = Intent(plan_digest="p", code="c", since_s=time.time())
    write_intent(Path(handle.run_dir), intent)

    def miss(path: str, **_: object) -> None:
        raise refusal(404)

    runs.scripted.post = miss
    return runs, handle


def test_a_run_that_azure_never_got_is_given_up_by_a_cancel(
    never_sent: tuple[MemoryRuns, RunHandle],
) -> None:
    runs, handle = never_sent
    for _ in range(2):
        cancel_run(runs, handle)
        assert read_intent(Path(handle.run_dir)) is None
        status = runs.status(handle)
        reason = "Azure ML never received it: its submission was interrupted or refused"
        assert (status.state, status.reason) == (RunState.LOST, reason)


def test_a_run_that_is_being_submitted_is_not_given_up(
    never_sent: tuple[MemoryRuns, RunHandle],
) -> None:
    runs, handle = never_sent
    run_dir = Path(handle.run_dir)
    with hold(run_dir), pytest.raises(EnvironmentFailure, match="is submitting"):
        cancel_run(runs, handle)
    assert read_intent(run_dir) is not None


def test_a_job_is_ended_though_neither_its_record_nor_the_store_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = MemoryRuns(tmp_path)
    handle = runs.handle(RUN)

    def refuse(*_: object) -> None:
        message = "the firewall lets nobody in"
        raise EnvironmentFailure(message, hint="a VPN")

    for name in ("read", "read_range", "create"):
        monkeypatch.setattr(runs.memory, name, refuse)
    runs.scripted.jobs = [{"name": f"{RUN}_2"}]
    cancel_run(runs, handle)
    assert runs.scripted.sent == [f"POST {RUN}_2/cancel"]


def test_an_attempt_starts_the_code_as_it_was_sent_by_the_command_it_was_sent_for(
    preempted: tuple[MemoryRuns, RunHandle],
) -> None:
    """An upload of an older `launch` has another way to be started."""
    runs, handle = preempted
    sent = submit_attempt(runs.environment, runs.record(handle), 2, runs.client)["properties"]
    assert (sent["command"], sent["codeId"]) == ("run", "code")
