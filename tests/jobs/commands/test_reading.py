"""Verbs that read runs or wait for them: what they print of which, and their exit codes."""

import json
import os
import signal
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RunState
from jobs.engines.local.runs import LocalRuns
from jobs.host import console
from jobs.runs.run_folder import RunEvent, append_event
from jobs.runs.supervision import take_lock
from tests.fakes.launching import FakeEngine


def test_ls_is_newest_first_and_limited(launching):
    ids = [launching.add_run(name=f"j{n}") for n in range(4)]
    listed = launching.type("ls", "--json").json()
    assert [run["id"] for run in listed] == ids[::-1]
    typed = launching.type("ls", "--limit", "2")
    assert [line.split()[:3] for line in typed.out.splitlines()] == [
        ["RUN", "NAME", "STATE"],
        [ids[3], "j3", "completed"],
        [ids[2], "j2", "completed"],
    ]
    assert typed.err == "the newest 2; --all shows every run\n"
    assert len(launching.type("ls", "--all", "--json").json()) == 4


@pytest.mark.parametrize("words", [["-n", "2"], ["-n2"], ["--limit=2"]])
def test_ls_is_the_same_however_it_is_parsed(launching, words):
    launching.add_run(), launching.add_run(), launching.add_run()
    typed = launching.type("ls", *words, "--json")
    assert typed.json() == launching.type("ls", "--json").json()[:2]


def test_ls_chooses_runs_before_it_counts_them(launching):
    tags = {"team": "vision", "seed": "1"}
    first = launching.add_run(name="resnet50-a", tags=tags, experiment="sweep")
    second = launching.add_run(name="resnet50-b", ends_as="failed")
    launching.add_run(name="digits", ends_as="cancelled", tags={"team": "audio"})

    def ids(*words):
        return [run["id"] for run in launching.type("ls", "--json", *words).json()]

    assert ids("--name", "resnet50-*") == [second, first]
    assert ids("--name", "resnet50-*", "-n", "1") == [second]
    assert ids("--experiment", "sweep") == ids("--tag", "seed") == [first]
    assert ids("--tag", "team=vision", "--tag", "seed=1") == [first]
    assert ids("--tag", "team=vision", "--tag", "seed=2") == []
    assert ids("--state", "failed", "--state", "completed") == [second, first]
    assert len(ids("--since", "1h")) == 3
    assert ids("--since", "2999-01-01") == []
    typed = launching.type("ls", "--state", "running")
    assert (typed.code, typed.out, typed.err) == (0, "", "no run matches\n")
    typed = launching.type("ls", "--state", "done")
    assert (typed.code, typed.out) == (2, "")
    assert "hint: one of queued, preparing, running, completed" in typed.err


def test_ls_shows_short_ids_on_a_terminal_and_whole_ones_elsewhere(launching, monkeypatch):
    run = launching.add_run(name="a" * 60)
    assert launching.type("ls").out.splitlines()[1].split()[:2] == [run, "a" * 60]
    monkeypatch.setattr(console, "terminal_width", lambda: 80)
    shown = launching.type("ls").out.splitlines()
    assert max(map(len, shown)) <= 80
    short = shown[1].split()[0]
    assert short == run[:15]
    assert launching.type("show", short).out.splitlines()[0].split() == ["run", run]


def test_a_waited_for_run_ends_with_its_figures_and_its_model(launching):
    run = launching.add_run(outputs=("model",))
    run_dir = launching.workspace / "runs" / run
    lines = [
        {"step": 1, "split": "val", "name": "bleu", "value": 0.5},
        {"step": 2, "split": "val", "name": "bleu", "value": 0.25},
    ]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    typed = launching.type("wait", run)
    assert (typed.code, typed.out) == (0, "")
    told = {
        "val bleu": "0.2500 (best 0.5000 at step 1)",
        "model": f"{run_dir}/outputs/model",
        "fetch with": f"launch fetch {run} --env {launching.env_file}",
    }
    lines = [f"{key:10}  {value}" for key, value in told.items()]
    assert typed.err.splitlines() == [f"{run} completed after 42 s", *lines]
    shown = launching.type("show", run).out.splitlines()
    assert [line for line in shown if line in lines] == lines


def test_ls_without_runs_says_what_to_type(launching):
    typed = launching.type("ls")
    assert (typed.code, typed.out, typed.err) == (0, "", "no run yet; launch run digits\n")
    assert launching.type("ls", "--json").json() == []


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], "[0] hello\n[1] there\n"),
        (["--rank", "1"], "[1] there\n"),
        (["--rank", "0-1"], "[0] hello\n[1] there\n"),
        (["-t", "--rank", "0"], "[0] 2026-01-02T03:04:05.000006Z hello\n"),
        (
            ["--json", "--rank", "1"],
            '{"ts":"2026-01-02T03:04:05.000006Z","rank":1,"text":"there"}\n',
        ),
    ],
)
def test_logs_are_prefixed_by_rank(launching, words, lines):
    launching.add_run()
    typed = launching.type("logs", "last", *words)
    assert (typed.code, typed.out, typed.err) == (0, lines, "")


