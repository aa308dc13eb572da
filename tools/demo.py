"""Takes a fresh clone to a trained model: `python3 -m tools.demo`.

Set-up, the local stack, real handwritten digits as a dataset, a Horovod training on them, its
report, and what to type next. Killed at any point and started again, it goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobs import console
from jobs.build_cache import run_logged
from jobs.errors import ExitCode, LaunchError
from tools.phases import Phases
from tools.project import Project, this_project
from tools.setup import explain, set_up

JOB = "digits"
NEXT = (
    ("let this shell find launch and pulumi", ". .venv/bin/activate"),
    ("every run", "launch ls"),
    ("the logs of every rank", "launch logs last"),
    ("the model and the pictures", "launch fetch last"),
    ("the same training on one process", f"launch run {JOB} --nodes 1 --processes-per-node 1"),
    ("a job of your own", "launch run my-job.yaml   # see README.md"),
    ("end the environment", "pulumi destroy -s local"),
)


def main() -> int:
    """Run the demo; returns the exit code."""
    project = this_project(os.environ)
    with Phases(sys.stdout, environ=os.environ) as phases:
        try:
            set_up(project, phases)
            raise_environment(project, phases)
            store_digits(project, phases)
            train(project, phases)
        except (LaunchError, OSError) as error:
            phases.say(explain(error))
            return ExitCode.ENVIRONMENT
        except KeyboardInterrupt:
            phases.say("interrupted; `make demo` goes on where this ended")
            return ExitCode.INTERRUPTED
    show_report(project)
    return 0


def raise_environment(project: Project, phases: Phases) -> None:
    """`pulumi up`, past what a killed one left behind."""
    log = project.log("demo-up")
    with phases.phase("pulumi up -s local"):
        call(project, log, "launch", "env", "repair", "-s", "local")
        call(project, log, "pulumi", "up", "-s", "local", "--yes", "--non-interactive")


def store_digits(project: Project, phases: Phases) -> None:
    """Handwritten digits as MNIST's files, into the store as a dataset like any other."""
    log = project.log("demo-data")
    folder = project.state / "demo" / JOB
    with phases.phase("real handwritten digits prepared"):
        call(project, log, "launch", "data", "prepare", JOB, "--to", folder)
    with phases.phase(f"pushed to the store as dataset `{JOB}`"):
        call(project, log, "launch", "data", "push", folder, JOB)


def train(project: Project, phases: Phases) -> None:
    """Train, or wait for the training that a killed demo started."""
    log = project.log("demo-run")
    active = active_run(project)
    if active is not None:
        with phases.phase(f"launch wait {active}: the training that was under way"):
            call(project, log, "launch", "wait", active)
        return
    with phases.phase(f"launch run {JOB}: Horovod on two processes"):
        call(project, log, "launch", "run", JOB, "--yes")


def active_run(project: Project) -> str | None:
    """The id of the newest run when it is of this job and not over."""
    answer = subprocess.run(
        [program(project, "launch"), "ls", "--json", "--limit", "1"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    runs: list[dict[str, Any]] = json.loads(answer.stdout) if answer.returncode == 0 else []
    for run in runs:
        if run["name"] == JOB and run["state"] in {"queued", "preparing", "running"}:
            return run["id"]
    return None


def show_report(project: Project) -> None:
    """The report of the run, and the commands to type next."""
    subprocess.run([program(project, "launch"), "report", "last"], cwd=project.root, check=False)
    console.out()
    console.out(console.tree("What to type next", NEXT))


def call(project: Project, log: Path, name: str, *arguments: str | Path) -> None:
    """Run one command of the environment with its output in a log."""
    run_logged(
        [program(project, name), *arguments],
        what=" ".join(str(part) for part in (name, *arguments)),
        log=log,
        cwd=project.root,
        hint="`make demo` goes on where this ended",
    )


def program(project: Project, name: str) -> Path:
    return project.venv / "bin" / name


if __name__ == "__main__":
    sys.exit(main())
