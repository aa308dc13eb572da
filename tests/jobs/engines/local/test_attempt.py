"""One attempt: when its gang is ended, how, and what the run is told to have come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from jobs.contracts.spec import Limits, RankError, RunState
from jobs.engines.local import attempt, heartbeat
from jobs.engines.local.attempt import (
    CHECKPOINT_GRACE_S,
    GRACE_S,
    LAST_BYTES,
    SERVER_GRACE_S,
    SETTLE_S,
    STACKS_S,
    AttemptRunner,
    Outcome,
)
from jobs.engines.local.gang import Gang
from jobs.engines.local.launchers import gang_request
from jobs.engines.local.wakeup import Interrupted, Wakeup
from jobs.host.processes import MARK
from jobs.runs.failure import LONGEST_MESSAGE, RankReport
from jobs.runs.hanging import Sign
from jobs.runs.supervision import Handover
from tests.fakes.gangs import make_cluster, make_environment, make_spec
from tests.fakes.scripted_gang import ScriptedGang, WrittenFiles
from tests.fakes.turned_clock import TurnedClock

HANG_S = 60.0
LEFT = {"exit_code": 75, "last_lines": "preempted: Azure's event; checkpoint of step 7 is kept"}
PEER = {"exit_code": 1, "last_lines": "RuntimeError: Connection closed by peer"}


class Attempted:
    """An attempt at a run of two ranks, unless told otherwise, and its script."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir = run_dir
        run_dir.mkdir()
        (run_dir / "supervisor.log").write_text("a warning\nits last word\n")
        self.monkeypatch = monkeypatch
        self.clock = TurnedClock(monkeypatch, attempt, heartbeat)
        self.closed = 0
        self.signs: dict[int, Sign] = {}
        monkeypatch.setattr(attempt, "Rendezvous", self.rendezvous)
        monkeypatch.setattr(attempt, "observe", self.observe)
        self.set_up()

    def set_up(self, *, capacity: int = 1, **changes: Any) -> ScriptedGang:
        """Make the gang of this job, on a cluster of `capacity` nodes."""
        self.spec = make_spec(["train"], **{"hang_s": HANG_S, **changes})
        request = gang_request(self.spec, make_cluster(nodes=capacity))
        self.gang = ScriptedGang(self.clock, len(request.ranks))
        self.gang.awaited = {each.rank for each in request.ranks if each.awaited}
        gang, wakeup = cast(Gang, self.gang), cast(Wakeup, self.gang)
        self.runner = AttemptRunner(self.run_dir, self.spec, request, gang, wakeup)
        return self.gang

    def rendezvous(self, _request: object, _interpreter: str, env: Mapping[str, str], _: object):
        self.seen = dict(env)

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(environment={"MASTER_PORT": "7000", "A": "port"}, close=close)

    def observe(self, _run_dir: Path, reports: list[RankReport]) -> list[Sign]:
        return [self.signs.get(each.rank, self.sign(each.rank)) for each in reports]

    @staticmethod
    def sign(rank: int, **seen: Any) -> Sign:
        plain = {"is_stopped": False, "has_exited": False, "has_closed_output": False}
        return Sign(rank=rank, **{**plain, "cpu": 0.0, "silent_s": HANG_S, **seen})

    def run(self, *, limit_s: float = float("inf"), **handed: Any) -> Outcome:
        handover = Handover(
            interpreter="python", environment=make_environment(self.run_dir), secrets=handed
        )
        return self.runner.run(
            handover,
            limit_s=self.clock.now_s + limit_s,
            on_start=lambda: self.gang.done.append((self.clock.passed_s, "ready")),
        )

    def ended(self) -> list[tuple[float, str]]:
        """What was done to the gang after its start, once the rendezvous was closed."""
        assert (self.closed, self.gang.done[:2]) == (1, [(0.0, "ready"), (0.0, "start python")])
        return self.gang.done[2:]


@pytest.fixture
def attempted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempted:
    return Attempted(tmp_path / "run", monkeypatch)