def test_logs_of_a_parameter_server_follow_those_of_the_ranks(launching):
    launching.add_run(processes_per_node=1, parameter_servers=1)
    assert launching.type("logs", "last", "--rank", "1").out == "[1] there\n"
    assert "the run has the ranks 0 to 1" in launching.type("logs", "last", "--rank", "2").err


def test_following_logs_ends_as_the_run_did(launching):
    run = launching.add_run(ends_as="failed")
    typed = launching.type("logs", "-f", run)
    assert (typed.code, typed.out) == (100, "[0] hello\n[1] there\n")
    assert (
        f"{run} failed after 42 s: rank 1 on node-a: uncaught exception: ValueError: no luck\n"
        in typed.err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rank", "x"], "`--rank x`: `x` is not a rank"),
        (["--rank", "2"], "`--rank 2`: the run has the ranks 0 to 1"),
        (["--rank", "3-1"], "`--rank 3-1`: the run has the ranks 0 to 1"),
        (["--rank", "1-0"], "`--rank 1-0` names no rank"),
        (
            ["--grep", "*"],
            "`--grep *` is not a regular expression: nothing to repeat at position 0",
        ),
    ],
)
def test_what_logs_cannot_select_is_a_usage_mistake(launching, words, message):
    launching.add_run()
    typed = launching.type("logs", "last", *words)
    assert typed.code == 2
    assert typed.err.startswith(f"error: {message}\n")


@pytest.mark.parametrize("number", ["²", "9" * 5000, "\udcff"])
@pytest.mark.parametrize(
    "words",
    [
        ["wait", "--timeout"],
        ["logs", "--rank"],
        ["logs", "--tail"],
        ["ls", "--limit"],
        ["run", "JOB", "--nodes"],
        ["plan", "JOB", "--processes-per-node"],
        ["plan", "JOB", "--set", "args.text=", "--cluster"],
    ],
    ids=" ".join,
)
def test_what_python_takes_for_no_number_is_a_usage_mistake(launching, job, words, number):
    launching.add_run()
    typed = launching.type(*(job if word == "JOB" else word for word in words), number)
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("error: ")
    assert "bug in launch" not in typed.err


@pytest.mark.parametrize(
    ("ends_as", "words", "code"),
    [
        ("completed", [], 0),
        ("failed", [], 100),
        ("failed", ["--passthrough"], 3),
        ("cancelled", [], 103),
        ("cancelled", ["--passthrough"], 103),
    ],
)
def test_wait_ends_as_the_run_did(launching, ends_as, words, code):
    launching.add_run(ends_as=ends_as)
    assert launching.type("wait", "last", *words).code == code


def test_wait_passes_a_signal_through_as_a_shell_does(launching):
    run = launching.add_run(ends_as="failed")
    killed = RunEvent(ts="2026-01-02T03:04:48Z", state=RunState.FAILED, exit_code=-signal.SIGTERM)
    append_event(launching.workspace / "runs" / run, killed)
    assert launching.type("wait", run, "--passthrough").code == 143


def test_wait_gives_up_after_its_timeout(launching):
    run = launching.add_run(ends_as="running")
    # A run that nobody looks after would be `lost`, so its lock is held here.
    lock = take_lock(launching.workspace / "runs" / run)
    try:
        typed = launching.type("wait", run, "--timeout", "0.1s")
    finally:
        os.close(lock)
    assert (typed.code, typed.err) == (101, f"{run} running\n")


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf", "1e999", ""])
def test_wait_wants_a_length_of_time(launching, given):
    launching.add_run()
    typed = launching.type("wait", "last", f"--timeout={given}")
    assert (typed.code, typed.err) == (
        2,
        f"error: invalid duration `--timeout {given}`\n\nhint: for example 90s, 10m or 2h\n",
    )


@pytest.mark.parametrize("given", ["90", "60.0", "0.5", "1e3", "2h", "0", "1e-05"])
def test_wait_takes_a_bare_number_for_seconds(launching, given):
    launching.add_run()
    assert launching.type("wait", "last", "--timeout", given).code == 0


def test_cancel_of_a_run_that_is_over_changes_nothing(launching):
    run = launching.add_run()
    for _ in range(2):
        typed = launching.type("cancel", run)
        assert (typed.code, typed.err) == (0, f"{run} was over already (completed)\n")


def test_cancel_looks_up_every_name_before_it_ends_one(launching):
    run = launching.add_run()
    assert launching.type("cancel", run, "19990101").code == 102
    assert FakeEngine.cancelled == []


