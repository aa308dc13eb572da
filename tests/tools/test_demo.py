"""The demo as a whole, with `launch` and `pulumi` played by small scripts: order, kills, failures."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.jobfile.read import load_job
from tests.busy import wait_until
from tests.fakes.runtimes import make_runtime
from tools import demo
from tools.project import Project

ROOT = Path(__file__).parents[2]

# Plays `launch` and `pulumi`: every call is a line in `calls`; the runs are in `runs.json`.
# The call that begins as `fails` or `hangs` says does so, once.
FAKE = f"""\
#!{sys.executable}
import json, os, sys, time
from pathlib import Path
words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
with Path("calls").open("a") as calls:
    calls.write(words + chr(10))

def is_told_to(what):
    told = Path(what)
    if not told.exists() or not words.startswith(told.read_text()):
        return False
    told.rename(f"{{what}}.done")
    return True

runs = Path("runs.json")
known = json.loads(runs.read_text()) if runs.exists() else []
if words.startswith("launch ls"):
    print(json.dumps(known))
if words.startswith("launch run"):
    known.insert(0, {{"id": f"run-{{len(known) + 1}}", "name": "digits", "state": "running"}})
    runs.write_text(json.dumps(known))
    print(known[0]["id"], flush=True)
    print("next: launch wait", file=sys.stderr)
if is_told_to("hangs"):
    time.sleep(600)
if is_told_to("fails"):
    sys.exit("error: no luck")
if words.startswith("launch wait"):
    for run in known:
        run["state"] = "completed" if run["id"] == sys.argv[2] else run["state"]
    runs.write_text(json.dumps(known))
if words.startswith("launch report"):
    print("the report of", sys.argv[2], flush=True)
"""
PHASES = [
    "launch env repair -s local",
    "pulumi up -s local --yes --non-interactive",
    "launch data prepare digits --to {digits}",
    "launch data push {digits} digits -s local",
    "launch ls --all --json -s local",
    "launch run digits --yes --detach -s local",
    "launch wait run-1 -s local",
    "launch report run-1 -s local",
]
# Runs the demo on a clone's folder, as `make demo` does once set-up is done.
PROGRAM = """\
import sys
from pathlib import Path
from tools.demo import main
from tools.project import Project
clone = Path(sys.argv[1])
sys.exit(main(Project(root=clone, cache=clone / "cache"), lambda *_: None, clone / "dev"))
"""


class Clone:
    """A clone's folder with the fakes in its environment."""

    def __init__(self, root):
        self.root = root
        self.project = Project(root=root, cache=root / "cache")
        (root / ".venv" / "bin").mkdir(parents=True)
        for name in ("launch", "pulumi"):
            program = root / ".venv" / "bin" / name
            program.write_text(FAKE)
            program.chmod(0o755)

    def calls(self):
        """List the calls, by their place in PHASES or as they were typed."""
        digits = str(self.root / ".trainyard" / "demo" / "digits")
        return [
            line.replace(digits, "{digits}")
            for line in (self.root / "calls").read_text().splitlines()
        ]

    def has(self, *runs):
        """Let these runs be there, newest first: id, name, state."""
        keys = ("id", "name", "state")
        known = [dict(zip(keys, run, strict=True)) for run in runs]
        (self.root / "runs.json").write_text(json.dumps(known))

    def demo(self):
        return demo.main(self.project, lambda *_: None, self.root / "dev")

    def add_gpus(self, number):
        """Let the machine have so many."""
        (self.root / "dev").mkdir()
        for index in range(number):
            (self.root / "dev" / f"nvidia{index}").touch()

    def kill_in(self, phase):
        """Start the demo and kill it, with what it started, while the phase is under way."""
        (self.root / "hangs").write_text(phase)
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.root)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                wait_until((self.root / "hangs.done").exists, what=self.calls, over=process.poll)
            finally:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    # What a shell says of another stack must not lead the demo there.
    monkeypatch.setenv("TRAINYARD_STACK", "prod")
    return Clone(tmp_path)