def who(outcome: Outcome) -> tuple[RunState, int | None, int | None, str]:
    """State, exit code, guilty rank and cause."""
    assert outcome.error is not None
    return outcome.state, outcome.exit_code, outcome.error.rank, outcome.error.cause


# --- a good end ------------------------------------------------------------------------------


def test_run_whose_ranks_end_well_is_completed(attempted: Attempted) -> None:
    attempted.gang.ends(0, 3.0, exit_code=0)
    attempted.gang.ends(1, 5.0, exit_code=0)
    assert attempted.run() == Outcome(state=RunState.COMPLETED, exit_code=0)
    assert attempted.ended() == [(5.0, f"stop {SERVER_GRACE_S:g}")]


def test_servers_are_ended_with_the_last_that_is_waited_for_and_their_end_is_no_failure(
    attempted: Attempted,
) -> None:
    gang = attempted.set_up(launcher="tensorflow", parameter_servers=2)
    gang.ends(0, 3.0, exit_code=0)
    gang.ends(1, 5.0, exit_code=0)
    assert attempted.run().state is RunState.COMPLETED
    assert attempted.ended() == [(5.0, f"stop {SERVER_GRACE_S:g}")]
    assert [each.signal for each in gang.ranks] == [None, None, 15, 15]


def test_logs_that_are_not_whole_are_told_of_three_ranks(attempted: Attempted) -> None:
    gang = attempted.set_up(processes_per_node=5)
    for rank in range(5):
        gang.ends(rank, 1.0, exit_code=0, log_error=f"disk {rank}" if rank else None)
    reason = "rank 1: disk 1; rank 2: disk 2; rank 3: disk 3; 1 more ranks failed alike"
    assert attempted.run() == Outcome(state=RunState.COMPLETED, reason=reason, exit_code=0)


def test_what_all_have_yields_to_the_job_the_job_to_the_ports_and_the_mark_to_nothing(
    attempted: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "machine")
    monkeypatch.setenv("B", "machine")
    gang = attempted.set_up(env={"A": "job", "B": "job", MARK: "/elsewhere"})
    for rank in (0, 1):
        gang.ends(rank, 1.0, exit_code=0)
    attempted.run(S="secret", MASTER_PORT="own", **{MARK: "/elsewhere"})
    assert (attempted.seen["A"], gang.environment["A"]) == ("job", "port")
    names = ("B", "MASTER_PORT", "S", MARK)
    expected = ["job", "own", "secret", str(attempted.run_dir)]
    assert [gang.environment[name] for name in names] == expected