def test_cancel_ends_the_others_where_one_cannot_be_ended(launching, monkeypatch):
    first, second, third = (launching.add_run() for _ in range(3))
    monkeypatch.setattr(FakeEngine, "cancelled", [])

    def cancel(engine, handle):
        if handle.id != second:
            raise EnvironmentFailure(f"no way to {handle.id}", hint="try")
        engine.cancelled.append(handle.id)

    monkeypatch.setattr(FakeEngine, "cancel", cancel)
    typed = launching.type("cancel", first, second, third)
    assert FakeEngine.cancelled == [second]
    assert typed.code == 1
    assert f"{second} was over already" in typed.err
    for run in (first, third):
        assert f"error: no way to {run}\n" in typed.err


def test_cancel_ends_a_run_whose_state_nobody_tells(launching, monkeypatch):
    run = launching.add_run()
    monkeypatch.setattr(FakeEngine, "cancelled", [])

    def status(store, handle):
        raise EnvironmentFailure("no answer", hint="wait")

    monkeypatch.setattr(LocalRuns, "status", status)
    typed = launching.type("cancel", run)
    assert (FakeEngine.cancelled, typed.code) == ([run], 101)
    assert f"{run} was told to end; whether it did is unknown: no answer" in typed.err


def test_fetch_prints_the_folder(launching):
    run = launching.add_run()
    assert launching.type("fetch", run).out == f"{run}\n"
    typed = launching.type("fetch", run, "--into", "there")
    assert typed.out == "there\n"


def test_show_tells_why_a_run_failed(launching):
    run = launching.add_run(ends_as="failed")
    typed = launching.type("show", run)
    told = dict(line.split(maxsplit=1) for line in typed.out.splitlines()[:5])
    assert told == {
        "run": run,
        "name": "test",
        "state": "failed",
        "reason": "rank 1 on node-a: uncaught exception: ValueError: no luck",
        "exit": "code   3",
    }
    assert typed.out.endswith("\nTraceback (most recent call last):\nValueError: no luck\n")
    shown = launching.type("show", run, "--json").json()
    assert (shown["id"], shown["state"], shown["error"]["rank"]) == (run, "failed", 1)
    assert [event["state"] for event in shown["events"]] == ["queued", "running", "failed"]


@pytest.mark.parametrize("verb", ["show", "logs", "wait", "cancel", "fetch", "rerun"])
def test_an_unknown_run_is_not_found(launching, verb):
    launching.add_run()
    typed = launching.type(verb, "19990101")
    assert (typed.code, typed.err) == (
        102,
        "error: there is no run `19990101`\n\nhint: launch ls\n",
    )


def test_a_run_is_named_by_the_beginning_of_its_id_or_last(launching):
    first, second = launching.add_run(), launching.add_run()
    assert launching.type("show", "last", "--json").json()["id"] == second
    shortest = next(n for n in range(1, 21) if not second.startswith(first[:n]))
    assert launching.type("show", first[:shortest], "--json").json()["id"] == first
    shared = first[: shortest - 1]
    typed = launching.type("show", shared)
    assert (typed.code, typed.err) == (
        2,
        f"error: `{shared}` fits 2 runs\n\nhint: one of {second}, {first}\n",
    )


def test_ls_shortens_a_long_reason(launching):
    launching.add_run(ends_as="failed", reason="x" * 60)
    assert launching.type("ls").out.splitlines()[1].endswith(f"  {'x' * 47}...")
    assert launching.type("ls", "--json").json()[0]["reason"] == "x" * 60


@pytest.fixture
def damaged(launching):
    """The records of two runs: of the newer one its nested too deeply."""
    older, newer = launching.add_run(), launching.add_run()
    Path(launching.workspace, "runs", newer, "run.json").write_bytes(b'{"x": ' + b"[" * 200_000)
    return older, newer


def test_one_damaged_record_keeps_no_other_run_from_being_shown(launching, damaged):
    older, newer = damaged
    path = launching.workspace / "runs" / newer / "run.json"
    told = f"`{path}` is damaged: it is nested too deeply"
    listed = launching.type("ls", "--json")
    assert (listed.code, [each["id"] for each in listed.json()]) == (0, [older])
    assert listed.err == f"warning: {told}\n"
    reported = launching.type("report", older, newer, "--json")
    assert [each["id"] for each in reported.json()["runs"]] == [older]
    assert reported.err == f"warning: {told}\n"
    for words in (["show"], ["logs"], ["report"], ["wait"], ["rerun"], ["diff", older]):
        typed = launching.type(*words, newer)
        assert (typed.code, typed.err.splitlines()[0]) == (1, f"error: {told}"), words


def test_hostile_figures_end_no_report(launching):
    run = launching.add_run()
    run_dir = launching.workspace / "runs" / run
    summaries = (b"[" * 200_000, b'{"epochs": 1' + b"0" * 400 + b"}", b'{"epochs": "\xff"}')
    for summary in summaries:
        (run_dir / "summary.json").write_bytes(summary)
        (run_dir / "metrics.jsonl").write_bytes(summary + b"\n")
        typed = launching.type("report", run, "--json")
        assert (typed.code, typed.json()["runs"][0]["id"]) == (0, run), typed.err
