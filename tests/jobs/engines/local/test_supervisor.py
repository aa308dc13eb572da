"""A supervisor takes a run from its queue through attempts to one last event, whatever comes between."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobRetry, Limits, RankError, RunRecord, RunState
from jobs.engines.local import preparation, supervisor
from jobs.engines.local.attempt import Outcome
from jobs.engines.local.engine import LocalEngine
from jobs.engines.local.queue import Slots
from jobs.engines.local.supervisor import QUEUE_RECHECK_S, Supervisor
from jobs.engines.local.wakeup import Interrupted, Wakeup
from jobs.runs import supervision
from jobs.runs.run_folder import read_events
from jobs.runs.supervision import Handover
from tests.fakes.gangs import make_environment, make_spec
from tests.fakes.turned_clock import TurnedClock

NAME = "20261123-150000-abcd"
DONE = Outcome(state=RunState.COMPLETED, exit_code=0)
LEFT = Outcome(state=RunState.PREEMPTED, reason="rank 0 left", exit_code=75)
ERROR = RankError(rank=1, host="h", cause="boom", message="x", traceback=None, exit_code=3)
FAILED = Outcome(state=RunState.FAILED, reason="rank 1 on h: boom: x", exit_code=3, error=ERROR)


class Supervised:
    """A run on a cluster of one node, its supervisor, and what its attempts come to, in turn.

    `ends` are outcomes, or what is raised; each attempt takes ten seconds. It is the Wakeup, too:
    `sleeps` are its waits, of which each is ended by one of `wakes`.
    """

    def __init__(self, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace = workspace
        self.run_dir = workspace / "runs" / NAME
        (self.run_dir / "ranks").mkdir(parents=True)
        self.environment = make_environment(workspace)
        self.slots = Slots(workspace, "cpu-test")
        self.clock = TurnedClock(monkeypatch, supervisor)
        self.locks = [self.enqueue(self.run_dir)]
        self.ends: list[Outcome | Exception] = [DONE]
        self.limits_s: list[float] = []
        self.asked: list[str] = []
        self.sleeps: list[float] = []
        self.wakes: list[Callable[[], None]] = []
        self.prepared: list[tuple[int, ...]] = []
        monkeypatch.setattr(supervisor, "prepare", self.prepare)
        monkeypatch.setattr(supervisor, "AttemptRunner", lambda *_, **__: self)
        monkeypatch.setattr(supervisor, "Gang", lambda *_, **__: None)

    def enqueue(self, run_dir: Path) -> int:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = supervision.take_lock(run_dir)
        self.slots.enqueue(run_dir, 1, "normal")
        return lock

    def supervise(self, **changes: Any) -> list[tuple[str, str | None, str | None]]:
        """Take the run to its end; gives state, reason and attempt of its events."""
        engine = LocalEngine(self.environment, runtime=lambda _: Path("python"))
        plan = engine.plan(make_spec(["train"], processes_per_node=1, **changes))
        record = RunRecord(
            schema=1,
            id=NAME,
            created="",
            plan=plan,
            git=None,
            image_digest=None,
            environment_digest="",
        )
        handover = Handover(interpreter="python", environment=self.environment, secrets={})
        Supervisor(self.run_dir, record, handover, cast(Wakeup, self)).run()
        assert NAME not in self.slots.holders()
        return [
            (each.state.value, each.reason, each.attempt and each.attempt.removeprefix(NAME))
            for each in read_events(self.run_dir)
        ]

    # --- as an AttemptRunner ------------------------------------------------------------------

    def run(self, _handover: Handover, *, limit_s: float, on_start: Any) -> Outcome:
        self.limits_s.append(limit_s - self.clock.now_s)
        on_start()
        (self.run_dir / "ranks" / f"of-attempt-{len(self.limits_s)}").touch()
        self.clock.sleep(10.0)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def end_early(self, interruption: Interrupted) -> Outcome:
        self.asked.append(f"end early: {interruption.reason}")
        return Outcome(state=RunState.CANCELLED, reason=interruption.reason, exit_code=103)

    def give_up(self, message: str) -> Outcome:
        self.asked.append(f"give up: {message}")
        return Outcome(state=RunState.FAILED, reason=message, exit_code=1)

    # --- as the preparation and a Wakeup ------------------------------------------------------

    def prepare(self, _run_dir: Path, *_: object, nodes: tuple[int, ...], **__: object) -> None:
        self.prepared.append(nodes)

    def wait(self, timeout_s: float) -> None:
        pytest.fail("nothing is waited for that cannot be interrupted")

    def wait_interruptibly(self, timeout_s: float) -> None:
        self.sleeps.append(timeout_s)
        self.wakes.pop(0)()

    def check(self) -> None:
        pass


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    made = Supervised(tmp_path, monkeypatch)
    yield made
    for lock in made.locks:
        os.close(lock)


PREPARING, RUNNING = ("preparing", None, None), ("running", None, ".1")


def test_run_that_ends_well_enters_each_state_once(supervised: Supervised) -> None:
    assert supervised.supervise() == [PREPARING, RUNNING, ("completed", None, None)]
    assert (supervised.prepared, supervised.sleeps) == ([(0,)], [])


def test_error_of_a_rank_is_kept_beside_the_last_event(supervised: Supervised) -> None:
    supervised.ends = [FAILED]
    assert supervised.supervise() == [PREPARING, RUNNING, ("failed", FAILED.reason, None)]
    told = json.loads((supervised.run_dir / "error.json").read_bytes())
    assert (told["rank"], told["cause"], told["exit_code"]) == (1, "boom", 3)
    assert read_events(supervised.run_dir)[-1].exit_code == 3


def test_run_that_waits_says_for_what_each_time_that_it_changes(supervised: Supervised) -> None:
    slots, first, second = supervised.slots, *(supervised.workspace / "runs" / n for n in "ab")
    slots.release(supervised.run_dir)
    supervised.locks += [supervised.enqueue(run) for run in (first, second)]
    slots.enqueue(supervised.run_dir, 1, "low")
    assert slots.claim(first, 1) == (0,)
    supervised.wakes = [
        lambda: None,
        lambda: slots.release(second),
        lambda: slots.release(first),
    ]
    assert supervised.supervise() == [
        ("queued", "1 run before it in the queue", None),
        ("queued", "waits for 1 node of `cpu`, in use by a", None),
        PREPARING,
        RUNNING,
        ("completed", None, None),
    ]
    assert supervised.sleeps == [QUEUE_RECHECK_S] * 3


def test_run_that_waits_keeps_the_programs_that_it_began_with(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a `git pull` meanwhile would mix the sources of two versions."""
    slots, first = supervised.slots, supervised.workspace / "runs" / "a"
    slots.release(supervised.run_dir)
    supervised.locks += [supervised.enqueue(first)]
    slots.enqueue(supervised.run_dir, 1, "low")
    assert slots.claim(first, 1) == (0,)
    monkeypatch.setattr(preparation, "rank_program", lambda: b"begun")
    program = supervised.run_dir / "rank.pyz"
    seen: list[bool] = []

    def pull() -> None:
        seen.append(program.exists())
        monkeypatch.setattr(preparation, "rank_program", lambda: b"pulled")
        slots.release(first)

    supervised.wakes = [pull]
    supervised.supervise()
    assert (seen, program.read_bytes()) == ([True], b"begun")


