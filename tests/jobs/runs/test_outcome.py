"""How a run ended, in words and codes."""

import pytest

from jobs.contracts.errors import ExitCode
from jobs.contracts.spec import RankError, RunState, RunStatus
from jobs.runs.outcome import (
    EXIT_CODES,
    AttemptBrief,
    advice,
    attempts_of,
    exit_code,
    explanation,
    headline,
    next_commands,
)
from jobs.runs.run_folder import RunEvent

RUN = "20260102-030405-abcd"
ERROR = RankError(
    rank=1,
    host="node-a",
    cause="uncaught exception",
    message="ValueError: no",
    traceback="Traceback ...\nValueError: no\n",
    exit_code=1,
)


def status(state, **changes):
    fields = {
        "id": RUN,
        "name": "j",
        "state": RunState(state),
        "reason": None,
        "exit_code": None,
        "stack": "local",
        "cluster": "cpu",
        "nodes": 1,
        "world_size": 2,
        "created": "2026-01-02T03:04:05.000000Z",
        "started": "2026-01-02T03:04:06.000000Z",
        "ended": "2026-01-02T03:04:48.000000Z",
        "run_dir": "/r",
    }
    return RunStatus(**{**fields, **changes})


def test_every_state_has_the_documented_exit_code():
    assert {state.value: int(code) for state, code in EXIT_CODES.items()} == {
        "queued": 101,
        "preparing": 101,
        "running": 101,
        "completed": 0,
        "failed": 100,
        "cancelled": 103,
        "preempted": 100,
        "lost": 100,
    }


@pytest.mark.parametrize(
    ("state", "own", "code"),
    [
        ("completed", 0, 0),
        ("failed", 3, 3),
        ("failed", -9, 137),
        ("lost", None, ExitCode.FAILED),
        ("running", None, ExitCode.UNFINISHED),
        ("cancelled", None, ExitCode.CANCELLED),
    ],
)
def test_passthrough_gives_the_jobs_own_code_where_it_has_one(state, own, code):
    assert exit_code(status(state, exit_code=own), passthrough=True) == code


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (status("completed"), None, f"{RUN} completed after 42 s"),
        (
            status("completed", reason="rank 0: log: no space"),
            None,
            f"{RUN} completed after 42 s: rank 0: log: no space",
        ),
        (
            status("failed", reason="rank 1"),
            ERROR,
            f"{RUN} failed after 42 s: rank 1 on node-a: uncaught exception: ValueError: no",
        ),
        (
            status("lost", reason="its supervisor is gone", ended=None),
            None,
            f"{RUN} lost: its supervisor is gone",
        ),
        (status("cancelled", reason="cancelled"), ERROR, f"{RUN} cancelled after 42 s"),
        (
            status("queued", reason="2nd in line", started=None, ended=None),
            None,
            f"{RUN} queued: 2nd in line",
        ),
    ],
)
def test_the_first_line_says_state_rank_host_cause_and_words(given, error, text):
    assert headline(given, error) == text


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "ModuleNotFoundError: No module named 'tabulate.x' (train.py:3)",
            "neither the image nor the job's code has `tabulate.x`; in the job file, "
            "`requirements: FILE` adds packages and `code: FOLDER` adds modules",
        ),
        (
            "aborted after the script's end",
            "a script that uses torch.distributed ends with "
            "`torch.distributed.destroy_process_group()`",
        ),
        ("ValueError: No module named 'tabulate'", ""),
    ],
)
def test_a_failure_whose_remedy_is_known_comes_with_it(message, remedy):
    error = RankError(rank=0, host="h", cause="x", message=message, traceback=None, exit_code=1)
    assert advice(error) == remedy
    assert not advice(None)


def test_the_explanation_is_the_traceback_else_the_message():
    assert explanation(ERROR) == "Traceback ...\nValueError: no"
    without = RankError(
        rank=0, host="h", cause="signal", message="killed", traceback=None, exit_code=-9
    )
    assert not explanation(without)  # the first line has it
    assert not explanation(None)


def test_what_to_type_next_names_the_failing_rank_and_the_stack():
    assert next_commands(status("failed"), ERROR, ["-s", "dev"]) == (
        "next:\n"
        f"├── read the log      launch logs {RUN} --rank 1 -s dev\n"
        f"├── what is known     launch show {RUN} -s dev\n"
        f"├── outputs and logs  launch fetch {RUN} -s dev\n"
        f"└── once more         launch rerun {RUN} -s dev"
    )


def test_what_is_fetched_right_after_is_not_offered_to_be():
    told = next_commands(status("completed"), None, [], is_fetched=True)
    assert [line.split()[-2:] for line in told.splitlines()[1:]] == [
        [verb, RUN] for verb in ("report", "logs", "rerun")
    ]


def test_a_run_that_goes_on_can_be_followed_again():
    assert next_commands(status("running"), None, []) == (
        "next:\n"
        f"├── follow again      launch logs -f {RUN}\n"
        f"├── wait for the end  launch wait {RUN}\n"
        f"└── end it            launch cancel {RUN}"
    )


def test_a_run_that_left_a_checkpoint_can_go_on_from_it():
    assert next_commands(status("preempted"), None, [], checkpoint_step=40) == (
        "next:\n"
        f"├── go on from step 40  launch rerun {RUN} --resume\n"
        f"├── read the log        launch logs {RUN}\n"
        f"├── what is known       launch show {RUN}\n"
        f"├── outputs and logs    launch fetch {RUN}\n"
        f"└── once more           launch rerun {RUN}"
    )
    assert "--resume" not in next_commands(status("completed"), None, [], checkpoint_step=40)


def event(ts: str, state: str, **more: str) -> RunEvent:
    return RunEvent(ts=ts, state=RunState(state), **more)


def test_run_that_was_preempted_twice_has_three_attempts() -> None:
    events = [
        event("0", "queued"),
        event("1", "preparing"),
        event("2", "running", attempt="r.1"),
        event("3", "preparing", reason="rank 1 left", attempt="r.1"),
        event("4", "running", attempt="r.2"),
        event("5", "preparing", reason="rank 0 left", attempt="r.2"),
        event("6", "running", attempt="r.3"),
    ]
    first, second, third = attempts_of("r", events)
    assert first == AttemptBrief(
        name="r.1", started="2", ended="3", state=RunState.PREEMPTED, reason="rank 1 left"
    )
    assert (second.started, second.ended, second.reason) == ("4", "5", "rank 0 left")
    assert third == AttemptBrief(
        name="r.3", started="6", ended=None, state=RunState.RUNNING, reason=None
    )


def test_last_attempt_ends_as_the_run_does() -> None:
    events = [event("2", "running"), event("7", "failed", reason="rank 1 on h: it fell")]
    (only,) = attempts_of("r", events)  # a run of before attempts had names
    assert only == AttemptBrief(
        name="r.1", started="2", ended="7", state=RunState.FAILED, reason="rank 1 on h: it fell"
    )


def test_run_whose_ranks_never_started_has_none() -> None:
    assert attempts_of("r", [event("0", "queued"), event("1", "cancelled")]) == []
