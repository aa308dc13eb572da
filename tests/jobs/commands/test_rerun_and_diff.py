"""`launch rerun` and `launch diff`: once more, and what parts two runs."""

import json
from functools import partial
from pathlib import Path

import msgspec

from tests.fakes.launching import FakeEngine


def test_rerun_runs_the_same_with_what_is_set(launching, job):
    launching.type("run", job, "--detach", "--set", "limits.wall_clock=90m", "--set", "tags.a=b")
    launching.type("rerun", "last", "--set", "args.epochs=9", "--set", "args.amp=true")
    first, second = (plan.spec for plan, _ in FakeEngine.submitted)
    assert second == msgspec.structs.replace(
        first, command=("python", "train.py", "--epochs", "9", "--amp")
    )


def command_of_rerun(launching, *assignments):
    """What a rerun of the last run would start, or why it starts nothing."""
    words = [f"--set={each}" for each in assignments]
    typed = launching.type("rerun", "last", "--dry-run", "--json", *words)
    return typed.json()["spec"]["command"] if typed.code == 0 else typed.err


def test_a_rerun_drops_no_word_behind_an_option_unsaid(launching):
    command = "[python, main.py, -a, r50, --lr, 0.1, --fine, /data]"
    launching.type("run", launching.write_job(f"name: x\nimage: none\ncommand: {command}\n"), "-d")

    planned = partial(command_of_rerun, launching)
    assert "`--set args.fine=false` drops `/data`" in planned("args.fine=false", "args.lr=0.2")
    head = ["python", "main.py", "-a", "r50", "--lr", "0.2"]
    assert planned("args.lr=0.2") == [*head, "--fine", "/data"]
    assert planned("args.lr=0.2", "args.fine=[]") == head
    assert planned("args=[-a, r50, --lr, 0.2, /data]") == [*head, "/data"]


def test_a_rerun_of_a_notebook_sets_its_parameters(launching):
    (launching.folder / "train.ipynb").write_text('{"cells": []}')
    head = "name: x\nimage: none\nscript: train.ipynb\nprocesses_per_node: 1\n"
    given = "args: {batch-size: 8, lr: 0.1, tags: [a], amp: true, note: '1'}\n"
    planned = partial(command_of_rerun, launching)
    for text in (head + given, head):
        launching.type("run", launching.write_job(text), "--detach")

        recorded = list(FakeEngine.submitted[-1][0].spec.command)
        assert planned() == recorded
        before = json.loads(recorded[3]) if text != head else {}
        *same, parameters = planned("args.lr=1e-3", "args.amp=false", "args.batch-size=16")
        assert same == recorded[:3]
        assert json.loads(parameters) == {**before, "lr": 0.001, "amp": False, "batch_size": 16}
        assert "is not the name of a variable" in planned("args.1=2")
        assert "a notebook has parameters" in planned("args=[1, 2]")


def test_a_rerun_of_our_programs_knows_what_each_option_takes(launching):
    launching.type("run", "mnist-synthetic", "--set", "args.seed=3")
    typed = launching.type("rerun", "last", "--dry-run", "--json", "--set", "args.seed=null")
    assert "--seed" not in typed.json()["spec"]["command"]


def test_a_dry_rerun_shows_the_plan_and_starts_nothing(launching, job):
    run = launching.type("run", job, "--detach").out.strip()
    before = launching.run_folders()
    told = launching.type("rerun", run, "--set", "env.A=b", "--dry-run", "--json").json()
    assert told["spec"]["env"]["A"] == "b"
    planned = launching.type("plan", job, "--set", "env.A=b", "--json").json()
    assert told.keys() == planned.keys()
    assert launching.type("rerun", run, "--dry-run").out.splitlines()[0].split()[0] == "job"
    assert launching.run_folders() == before


def test_rerun_checks_what_is_set_by_the_options_of_our_program(launching):
    launching.type("run", "mnist-synthetic")
    ran = len(launching.runs())
    typed = launching.type("rerun", "last", "--set", "args.epohcs=9")
    assert (typed.code, typed.err) == (
        2,
        "error: --set args.epohcs=9: the program has no option `epohcs`\n\n"
        "hint: did you mean `epochs`?\n",
    )
    assert len(launching.runs()) == ran == 1
    launching.type("rerun", "last", "--set", "args.epochs=9")
    assert len(launching.runs()) == 2