@pytest.mark.parametrize(
    ("capacity", "given", "own", "expected"),
    [
        (2, "2,3", {}, None),
        (2, "2,3", {"CUDA_VISIBLE_DEVICES": "5"}, "5"),
        (1, "2,3", {}, "2,3"),
        (2, "2", {}, "2"),
        (2, "-1", {}, "-1"),
    ],
)
def test_gpus_that_the_nodes_share_are_told_to_each_by_itself(
    attempted: Attempted,
    monkeypatch: pytest.MonkeyPatch,
    capacity: int,
    given: str,
    own: dict[str, str],
    expected: str | None,
) -> None:
    monkeypatch.setattr(attempt, "count_gpus", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    gang = attempted.set_up(capacity=capacity, env=own)
    for rank in (0, 1):
        gang.ends(rank, 1.0, exit_code=0)
    attempted.run()
    assert gang.environment.get("CUDA_VISIBLE_DEVICES") == expected


# --- a rank that fails -----------------------------------------------------------------------


def test_rank_that_failed_by_itself_ends_the_others_at_once(attempted: Attempted) -> None:
    attempted.gang.ends(1, 3.0, exit_code=3, last_lines="boom")
    assert who(attempted.run()) == (RunState.FAILED, 3, 1, "exit code 3")
    assert attempted.ended() == [(3.0, f"stop {GRACE_S:g}")]


@pytest.mark.parametrize(("late_s", "guilty", "ended_s"), [(1.0, 1, 4.0), (SETTLE_S + 1, 0, 5.5)])
def test_rank_that_blames_a_peer_gives_it_time_to_leave(
    attempted: Attempted, late_s: float, guilty: int, ended_s: float
) -> None:
    gang = attempted.set_up(processes_per_node=3)
    gang.ends(0, 3.0, **PEER)
    gang.ends(1, 3.0 + late_s, exit_code=3, last_lines="boom")
    assert who(attempted.run())[2] == guilty
    assert attempted.ended() == [(ended_s, f"stop {GRACE_S:g}")]


def test_time_to_leave_counts_from_the_first_that_failed(attempted: Attempted) -> None:
    gang = attempted.set_up(processes_per_node=4)
    for rank, when_s in enumerate((3.0, 4.0, 5.0)):
        gang.ends(rank, when_s, **PEER)
    attempted.run()
    assert attempted.ended() == [(3.0 + SETTLE_S, f"stop {GRACE_S:g}")]


def test_stopped_rank_whose_peers_gave_up_is_the_one(attempted: Attempted) -> None:
    attempted.gang.ends(0, 3.0, **PEER)
    attempted.signs[1] = attempted.sign(1, is_stopped=True)
    outcome = attempted.run()
    assert who(outcome) == (RunState.FAILED, 124, 1, "hang")
    assert outcome.reason == (
        "rank 1 on h: hang: its process is stopped (SIGSTOP); the others gave up waiting for it"
    )


def test_rank_without_memory_is_named_before_a_stopped_one(attempted: Attempted) -> None:
    text = "Traceback (most recent call last):\n  x\nRuntimeError: Connection closed by peer\nMemoryError"
    gang = attempted.set_up(processes_per_node=3)
    gang.ends(0, 3.0, exit_code=1, traceback=text, traceback_s=attempted.clock.now_s + 3.0)
    attempted.signs[1] = attempted.sign(1, is_stopped=True)
    assert who(attempted.run())[2:] == (0, "out of memory")


def test_gang_that_has_lost_its_rendezvous_is_ended_with_its_last_words(
    attempted: Attempted,
) -> None:
    gang = attempted.gang
    attempted.clock.at(3.0, lambda: setattr(gang, "is_helper_lost", True))
    outcome = attempted.run()
    assert who(outcome) == (RunState.FAILED, 1, None, "its rendezvous failed")
    assert outcome.error is not None
    assert outcome.error.message == "its last word"
    assert attempted.ended() == [(3.0, f"stop {GRACE_S:g}")]


def test_mpirun_that_failed_before_its_ranks_is_named(attempted: Attempted) -> None:
    gang = attempted.set_up(launcher="mpi")
    last = b"\xff" + b"x" * (LAST_BYTES - 1)
    (attempted.run_dir / "supervisor.log").write_bytes(b"a" * 5000 + last)

    def end() -> None:
        gang.has_failure, gang.awaited = True, set()

    attempted.clock.at(2.0, end)
    outcome = attempted.run()
    assert who(outcome) == (RunState.FAILED, 1, None, "mpirun failed")
    assert outcome.error is not None
    assert outcome.error.message == "\ufffd" + "x" * (LONGEST_MESSAGE - 1)


# --- leaving after a checkpoint --------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "said"),
    [(None, "; it left no checkpoint"), (7, ""), (9, "; newest checkpoint: step 9")],
)
def test_ranks_that_leave_wait_for_the_one_that_writes_the_checkpoint(
    attempted: Attempted, step: int | None, said: str
) -> None:
    attempted.gang.ends(0, 3.0, **LEFT)
    attempted.gang.ends(1, 2.0 + CHECKPOINT_GRACE_S, exit_code=75)
    if step is not None:
        kept = attempted.run_dir / "checkpoints" / f"step-{step}"
        kept.mkdir(parents=True)
        (kept / "manifest.json").write_text(json.dumps({"step": step}))
    reason = f"rank 0 left: Azure's event; checkpoint of step 7 is kept{said}"
    expected = Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=75)
    assert attempted.run() == expected
    assert attempted.ended() == [(2.0 + CHECKPOINT_GRACE_S, f"stop {SERVER_GRACE_S:g}")]


