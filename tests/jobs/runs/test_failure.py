"""Whose fault it was: from what the ranks left behind to one verdict."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from jobs.contracts.spec import Launcher, RankError
from jobs.runs.failure import (
    RankReport,
    describe,
    hang_error,
    is_conclusive,
    is_leaving,
    root_cause,
    summary_line,
    why_it_left,
)
from jobs.runs.hanging import Sign, is_in_collective, name_hanging

PEER = (
    "Traceback (most recent call last):\n  x\n"
    "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3000"
)
OWN = 'Traceback (most recent call last):\n  File "/a/train.py", line 7, in f\nValueError: boom'

AT_ITS_END = (
    "Fatal Python error: Aborted\n\nThread 0x7f (most recent call first):\n  <no Python frame>\n"
    "\nExtension modules: numpy.linalg._umath_linalg, torch._C (total: 2)"
)


def report(rank: int, **known: Any) -> RankReport:
    return RankReport(**{"rank": rank, "host": "h", "stage": "command", **known})


def ended(rank: int, at_s: float, **known: Any) -> RankReport:
    return report(rank, exited_s=at_s, ended_s=at_s, **known)


def cause_of(*reports: RankReport, stopped_s: float | None = None) -> tuple[int | None, str, str]:
    error = root_cause(reports, stopped_s=stopped_s)
    assert error is not None
    return error.rank, error.cause, error.message


def test_first_exit_is_the_cause_when_nobody_blames_a_peer() -> None:
    found = cause_of(ended(0, 5.0, exit_code=3, last_lines="bye"), ended(1, 4.0, exit_code=4))
    assert found == (1, "exit code 4", "it left no message")


def test_rank_that_lost_its_peer_is_no_cause_though_it_ended_first() -> None:
    victim = ended(0, 1.0, exit_code=1, traceback=PEER, traceback_s=1.0)
    guilty = ended(1, 2.0, signal=signal.SIGKILL)
    assert cause_of(victim, guilty) == (1, "killed by SIGKILL", "killed")
    # As a shell has it.
    assert describe(guilty).exit_code == 137


@pytest.mark.parametrize(("gone_s", "guilty"), [(30.5, 0), (31.5, 1)])
def test_traceback_that_a_rank_outlived_by_half_a_minute_was_not_its_end(
    gone_s: float, guilty: int
) -> None:
    survivor = ended(0, gone_s, exit_code=1, traceback=OWN, traceback_s=1.0)
    assert cause_of(survivor, ended(1, 20.0, exit_code=4))[0] == guilty


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.TimeoutExpired: Command '['rsync']' timed out after 30 seconds",
        "redis.exceptions.ConnectionError: Connection refused",
        "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected())",
        "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    ],
)
def test_rank_that_lost_somebody_else_than_a_rank_failed_by_itself(line: str) -> None:
    text = OWN.replace("ValueError: boom", line)
    guilty = ended(0, 1.0, exit_code=1, traceback=text, traceback_s=1.0)
    later = ended(1, 2.0, exit_code=1, traceback=OWN, traceback_s=2.0)
    assert cause_of(guilty, later) == (0, "uncaught exception", f"{line} (train.py:7)")


def test_rank_whose_debugger_does_not_listen_failed_while_the_other_waited() -> None:
    line = "ConnectionRefusedError: [Errno 111] Connection refused"
    text = OWN.replace("ValueError: boom", line)
    waiting = ended(0, 3.0, signal=signal.SIGTERM, stopped_s=2.0)
    refused = ended(1, 1.0, exit_code=1, traceback=text, traceback_s=1.0)
    found = cause_of(waiting, refused, stopped_s=2.0)
    assert found == (1, "uncaught exception", f"{line} (train.py:7)")


def test_group_of_exceptions_is_told_by_its_name_and_place() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/a/train.py", line 20, in f\n'
        "  | ExceptionGroup: many (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | ValueError: a\n"
        "    +---------------- 2 ----------------\n"
        "    | ValueError: b\n"
        "    +------------------------------------\n"
    )
    told = ended(0, 1.0, exit_code=1, traceback=group, traceback_s=1.0)
    message = "ExceptionGroup: many (2 sub-exceptions) (train.py:20)"
    assert cause_of(told) == (0, "uncaught exception", message)


def test_torchs_store_that_timed_out_is_a_peer_that_is_gone() -> None:
    line = "RuntimeError: The client socket has timed out after 60000ms while trying to connect"
    assert ended(
        0, 1.0, exit_code=1, traceback=OWN.replace("ValueError: boom", line)
    ).is_about_a_peer


def test_rank_that_was_ended_while_it_blamed_a_peer_is_no_cause() -> None:
    told = {"stopped_s": 3.0, "signal": signal.SIGTERM}
    victim = ended(0, 3.5, traceback=PEER, traceback_s=1.0, **told)
    guilty = ended(1, 2.0, exit_code=1)
    found = cause_of(victim, guilty, stopped_s=3.0)
    assert found == (1, "exit code 1", "it left no message")


def test_rank_that_all_others_lost_is_named_though_it_was_ended_before_it_left() -> None:
    victims = [ended(n, 2.0, exit_code=1, traceback=PEER, traceback_s=2.0) for n in (0, 2)]
    slow = ended(1, 2.5, signal=signal.SIGTERM, stopped_s=2.1)
    assert cause_of(victims[0], slow, victims[1]) == (
        1,
        "left the others",
        "all of them lost it; it was ended before it left by itself",
    )


def test_the_only_witness_of_a_loss_is_quoted() -> None:
    """What it lost may be no rank: rank 1 was well."""
    lost = OWN.replace("ValueError: boom", "BrokenPipeError: [Errno 32] Broken pipe")
    witness = ended(0, 2.0, exit_code=1, traceback=lost, traceback_s=2.0)
    other = ended(1, 2.5, signal=signal.SIGTERM, stopped_s=2.1)
    error = root_cause([witness, other], stopped_s=None)
    assert error is not None
    assert (error.rank, error.traceback) == (1, lost)
    assert error.message == (
        "rank 0 (BrokenPipeError: [Errno 32] Broken pipe (train.py:7)) lost it; "
        "it was ended before it left by itself"
    )


def test_a_tracker_that_cannot_be_reached_is_the_ranks_own_failure() -> None:
    lost = OWN.replace("ValueError: boom", "mlflow.exceptions.MlflowException: Connection refused")
    found = cause_of(
        ended(0, 2.0, exit_code=1, traceback=lost, traceback_s=2.0),
        ended(1, 2.5, signal=signal.SIGTERM, stopped_s=2.1),
        stopped_s=2.1,
    )
    assert found[:2] == (0, "uncaught exception")


def test_a_traceback_that_was_handled_long_before_the_end_is_no_cause() -> None:
    known = {"traceback": OWN, "traceback_s": 10.0, "exit_code": 1}
    lines = "step 7\nerror: the validation set is empty\n"
    handled = ended(0, 7200.0, **known, last_lines=lines)
    assert cause_of(handled) == (0, "exit code 1", "the validation set is empty")
    assert describe(handled).traceback is None
    # Its last words are in its last lines: taking everything apart took that long.
    slow = ended(0, 7200.0, **known, last_lines=f"{OWN}\n")
    assert cause_of(slow) == (0, "uncaught exception", "ValueError: boom (train.py:7)")


def test_rank_that_was_ended_on_its_way_out_keeps_the_exit_code_of_its_traceback() -> None:
    told = {"stopped_s": 3.0, "signal": signal.SIGTERM}
    error = root_cause([ended(0, 3.5, traceback=OWN, traceback_s=1.0, **told)], stopped_s=3.0)
    assert error is not None
    assert (error.cause, error.exit_code) == ("uncaught exception", 1)


def test_traceback_counts_from_its_first_line_not_from_the_exit() -> None:
    slow_to_end = ended(0, 9.0, exit_code=1, traceback=OWN, traceback_s=1.0)
    quick = ended(1, 2.0, exit_code=1, traceback=OWN.replace("boom", "bang"), traceback_s=2.0)
    assert cause_of(slow_to_end, quick) == (
        0,
        "uncaught exception",
        "ValueError: boom (train.py:7)",
    )


def test_what_shows_after_the_gang_was_told_to_stop_is_no_cause() -> None:
    late = ended(0, 3.0, signal=signal.SIGTERM)
    assert root_cause([late], stopped_s=2.0) is None
    told_by_mpirun = ended(0, 3.0, signal=signal.SIGTERM, stopped_s=2.5)
    assert root_cause([told_by_mpirun], stopped_s=None) is None


def test_early_success_is_named_when_the_rest_lost_it() -> None:
    rank, cause, message = cause_of(
        ended(0, 1.0, exit_code=0), ended(1, 2.0, exit_code=1, traceback=PEER, traceback_s=2.0)
    )
    assert (rank, cause) == (1, "uncaught exception")
    assert message.endswith("; before that, rank 0 had ended with exit code 0")


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"exit_code": 3}, "exit code 3: it left no message"),
        ({"exit_code": 3, "last_lines": "a\nb\n"}, "exit code 3: b"),
        ({"exit_code": 1, "traceback": OWN}, "uncaught exception: ValueError: boom (train.py:7)"),
        ({"exit_code": 5, "traceback": OWN}, "exit code 5: ValueError: boom (train.py:7)"),
        ({"signal": signal.SIGTERM}, "killed by SIGTERM: terminated"),
        (
            {"signal": signal.SIGABRT, "traceback": AT_ITS_END},
            "killed by SIGABRT: aborted after the script's end",
        ),
        (
            {"signal": signal.SIGKILL, "out_of_memory": True},
            "out of memory: the kernel killed it (SIGKILL) because memory ran out",
        ),
        (
            {"exit_code": 1, "traceback": "T\n  x\ntorch.cuda.OutOfMemoryError: CUDA"},
            "out of memory: torch.cuda.OutOfMemoryError: CUDA",
        ),
        (
            {"exit_code": 9, "stage": "setup", "setup": "pip install x"},
            "setup failed: `pip install x` gave exit code 9",
        ),
    ],
)
def test_first_line_says_rank_host_and_cause(known: dict[str, Any], line: str) -> None:
    error = root_cause([ended(2, 1.0, **known)], stopped_s=None)
    assert error is not None
    assert summary_line(error) == f"rank 2 on h: {line}"


def test_the_traceback_of_a_crash_ends_before_the_list_of_modules() -> None:
    error = root_cause([ended(0, 1.0, signal=signal.SIGABRT, traceback=AT_ITS_END)], stopped_s=None)
    assert error is not None
    assert error.traceback == AT_ITS_END.partition("\n\nExt")[0]


def diverging(rank: int, at_s: float, *, who: int, extra: str = "") -> RankReport:
    said = f"training has diverged: the loss of rank {who} is not finite at step 7{extra}"
    lines = f"step 6\nerror: {said}\n[W socket.cpp] some grumbling at the end\n"
    return ended(rank, at_s, exit_code=1, last_lines=lines)


def test_rank_whose_loss_was_no_number_is_named_and_not_the_one_that_left_first() -> None:
    own = diverging(2, 3.0, who=2, extra="; samples of rank 2: 5, 9")
    others = [diverging(rank, 1.0 + rank, who=2) for rank in (0, 1)]
    assert cause_of(*others, own) == (
        2,
        "diverged",
        "the loss of rank 2 is not finite at step 7; samples of rank 2: 5, 9",
    )
    # The others are on their way out with it: it is worth a moment's wait.
    assert not is_conclusive([*others, report(2)])
    assert is_conclusive([*others, own])
    # Had it left no word of its own, those of the others would have to do.
    assert cause_of(*others, report(2))[0] == 0


def test_rank_that_cannot_go_on_is_named_and_not_one_that_left_with_it() -> None:
    """All leave at one step, whichever is quicker to end; under mpirun the last one is told to stop."""
    why = "3 corrupt pictures are more than --max-corrupt 2: `a.jpg` is cut off; step 3 is kept"
    others = [
        ended(rank, 1.0, exit_code=1, last_lines="error: another rank cannot go on; step 3 is kept")
        for rank in (0, 1)
    ]
    own = ended(2, 2.0, exit_code=1, last_lines=f"error: {why}\n")
    assert not is_conclusive([*others, report(2)])
    assert cause_of(*others, own) == (2, "exit code 1", why)
    told = ended(2, 2.0, exit_code=1, last_lines=f"error: {why}\n", stopped_s=1.5)
    assert cause_of(*others, told) == (2, "exit code 1", why)


def test_what_the_user_can_mend_counts_before_the_grumbling_after_it() -> None:
    lines = "error: no such folder /x (hint: --data)\nException ignored in: <function f>\n"
    found = cause_of(ended(0, 1.0, exit_code=1, last_lines=lines))
    assert found == (0, "exit code 1", "no such folder /x (hint: --data)")


def test_gang_waits_for_the_others_while_all_that_ended_left_a_checkpoint() -> None:
    left = ended(1, 1.0, exit_code=75, last_lines="preempted: SIGTERM; checkpoint of step 4 kept")
    assert is_leaving([report(0), left])
    assert not is_leaving([report(0), ended(1, 1.0, exit_code=0)])
    assert not is_leaving([ended(0, 2.0, exit_code=1), left])
    told = ended(0, 0.5, exit_code=75, last_lines="preempted: another rank was asked to leave")
    assert why_it_left([told, left], told) == "rank 1 left: SIGTERM; checkpoint of step 4 kept"
    silent = ended(2, 1.0, exit_code=75, last_lines="step 9 loss 0.3")
    assert why_it_left([silent], silent) == "rank 2 checkpointed and left (exit code 75)"


def test_gang_waits_for_more_only_while_all_blame_a_peer() -> None:
    victim = ended(0, 1.0, exit_code=1, traceback=PEER)
    assert not is_conclusive([victim, report(1)])
    assert is_conclusive([victim, ended(1, 2.0, exit_code=1)])
    # A segmentation fault is its own, whatever the log says of peers.
    assert is_conclusive([ended(0, 1.0, signal=signal.SIGSEGV, traceback=PEER)])


# --- hangs -----------------------------------------------------------------------------------


def sign(rank: int, **seen: Any) -> Sign:
    plain = {"is_stopped": False, "has_exited": False, "has_closed_output": False}
    return Sign(**{"rank": rank, **plain, "cpu": 0.0, "silent_s": 9.0, **seen})


BUSY = {"cpu": 0.9}
WAITS = {"is_in_collective": True}


@pytest.mark.parametrize(
    ("launcher", "others", "guilty", "why"),
    [
        ("none", {}, {"is_stopped": True}, "its process is stopped (SIGSTOP)"),
        (
            "none",
            {},
            {"has_exited": True},
            "it ended early with exit code 0, and the others wait for it",
        ),
        ("none", {}, {"has_closed_output": True}, "it closed its output, and the others wait"),
        ("none", {}, BUSY, "it is busy while the others wait for it"),
        ("torch", {}, {"is_runnable": True}, "it is busy while the others wait for it"),
        ("mpi", BUSY, {}, "it stands still while the others spin in their wait for it"),
        ("horovod", BUSY, {}, "it stands still while the others spin in their wait for it"),
        (
            "horovod",
            {**BUSY, **WAITS},
            {**BUSY, "is_in_collective": False},
            "it is not in the collective that the others wait in",
        ),
        (
            "torch",
            WAITS,
            {"is_in_collective": False, "is_asleep": True},
            "it is not in the collective that the others wait in",
        ),
        ("none", {}, {"is_asleep": True}, "it sleeps while the others wait for it"),
        ("none", {}, {"silent_s": 30.0}, "its last sign of life is the oldest"),
    ],
)
def test_hanging_rank_is_named_by_the_surest_sign(
    launcher: Launcher, others: dict[str, Any], guilty: dict[str, Any], why: str
) -> None:
    signs = [sign(0, **others), sign(1, **guilty), sign(2, **others)]
    assert name_hanging(signs, launcher) == (1, why)


def test_lone_rank_gave_no_sign_of_life() -> None:
    assert name_hanging([sign(0)], "none") == (0, "it has given no sign of life")


def test_only_the_current_thread_s_stack_tells_of_a_collective() -> None:
    watchdog = 'Thread 0x1:\n  File "torch/distributed/x.py", line 1 in loop\n\n'
    current = 'Current thread 0x2:\n  File "train.py", line 3 in main\n'
    waiting = 'Current thread 0x2:\n  File "torch/distributed/distributed_c10d.py", line 1\n'
    assert is_in_collective(watchdog + current) is False
    assert is_in_collective(watchdog + waiting) is True
    assert is_in_collective(None) is None


def test_verdict_on_a_hang_says_limit_sign_and_place() -> None:
    stack = 'Fatal Python error: Aborted\n\n  File "/a/train.py", line 9 in f'
    assert hang_error(report(1, traceback=stack), 90.0, "it sleeps") == RankError(
        rank=1,
        host="h",
        cause="hang",
        message="no output of any rank, no metrics and no checkpoint for 90 s; it sleeps (train.py:9)",
        traceback=stack,
        exit_code=124,
    )
