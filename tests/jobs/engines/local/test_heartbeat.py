"""A gang's signs of life: what counts as one and since when, and what each rank does meanwhile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from jobs.engines.local import heartbeat
from jobs.engines.local.heartbeat import CPU_SAMPLE_S, Activity, observe
from jobs.host.processes import Glance, Process
from jobs.runs.failure import RankReport
from jobs.runs.hanging import Sign
from tests.fakes.turned_clock import TurnedClock

LIMIT_S = 60.0
METRICS, PROGRESS = "metrics.jsonl", "progress.json"
DEEP = "checkpoints/step-1/deeper/weights.part"


class Watched:
    """A run of two ranks, looked at by a clock that the test turns."""

    def __init__(self, folder: Path, clock: TurnedClock) -> None:
        self.folder, self.clock = folder, clock
        (folder / "logs").mkdir()
        (folder / DEEP).parent.mkdir(parents=True)

    def write(self, name: str, *, ago_s: float = 0.0) -> None:
        """Append to a file, as a rank did so long ago by the clock on the wall."""
        with (self.folder / name).open("ab") as file:
            file.write(b"x")
        when_s = self.clock.time() - ago_s
        os.utime(self.folder / name, (when_s, when_s))

    def activity(self, limit_s: float | None = LIMIT_S) -> Activity:
        return Activity(self.folder, 2, limit_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch, heartbeat)


@pytest.fixture
def watched(tmp_path: Path, clock: TurnedClock) -> Watched:
    return Watched(tmp_path, clock)


def test_silence_of_the_whole_limit_is_a_hang_and_not_a_moment_less(watched: Watched) -> None:
    watched.write("logs/rank-00000.log")
    activity = watched.activity()
    watched.clock.sleep(LIMIT_S - 0.001)
    assert not activity.is_silent()
    watched.clock.sleep(0.001)
    assert activity.is_silent()


@pytest.mark.parametrize(
    "name", ["logs/rank-00000.log", "logs/rank-00001.log", METRICS, PROGRESS, DEEP]
)
def test_byte_of_any_rank_of_metrics_or_of_a_checkpoint_puts_the_hang_off(
    watched: Watched, name: str
) -> None:
    activity = watched.activity()
    for _ in range(2):
        watched.clock.sleep(LIMIT_S + 1)
        watched.write(name, ago_s=20.0)
        assert not activity.is_silent()
        # From the sign on, not from the look at it.
        assert activity.deadline_s == pytest.approx(watched.clock.now_s + LIMIT_S - 20.0)
    watched.clock.sleep(LIMIT_S - 20.0)
    assert activity.is_silent()


@pytest.mark.parametrize("name", ["logs/rank-00002.log", "outputs.txt", "events.jsonl"])
def test_what_nobody_of_the_gang_writes_is_no_sign_of_life(watched: Watched, name: str) -> None:
    activity = watched.activity()
    watched.clock.sleep(LIMIT_S)
    watched.write(name)
    assert activity.is_silent()


@pytest.mark.parametrize("way", ["copy", "removal"])
def test_copy_that_keeps_its_time_and_a_removal_count_as_of_the_look(
    watched: Watched, way: str
) -> None:
    watched.write(DEEP, ago_s=5.0)
    watched.write("checkpoints/old")
    activity = watched.activity()
    watched.clock.sleep(LIMIT_S)
    if way == "copy":
        watched.write("checkpoints/copied", ago_s=86400.0)
    else:
        (watched.folder / DEEP).unlink()
    assert not activity.is_silent()
    assert activity.deadline_s == watched.clock.now_s + LIMIT_S


@pytest.mark.parametrize("set_s", [3600.0, -3600.0, 5.0])
@pytest.mark.parametrize("first", ["the sign", "the clock"])
def test_clock_that_is_set_makes_the_wait_longer_and_never_shorter(
    watched: Watched, set_s: float, first: str
) -> None:
    """Also where a machine slept: its monotonic clock stands still then, and the other one does not."""
    activity = watched.activity()
    watched.clock.sleep(LIMIT_S - 10)
    if first == "the sign":
        watched.write(METRICS)
        watched.clock.ahead_s += set_s
    else:
        watched.clock.ahead_s += set_s
        watched.write(METRICS)
    sign_s = watched.clock.now_s
    watched.clock.sleep(10)
    assert not activity.is_silent()
    assert sign_s + LIMIT_S <= activity.deadline_s <= watched.clock.now_s + LIMIT_S
    watched.clock.sleep(LIMIT_S)
    assert activity.is_silent()


def test_file_from_the_future_counts_as_of_now(watched: Watched) -> None:
    activity = watched.activity()
    watched.clock.sleep(LIMIT_S)
    watched.write(METRICS, ago_s=-86400.0)
    assert not activity.is_silent()
    assert activity.deadline_s == watched.clock.now_s + LIMIT_S


def test_without_a_limit_nothing_is_silent(watched: Watched) -> None:
    activity = watched.activity(None)
    watched.clock.sleep(1e9)
    assert (activity.deadline_s, activity.is_silent()) == (float("inf"), False)


# --- each rank for a moment ------------------------------------------------------------------

PARENT, CHILD, THREADED = 500, 501, 502  # rank/main.py, its command, what that started


def process(pid: int, parent: int, state: str, cpu_s: float) -> Process:
    return Process(pid=pid, parent=parent, state=state, cpu_s=cpu_s, start=1)


@pytest.fixture
def look(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[Process], list[Process], list[Glance | None]], Sign]:
    """Give what is seen of one rank, from two looks at the machine and two glances at its command."""

    def seen(before: list[Process], after: list[Process], glances: list[Glance | None]) -> Sign:
        tables = iter([{each.pid: each for each in table} for table in (before, after)])
        left = iter(glances)
        monkeypatch.setattr(heartbeat, "read_table", lambda: next(tables))
        monkeypatch.setattr(heartbeat, "glance", lambda _pid: next(left))
        watched.write("logs/rank-00003.log", ago_s=42.0)
        (sign,) = observe(watched.folder, [RankReport(rank=3, pid=PARENT, child=CHILD)])
        return sign

    return seen


IDLE = Sign(
    rank=3,
    is_stopped=False,
    has_exited=False,
    has_closed_output=False,
    cpu=0.0,
    silent_s=42.0 + CPU_SAMPLE_S,
)


def gang(state: str, *cpu_s: float) -> list[Process]:
    """rank/main.py, its command in this state and a process of that, with the time they used."""
    own_s, below_s = cpu_s or (0.0, 0.0)
    return [
        process(PARENT, 1, "S", 9.0 * own_s),
        process(CHILD, PARENT, state, own_s),
        process(THREADED, CHILD, "S", below_s),
    ]


@pytest.mark.parametrize(
    ("before", "after", "glances", "expected"),
    [
        pytest.param(gang("S"), gang("S"), [Glance(False, 7), Glance(False, 7)], {}, id="waits"),
        pytest.param(gang("S"), gang("S"), [Glance(True, 7)] * 2, {"is_asleep": True}, id="sleeps"),
        pytest.param(gang("S"), gang("S"), [Glance(True, 7), Glance(True, 8)], {}, id="polls"),
        pytest.param(
            gang("R", 1.0, 1.0),
            gang("R", 1.0 + CPU_SAMPLE_S / 2, 1.0 + CPU_SAMPLE_S / 4),
            [Glance(False, 7)] * 2,
            {"is_runnable": True, "cpu": 0.75},
            id="busy-with-what-it-started",
        ),
        pytest.param(
            gang("R"), gang("R"), [Glance(False, 7), Glance(False, 9)], {}, id="busy-but-waits"
        ),
        pytest.param(gang("R"), gang("S"), [Glance(False, 7)] * 2, {}, id="runnable-for-a-moment"),
        pytest.param(
            gang("T"), gang("T"), [Glance(False, 7)] * 2, {"is_stopped": True}, id="stopped"
        ),
        pytest.param(
            [process(PARENT, 1, "S", 0.0), process(CHILD, PARENT, "S", 0.0)],
            [process(PARENT, 1, "t", 0.0), process(CHILD, PARENT, "S", 0.0)],
            [Glance(False, 7)] * 2,
            {"is_stopped": True},
            id="its-keeper-is-traced",
        ),
        pytest.param(gang("S"), [], [Glance(True, 7), None], {}, id="gone-meanwhile"),
        pytest.param([], gang("S", 5.0, 5.0), [None, Glance(True, 7)], {}, id="new-meanwhile"),
    ],
)
def test_rank_is_seen_as_what_it_does(
    look: Callable[..., Sign],
    before: list[Process],
    after: list[Process],
    glances: list[Glance | None],
    expected: dict[str, object],
) -> None:
    sign = look(before, after, glances)
    assert structs.replace(sign, cpu=round(sign.cpu, 6), silent_s=round(sign.silent_s, 6)) == (
        structs.replace(IDLE, **expected)
    )


def test_what_a_rank_has_reported_is_among_its_signs(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "read_table", dict)
    monkeypatch.setattr(heartbeat, "glance", lambda _pid: Glance(is_asleep=True, num_waits=7))
    reports = [
        RankReport(rank=0, exit_code=0, ended_s=5.0, output_closed_s=5.0),
        RankReport(rank=1, output_closed_s=5.0),
        RankReport(rank=2),
    ]
    signs = observe(watched.folder, reports)
    seen = [(each.has_exited, each.has_closed_output, each.is_asleep) for each in signs]
    assert seen == [(True, False, False), (False, True, True), (False, False, True)]
    assert [each.silent_s for each in signs] == [float("inf")] * 3  # they never wrote a log


def test_stopped_process_is_told_from_one_that_sleeps(tmp_path: Path) -> None:
    """The one look at real processes; what they are taken for is in the table above."""
    with (
        subprocess.Popen(["sleep", "3600"]) as asleep,
        subprocess.Popen(["sh", "-c", "kill -STOP $$"]) as stopped,
    ):
        try:
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
            children = (asleep.pid, stopped.pid)
            reports = [RankReport(rank=n, child=pid) for n, pid in enumerate(children)]
            signs = observe(tmp_path, reports)
            assert [each.is_stopped for each in signs] == [False, True]
        finally:
            asleep.kill()
            stopped.kill()