def test_files_among_the_checkpoints_without_a_manifest_are_told(attempted: Attempted) -> None:
    attempted.gang.ends(0, 3.0, exit_code=75)
    attempted.gang.ends(1, 3.0, exit_code=75)
    folder = attempted.run_dir / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "last.ckpt").touch()
    reason = attempted.run().reason
    assert reason == (
        "rank 0 checkpointed and left (exit code 75); "
        "it left files in checkpoints/, and none is a manifest.json"
    )


def test_checkpoint_that_takes_too_long_is_cut_off(attempted: Attempted) -> None:
    attempted.gang.ends(0, 3.0, **LEFT)
    assert attempted.run().state is RunState.PREEMPTED
    assert attempted.ended() == [(3.0 + CHECKPOINT_GRACE_S, f"stop {GRACE_S:g}")]


def test_rank_that_fails_while_others_leave_is_a_failure_at_once(attempted: Attempted) -> None:
    gang = attempted.set_up(processes_per_node=3)
    gang.ends(0, 3.0, **LEFT)
    gang.ends(1, 4.0, signal=9)
    attempted.run()
    assert attempted.ended() == [(4.0, f"stop {GRACE_S:g}")]


# --- limits ----------------------------------------------------------------------------------


def test_run_past_its_wall_clock_has_the_time_for_a_checkpoint(attempted: Attempted) -> None:
    attempted.set_up(limits=Limits(wall_clock_s=30.0, hang_s=None))
    expected = Outcome(
        state=RunState.FAILED, reason="limits.wall_clock: it ran longer than 30 s", exit_code=124
    )
    assert attempted.run(limit_s=30.0) == expected
    assert attempted.ended() == [(30.0, f"stop {CHECKPOINT_GRACE_S:g}")]
    assert attempted.gang.waits_s == [30.0]


def find_hang(attempted: Attempted) -> RankError:
    outcome = attempted.run()
    assert (outcome.state, outcome.exit_code) == (RunState.FAILED, 124)
    assert outcome.error is not None
    return outcome.error


def test_gang_that_is_silent_for_the_limit_shows_its_stacks_and_ends(attempted: Attempted) -> None:
    attempted.signs[1] = attempted.sign(1, is_asleep=True)
    error = find_hang(attempted)
    assert (error.rank, error.cause) == (1, "hang")
    assert error.message == (
        "no output of any rank, no metrics and no checkpoint for 60 s; "
        "it sleeps while the others wait for it"
    )
    assert attempted.ended() == [(HANG_S, f"abort {STACKS_S:g}")]
    assert attempted.gang.waits_s == [HANG_S]


def test_stack_outside_of_the_collective_names_the_rank(attempted: Attempted) -> None:
    gang = attempted.gang

    def abort(grace_s: float) -> None:
        gang._end(signal=6)
        for rank, frame in enumerate(("distributed_c10d.py", "train.py")):
            stack = f'Fatal Python error: Aborted\n\nCurrent thread 0x7\n  File "{frame}", line 8'
            gang.ranks[rank] = structs.replace(gang.ranks[rank], traceback=stack)

    attempted.monkeypatch.setattr(gang, "abort", abort)
    error = find_hang(attempted)
    assert error.rank == 1
    assert error.message.endswith(
        "it is not in the collective that the others wait in (train.py:8)"
    )


@pytest.mark.parametrize("name", ["logs/rank-00001.log", "metrics.jsonl", "checkpoints/a/part"])
def test_sign_of_life_puts_the_end_off_by_the_limit(attempted: Attempted, name: str) -> None:
    files = WrittenFiles(attempted.run_dir, attempted.clock)
    for when_s in (20.0, 59.0, 119.0):
        attempted.clock.at(when_s, lambda: files.write(name))
    find_hang(attempted)
    ((ended_s, how),) = attempted.ended()
    assert (round(ended_s, 3), how) == (119.0 + HANG_S, f"abort {STACKS_S:g}")


