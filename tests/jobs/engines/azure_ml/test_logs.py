"""Logs of all ranks of a run on Azure ML: as one, by range, followed over troubles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import JobRetry, LogLine, RunHandle
from jobs.engines.azure_ml import logs
from jobs.engines.azure_ml import status as watch
from jobs.engines.azure_ml.logs import read_logs
from jobs.engines.azure_ml.preparation_logs import BuildNews, preparation_lines
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.gangs import make_spec

PREEMPTED = "PreemptionError: Nodes of this job got pre-empted."
LOG = "user_logs/std_log_process_{}.txt"


def stamped(second: float, text: str) -> str:
    return f"2026-11-21T12:00:{second:09.6f}Z {text}\n"


class Clock:
    """Time that passes only while somebody sleeps; then `happens` takes its next step."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.happens: Iterator[Any] = iter(())

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.1)
        assert self.now_s < 10_000, "nobody ends this"
        next(self.happens, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (logs, watch):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def runs(tmp_path: Path) -> MemoryRuns:
    return MemoryRuns(tmp_path)


def told(lines: Iterator[LogLine]) -> list[tuple[int, str]]:
    return [(line.rank, line.text) for line in lines]


def add(runs: MemoryRuns, *answers: Any, ranks: int = 2, **changes: Any) -> RunHandle:
    return runs.add(make_spec(["x"], processes_per_node=ranks, **changes), RUN, *answers)


def finished(runs: MemoryRuns) -> RunHandle:
    """Two ranks, ten lines each, in turns; the last one is cut off."""
    for second in range(20):
        text = stamped(second, f"line {second}")
        runs.logs.write(RUN, LOG.format(second % 2), text if second < 19 else text[:-1])
    return add(runs, details("Completed", ended=30))


@pytest.mark.parametrize("block", [64, 1 << 20], ids=["small-blocks", "large-blocks"])
def test_filters_choose_lines_of_all_ranks_by_time(
    runs: MemoryRuns, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(logs, "_share", lambda *_: block)
    handle = finished(runs)

    def read(ranks: list[int] | None = None, **filters: Any) -> list[tuple[int, str]]:
        return told(read_logs(runs, handle, ranks, follow=False, **filters))

    expected = [(second % 2, f"line {second}") for second in range(20)]
    assert read() == expected
    assert read([1]) == expected[1::2]
    assert read(grep=re.compile("1")) == [each for each in expected if "1" in each[1]]
    assert read(since=stamped(13, "")[:27]) == expected[13:]
    whole = expected[:19]  # what has no end is no line yet for who reads from the end
    assert read(tail=3) == whole[-3:]
    assert read(tail=2, grep=re.compile("[05]")) == [whole[10], whole[15]]
    assert read(tail=50, since=stamped(15, "")[:27]) == whole[15:]


def test_following_gives_each_line_once_and_reads_only_what_is_new(
    runs: MemoryRuns, clock: Clock
) -> None:
    handle = add(runs, details("Running"))
    runs.logs.write(RUN, LOG.format(0), stamped(1, "before"))

    def happens() -> Iterator[None]:
        runs.logs.write(RUN, LOG.format(0), stamped(2, "a") + stamped(4, "c"))
        runs.logs.write(RUN, LOG.format(1), stamped(3, "b"))
        yield
        yield
        runs.logs.write(RUN, LOG.format(1), stamped(5, "last"))
        runs.scripted.details[RUN] = [details("Completed", ended=30)]
        for _ in range(10):
            yield

    clock.happens = happens()
    read = told(read_logs(runs, handle, None, follow=True))
    assert read == [(0, "before"), (0, "a"), (1, "b"), (0, "c"), (1, "last")]
    assert runs.logs.num_read == 4
    assert runs.logs.store.requests.count(f"list ExperimentRun/dcid.{RUN}/user_logs/") < 10


def test_each_look_reads_only_what_is_new_and_the_last_one_what_has_no_end(
    runs: MemoryRuns, clock: Clock
) -> None:
    handle = add(runs, details("Running"))
    runs.logs.write(RUN, LOG.format(0), stamped(1, "old") + stamped(2, "shown"))
    looks = logs.watch_logs(runs, handle, None, tail=1)
    assert told(next(looks)) == [(0, "shown")]
    assert told(next(looks)) == []
    runs.logs.write(RUN, LOG.format(0), stamped(4, "b"))
    runs.logs.write(RUN, LOG.format(1), stamped(3, "a"))
    assert told(next(looks)) == [(1, "a"), (0, "b")]
    assert runs.logs.num_read == 3
    runs.logs.write(RUN, LOG.format(1), stamped(5, "last")[:-1])
    runs.scripted.details[RUN] = [details("Completed", ended=30)]
    clock.sleep(60)  # a state is asked for again after a while
    assert told(next(looks)) == [(1, "last")]
    listed = runs.logs.store.requests.count(f"list ExperimentRun/dcid.{RUN}/user_logs/")
    assert told(next(looks)) == []
    again = runs.logs.store.requests.count(f"list ExperimentRun/dcid.{RUN}/user_logs/")
    assert again == listed


def test_a_tail_is_followed_from_where_it_ended(runs: MemoryRuns, clock: Clock) -> None:
    handle = add(runs, details("Running"))
    runs.logs.write(RUN, LOG.format(0), stamped(1, "old") + stamped(2, "shown") + "2026-11-21T12:")

    def happens() -> Iterator[None]:
        runs.logs.write(RUN, LOG.format(0), stamped(3, "new")[14:])
        runs.scripted.details[RUN] = [details("Completed", ended=30)]
        for _ in range(10):
            yield

    clock.happens = happens()
    assert told(read_logs(runs, handle, None, follow=True, tail=1)) == [(0, "shown"), (0, "new")]


def test_a_store_that_is_away_is_waited_for_and_no_line_is_lost(
    runs: MemoryRuns, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = add(runs, details("Running"))
    runs.logs.write(RUN, LOG.format(0), stamped(1, "a"))

    def happens() -> Iterator[None]:
        runs.logs.troubles = [Unreached("away", hint=None) for _ in range(3)]
        runs.logs.write(RUN, LOG.format(0), stamped(2, "b"))
        yield
        runs.scripted.details[RUN] = [details("Completed", ended=30)]
        for _ in range(20):
            yield

    clock.happens = happens()
    assert told(read_logs(runs, handle, None, follow=True)) == [(0, "a"), (0, "b")]
    assert capsys.readouterr().err.count("away; trying again") == 1


def test_last_bytes_that_do_not_come_are_asked_for_a_few_times(
    runs: MemoryRuns, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = add(runs, details("Running"))
    runs.logs.write(RUN, LOG.format(0), stamped(1, "a"))
    reads: list[str] = []

    def nothing(_job: str, parts: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        reads.extend(name for name, *_ in parts)
        return iter([b""] * len(parts))

    def happens() -> Iterator[None]:
        runs.logs.write(RUN, LOG.format(0), stamped(2, "b"))
        monkeypatch.setattr(runs.logs, "read_parts", nothing)
        runs.scripted.details[RUN] = [details("Completed", ended=30)]
        yield

    clock.happens = happens()
    assert told(read_logs(runs, handle, None, follow=True)) == [(0, "a")]
    assert 5 <= len(reads) <= 7
    # They are given some time: four times 0.75 s.
    assert clock.now_s > 3


@pytest.mark.parametrize(
    ("trouble", "soonest_s", "latest_s"),
    [(Unreached, 890, 910), (EnvironmentFailure, 0, 10)],
    ids=["away-for-ever", "refused"],
)
def test_a_store_that_stays_away_or_refuses_is_said(
    runs: MemoryRuns,
    clock: Clock,
    trouble: Callable[..., Exception],
    soonest_s: float,
    latest_s: float,
) -> None:
    handle = add(runs, details("Running"))

    def happens() -> Iterator[None]:
        runs.logs.troubles = [trouble("no", hint=None) for _ in range(2000)]
        yield

    clock.happens = happens()
    with pytest.raises(EnvironmentFailure, match="no"):
        list(read_logs(runs, handle, None, follow=True))
    assert soonest_s < clock.now_s < latest_s


def test_attempts_follow_one_another(runs: MemoryRuns) -> None:
    failed = details("Failed", PREEMPTED, ended=30)
    handle = add(runs, failed, retry=JobRetry(max=2))
    again = f"{RUN}_2"
    runs.scripted.details[again] = [details("Completed", ended=59)]
    runs.logs.write(RUN, LOG.format(0), stamped(11, "first"))
    runs.logs.write(again, LOG.format(0), stamped(41, "second"))
    assert told(read_logs(runs, handle, None, follow=False)) == [(0, "first"), (0, "second")]
    since = "2026-11-21T12:00:30.500000Z"
    runs.logs.store.requests.clear()
    read = read_logs(runs, handle, None, follow=True, since=since)
    assert told(read) == [(0, "second")]
    # An attempt that ended before is not looked at.
    assert runs.logs.store.requests
    assert all(f"dcid.{again}/" in request for request in runs.logs.store.requests)


def test_many_ranks_are_read_in_turns(
    runs: MemoryRuns, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_READ", 10)
    handle = add(runs, details("Running"), ranks=100)
    per_period: list[int] = []

    def happens() -> Iterator[None]:
        for second in range(20):
            for rank in range(100):
                runs.logs.write(RUN, LOG.format(rank), stamped(second, "x"))
            per_period.append(runs.logs.num_read)
            yield
        runs.scripted.details[RUN] = [details("Completed", ended=30)]
        for _ in range(30):
            yield

    clock.happens = happens()
    read = told(read_logs(runs, handle, None, follow=True))
    assert sorted(read) == sorted((rank, "x") for rank in range(100) for _ in range(20))
    reads = [later - before for before, later in pairwise(per_period)]
    assert max(reads) == 10


def test_a_run_without_a_job_has_no_logs(runs: MemoryRuns) -> None:
    handle = add(runs, None)
    assert told(read_logs(runs, handle, None, follow=True)) == []


def test_preparation_is_told_whole_and_while_it_happens(
    runs: MemoryRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = add(runs, details("Preparing"))
    build, node = "azureml-logs/20_image_build_log.txt", "system_logs/lifecycler/lifecycler.log"
    runs.logs.write(RUN, build, "Step 1\nStep")
    runs.logs.write(RUN, node, "pulling\n")
    monkeypatch.setattr("jobs.engines.azure_ml.preparation_logs.PERIOD_S", 0.0)
    news = BuildNews(runs, handle)
    assert news.lines() == ["Step 1"]
    assert news.lines() == []
    runs.logs.write(RUN, build, " 2\n")
    assert news.lines() == ["Step 2"]
    runs.logs.troubles = [Unreached("away", hint=None)]
    assert news.lines() == []
    assert list(preparation_lines(runs, handle)) == [
        (build, "Step 1"),
        (build, "Step 2"),
        (node, "pulling"),
    ]