@pytest.mark.parametrize(
    ("retry", "ends", "num_attempts"),
    [
        (JobRetry(max=2), [LEFT, LEFT, DONE], 3),
        (JobRetry(max=2), [LEFT, LEFT, LEFT], 3),
        (JobRetry(max=2), [LEFT, FAILED], 2),
        (JobRetry(max=2), [FAILED], 1),
        (JobRetry(), [LEFT], 1),
        (JobRetry(max=2, on=("node_failure",)), [LEFT], 1),
    ],
)
def test_preempted_run_is_started_again_as_often_as_the_job_says(
    supervised: Supervised, retry: JobRetry, ends: list[Outcome | Exception], num_attempts: int
) -> None:
    last = cast(Outcome, ends[-1])
    supervised.ends = list(ends)
    expected: list[tuple[str, str | None, str | None]] = [PREPARING]
    for number in range(1, num_attempts + 1):
        expected.append(("running", None, f".{number}"))
        if number < num_attempts:
            expected.append(("preparing", "rank 0 left", f".{number}"))
    assert supervised.supervise(retry=retry) == [*expected, (last.state.value, last.reason, None)]
    kept = sorted(path.name for path in supervised.run_dir.glob("attempts/*/*"))
    assert kept == [f"of-attempt-{number}" for number in range(1, num_attempts)]
    left = [path.name for path in (supervised.run_dir / "ranks").iterdir()]
    assert left == [f"of-attempt-{num_attempts}"]


@pytest.mark.parametrize(
    ("wall_clock_s", "expected"), [(60.0, [60.0, 50.0, 40.0]), (None, [float("inf")] * 3)]
)
def test_limit_of_the_wall_clock_counts_all_attempts(
    supervised: Supervised, wall_clock_s: float | None, expected: list[float]
) -> None:
    supervised.ends = [LEFT, LEFT, DONE]
    limits = Limits(wall_clock_s=wall_clock_s, hang_s=None)
    supervised.supervise(retry=JobRetry(max=2), limits=limits)
    assert supervised.limits_s == expected


CANCELLED = Interrupted("cancelled", "cancel")


@pytest.mark.parametrize(
    ("raised", "asked"),
    [
        (CANCELLED, "end early: cancelled"),
        (LaunchError("no such image", hint="launch images build"), None),
        (LaunchError("no such image"), "give up: no such image"),
        (OSError(28, "No space left on device"), "give up: [Errno 28] No space left on device"),
        (ValueError("embedded null byte"), "give up: embedded null byte"),
    ],
)
@pytest.mark.parametrize("stage", ["preparing", "running"])
def test_what_keeps_a_run_from_going_on_ends_its_gang_and_is_its_reason(
    supervised: Supervised,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    raised: Exception,
    asked: str | None,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    if stage == "preparing":
        monkeypatch.setattr(supervisor, "prepare", fail)
    else:
        supervised.ends = [raised]
    told = asked or "give up: no such image (launch images build)"
    *before, (state, reason, _) = supervised.supervise()
    assert before == [PREPARING, RUNNING][: 1 if stage == "preparing" else 2]
    assert (state, reason) == (
        "cancelled" if raised is CANCELLED else "failed",
        told.partition(": ")[2],
    )
    assert supervised.asked == [told]


def test_run_that_is_cancelled_between_two_attempts_gets_no_other(supervised: Supervised) -> None:
    supervised.ends = [LEFT, DONE]

    def check() -> None:
        if supervised.limits_s:
            raise CANCELLED

    supervised.check = check
    assert supervised.supervise(retry=JobRetry(max=5)) == [
        PREPARING,
        RUNNING,
        ("cancelled", "cancelled", None),
    ]


def test_run_whose_folder_was_deleted_ends_silently_and_gives_its_nodes_back(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = supervised.run

    def run(*arguments: Any, **options: Any) -> Outcome:
        outcome = attempt(*arguments, **options)
        shutil.rmtree(supervised.run_dir)
        return outcome

    monkeypatch.setattr(supervised, "run", run)
    assert supervised.supervise() == []
    assert not supervised.run_dir.exists()