def test_rerun_says_what_cannot_be_the_same(launching, job):
    launching.type("run", job, "--detach")
    clusters = launching.environment.clusters
    launching.write_environment(
        msgspec.structs.replace(launching.environment, clusters={"other": clusters["cpu"]})
    )
    typed = launching.type("rerun", "last", "--detach")
    assert typed.code == 0
    assert "warning: cluster `cpu` no longer exists; the first that fits is used\n" in typed.err


def test_rerun_says_that_the_copy_of_the_code_is_gone(launching, job):
    folder = launching.folder
    launching.add_run(code=str(folder))
    typed = launching.type("rerun", "last", "--detach")
    assert typed.code == 0
    assert (
        f"warning: the copy of its code was deleted; the current `{folder}` is used\n" in typed.err
    )


def test_rerun_takes_no_other_code(launching, job):
    launching.type("run", job, "--detach")
    typed = launching.type("rerun", "last", "--set", "code=elsewhere")
    assert (typed.code, len(FakeEngine.submitted)) == (2, 1)
    assert typed.err.startswith("error: a rerun keeps the code and the program of its run")


def test_rerun_finds_the_secrets_beside_the_job_file_from_anywhere(launching, job, monkeypatch):
    secrets = launching.folder / ".secrets.env"
    secrets.write_text("TOKEN=hunter2\n")
    secrets.chmod(0o600)
    elsewhere = launching.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    launching.type("run", job, "--detach", "--set", "secrets.TOKEN=t")
    for _ in range(2):  # of a rerun, too
        typed = launching.type("rerun", "last", "--detach")
        assert typed.code == 0, typed.err
    assert [given for _, given in FakeEngine.submitted] == [{"TOKEN": "hunter2"}] * 3


def test_rerun_says_that_the_image_is_another(launching, job, monkeypatch):
    # The fake engine's runs have the image sha256:1.
    launching.type("run", job, "--detach")
    monkeypatch.setattr(
        "jobs.images.runtimes.runtime_root", lambda image, _: Path("/cache/pytorch-2")
    )
    typed = launching.type("rerun", "last", "--detach")
    assert "warning: image `pytorch` was sha256:1, now it is pytorch-2\n" in typed.err


def test_diff_names_what_parts_two_runs(launching, job):
    launching.type("run", job, "--detach")
    launching.type("run", job, "--detach", "--set", "args.epochs=9", "--nodes", "2")
    second, first = [run.id for run in launching.runs()]
    found = launching.type("diff", first, second, "--json").json()
    assert found["differences"] == [
        {"key": "args.epochs", "a": "3", "b": "9"},
        {"key": "nodes", "a": "1", "b": "2"},
    ]
    typed = launching.type("diff", first, second)
    width = len(first)
    assert typed.out == (
        f"{'':<11}  {first}  {second}\n"
        f"state        {'completed':<{width}}  completed\n"
        f"args.epochs  {'3':<{width}}  9\n"
        f"nodes        {'1':<{width}}  2\n"
    )


def test_diff_wants_two_runs(launching):
    launching.add_run()
    typed = launching.type("diff", "last")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("error: the following arguments are required: RUN\n")


def test_diff_of_a_run_with_itself_says_so(launching):
    run = launching.add_run()
    typed = launching.type("diff", run, "last")
    assert (typed.code, typed.out) == (0, f"both are the same run, {run}\n")
    found = launching.type("diff", run, "last", "--json").json()
    assert (found["a"]["id"], found["b"]["id"], found["differences"]) == (run, run, [])


def test_diff_names_the_files_that_were_changed_and_not_committed(launching):
    first, second = launching.add_run(), launching.add_run()
    diff = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-1\n+2\n"
    add_git(launching, first, diff.format("train.py") + diff.format("a model.py"))
    add_git(launching, second, None)
    typed = launching.type("diff", first, second)
    assert typed.out.partition("\n\n")[2] == (
        "uncommitted changes differ:\n"
        f"{'RUN':<{len(first)}}  CHANGED\n"
        f"{first}  train.py, a model.py\n"
        f"{second}  nothing\n"
        "to read them: launch show RUN --json, under record.git.dirty_diff\n"
    )
    found = launching.type("diff", first, second, "--json").json()
    assert found["uncommitted"] == {"a": ["train.py", "a model.py"], "b": []}
    assert "--- a/train.py" in found["code_diff"]


def add_git(launching, run, dirty_diff):
    """Give a run's record the state of a checkout."""
    path = launching.workspace / "runs" / run / "run.json"
    record = msgspec.json.decode(path.read_bytes())
    record["git"] = {"commit": "0" * 40, "dirty_diff": dirty_diff}
    path.write_bytes(msgspec.json.encode(record))