def test_the_phases_come_in_order_and_the_report_is_of_their_run(clone, capfd):
    assert clone.demo() == 0
    assert clone.calls() == PHASES
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(" s  ")[2] for line in lines[:4]] == [
        "pulumi up -s local",
        "real handwritten digits prepared",
        "pushed to the store as dataset `digits`",
        "launch run digits: Horovod",
    ]
    assert lines[4:7] == ["the report of run-1", "", "What to type next"]
    # One command from here to its curves in the browser, in a shell that knows nothing of us.
    assert lines[7].endswith("its curves, logs and pictures in the browser  .venv/bin/launch ui")
    assert [line for line in lines if line.endswith("  launch fetch run-1")] != []


def test_set_up_comes_first(clone):
    def set_up(project, phases):
        assert not (project.root / "calls").exists()

    assert demo.main(clone.project, set_up, clone.root / "dev") == 0


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: " ".join(phase.split()[:3]))
def test_killed_in_any_phase_it_goes_on_and_trains_once(clone, phase, capfd):
    clone.kill_in(phase.partition(" {")[0])
    before = clone.calls()
    assert clone.demo() == 0
    again = clone.calls()[len(before) :]
    assert before == PHASES[: PHASES.index(phase) + 1]
    assert again[:5] == PHASES[:5]
    is_under_way = phase.startswith(("launch run", "launch wait"))
    is_over = phase.startswith("launch report")
    number = 2 if is_over else 1
    started = [] if is_under_way else [PHASES[5]]
    assert again[5:] == [
        *started,
        f"launch wait run-{number} -s local",
        f"launch report run-{number} -s local",
    ]
    assert f"the report of run-{number}\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (b"..horovod_nccl_built..", " (its Horovod has no NCCL, so the GPUs rest)"),
        (b"..ncclAllReduce..", ""),
    ],
    ids=["without NCCL", "with NCCL"],
)
def test_gpus_that_horovod_cannot_use_are_told_of(clone, monkeypatch, capfd, library, why):
    clone.add_gpus(8)
    python = make_runtime(clone.root / "runtime", library)
    monkeypatch.setattr(demo, "runtime_python", lambda *_: python)
    assert clone.demo() == 0
    assert clone.calls() == PHASES
    assert f"  launch run digits: Horovod{why}\n" in capfd.readouterr().out


def test_the_demo_s_job_is_of_the_image_whose_horovod_is_looked_at():
    job = load_job(demo.JOB).job
    assert (job.image, job.launcher) == (demo.IMAGE, "horovod")


def test_a_training_under_way_is_found_behind_other_runs(clone, capfd):
    clone.has(
        ("c", "someone-elses", "running"),
        ("b", "digits", "completed"),
        ("a", "digits", "queued"),
    )
    assert clone.demo() == 0
    assert clone.calls()[5:] == ["launch wait a -s local", "launch report a -s local"]
    assert "launch wait a: the training that was under way\n" in capfd.readouterr().out


@pytest.mark.parametrize("phase", PHASES[:-1], ids=lambda phase: " ".join(phase.split()[:3]))
def test_a_failed_phase_ends_it_with_message_hint_and_1(clone, phase, capfd):
    (clone.root / "fails").write_text(phase.partition(" {")[0])
    assert clone.demo() == 1
    assert clone.calls() == PHASES[: PHASES.index(phase) + 1]
    said = capfd.readouterr().out
    what = phase.format(digits=clone.root / ".trainyard" / "demo" / "digits")
    assert f"\n{what} failed (exit code 1); the end of {clone.root}/.trainyard/logs/demo-" in said
    assert "\n  | error: no luck\n" in said
    hint = "`make demo` goes on where this ended"
    if phase.startswith("launch wait"):
        hint = "`launch logs run-1` has every line; `make demo` trains anew"
    assert said.endswith(f"\nhint: {hint}\n")
    assert "What to type next" not in said


def test_a_failed_report_is_a_failure_too(clone, capfd):
    (clone.root / "fails").write_text("launch report")
    assert clone.demo() == 1
    assert capfd.readouterr().out.endswith(
        "\nlaunch report run-1 -s local failed (exit code 1)\n"
        "hint: `make demo` goes on where this ended\n"
    )


def test_ctrl_c_says_that_it_goes_on(clone, capfd):
    def interrupted(project, phases):
        raise KeyboardInterrupt

    assert demo.main(clone.project, interrupted, clone.root / "dev") == 130
    assert capfd.readouterr().out == "interrupted; `make demo` goes on where this ended\n"