def test_without_a_limit_a_silent_gang_is_left_alone(attempted: Attempted) -> None:
    gang = attempted.set_up(limits=Limits(wall_clock_s=None, hang_s=None))
    for rank in (0, 1):
        gang.ends(rank, 1e6, exit_code=0)
    assert attempted.run().state is RunState.COMPLETED


@pytest.mark.parametrize(("seen", "rank"), [({}, 1), ({"is_stopped": True}, 2)])
def test_idle_server_is_named_for_plain_signs_only(
    attempted: Attempted, seen: dict[str, bool], rank: int
) -> None:
    attempted.set_up(launcher="tensorflow", parameter_servers=1)
    attempted.signs = {
        0: attempted.sign(0, silent_s=60.0),
        1: attempted.sign(1, silent_s=61.0),
        2: attempted.sign(2, silent_s=99.0, **seen),
    }
    assert find_hang(attempted).rank == rank


# --- ended from outside ----------------------------------------------------------------------


def interrupt(cause: str) -> Callable[[], None]:
    def step() -> None:
        raise Interrupted(f"by {cause}", cast(Any, cause))

    return step


def test_interrupted_run_leaves_the_ranks_to_whoever_ends_them(attempted: Attempted) -> None:
    attempted.clock.at(5.0, interrupt("cancel"))
    with pytest.raises(Interrupted, match="by cancel"):
        attempted.run()
    assert attempted.ended() == []


NONE_LEFT = "it left no checkpoint"


@pytest.mark.parametrize(
    ("cause", "ranks", "grace_s", "expected"),
    [
        ("cancel", {}, CHECKPOINT_GRACE_S, (RunState.CANCELLED, "by cancel", 103)),
        ("cancel", LEFT, CHECKPOINT_GRACE_S, (RunState.CANCELLED, NONE_LEFT, 103)),
        ("cancel", {"exit_code": 3}, GRACE_S, (RunState.CANCELLED, "by cancel", 103)),
        ("signal", {}, CHECKPOINT_GRACE_S, (RunState.CANCELLED, "by signal", 103)),
        ("signal", LEFT, CHECKPOINT_GRACE_S, (RunState.PREEMPTED, f"by signal; {NONE_LEFT}", 75)),
        ("watcher", {}, CHECKPOINT_GRACE_S, (RunState.LOST, "by watcher", None)),
        (
            *("watcher", LEFT, CHECKPOINT_GRACE_S),
            (RunState.PREEMPTED, f"by watcher; {NONE_LEFT}", 75),
        ),
    ],
)
def test_end_from_outside_is_told_by_who_wanted_it_and_what_was_saved(
    attempted: Attempted,
    cause: str,
    ranks: dict[str, Any],
    grace_s: float,
    expected: tuple[RunState, str, int | None],
) -> None:
    gang = attempted.gang
    if ranks:
        gang.ranks[0] = structs.replace(gang.ranks[0], ended_s=1.0, exited_s=1.0, **ranks)
        gang.has_failure = True
    outcome = attempted.runner.end_early(Interrupted(f"by {cause}", cast(Any, cause)))
    assert (outcome.state, outcome.reason, outcome.exit_code) == expected
    assert gang.done == [(0.0, f"stop {grace_s:g}")]


def test_rank_that_was_slow_to_leave_after_its_checkpoint_has_left_it(
    attempted: Attempted,
) -> None:
    gang = attempted.gang
    gang.ranks[1] = structs.replace(gang.ranks[1], last_lines=LEFT["last_lines"])
    outcome = attempted.runner.end_early(Interrupted("told to end", "signal"))
    reason = f"told to end; {NONE_LEFT}"
    assert outcome == Outcome(state=RunState.PREEMPTED, reason=reason, exit_code=75)


def test_fault_of_our_own_ends_the_ranks_and_is_the_gangs(attempted: Attempted) -> None:
    outcome = attempted.runner.give_up("no space left on device")
    assert who(outcome) == (RunState.FAILED, 1, None, "cannot run")
    assert attempted.gang.done == [(0.0, f"stop {GRACE_S:g}")]
