"""Takes a fresh clone to a trained model: `python3 -m tools.demo`.

Set-up, the local stack, real handwritten digits as a dataset, a Horovod training on them, its
report, and what to type next. Killed at any point and started again, it goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from jobs.contracts.errors import EnvironmentFailure, ExitCode, LaunchError
from jobs.engines.local.gpus import horovod_lacks_nccl
from jobs.host import console
from jobs.host.cache import run_logged
from jobs.host.gpus import DEVICES, count_gpus
from jobs.images.runtimes import runtime_python
from tools.phases import Phases
from tools.project import Project, this_project
from tools.setup import explain, set_up

JOB = "digits"
IMAGE = "pytorch"  # the job's
STACK = ("-s", "local")  # whatever TRAINYARD_STACK says
ACTIVE = {"queued", "preparing", "running"}
AGAIN = "`make demo` goes on where this ended"


def main(
    project: Project | None = None,
    prepare: Callable[[Project, Phases], None] = set_up,
    devices: Path = DEVICES,
) -> int:
    """Run the demo; returns the exit code.

    Tests name the clone, what stands for set-up, and the folder of the device files.
    """
    project = project or this_project(os.environ)
    with Phases(sys.stdout, environ=os.environ) as phases:
        try:
            prepare(project, phases)
            raise_environment(project, phases)
            store_digits(project, phases)
            run = train(project, phases, on_cpu=leaves_gpus(project, devices))
            show_report(project, run)
        except (LaunchError, OSError) as error:
            phases.say(explain(error))
            return ExitCode.ENVIRONMENT
        except KeyboardInterrupt:
            phases.say(f"interrupted; {AGAIN}")
            return ExitCode.INTERRUPTED
    console.out()
    console.out(console.tree("What to type next", next_commands(run)))
    return 0


def raise_environment(project: Project, phases: Phases) -> None:
    """Run `pulumi up` after a repair of what a killed one left behind."""
    log = project.log("demo-up")
    with phases.phase("pulumi up -s local"):
        call(project, log, "launch", "env", "repair", *STACK)
        call(project, log, "pulumi", "up", *STACK, "--yes", "--non-interactive")


def store_digits(project: Project, phases: Phases) -> None:
    """Prepare handwritten digits as MNIST's files and push them as a dataset."""
    log = project.log("demo-data")
    folder = project.state / "demo" / JOB
    with phases.phase("real handwritten digits prepared"):
        call(project, log, "launch", "data", "prepare", JOB, "--to", folder)
    with phases.phase(f"pushed to the store as dataset `{JOB}`"):
        call(project, log, "launch", "data", "push", folder, JOB, *STACK)


def leaves_gpus(project: Project, devices: Path) -> bool:
    """Tell whether there are GPUs here that the job's Horovod cannot use, so that it trains without."""
    hides = count_gpus(devices) and horovod_lacks_nccl(runtime_python(IMAGE, project.root))
    return bool(hides)


def train(project: Project, phases: Phases, *, on_cpu: bool) -> str:
    """Train, or wait for the training that a killed demo started; gives the run's id."""
    log = project.log("demo-run")
    run = active_run(ask(project, log, "launch", "ls", "--all", "--json", *STACK))
    if run is not None:
        title = f"launch wait {run}: the training that was under way"
    else:
        why = " (its Horovod has no NCCL, so the GPUs rest)" if on_cpu else ""
        title = f"launch run {JOB}: Horovod{why}"
    with phases.phase(title):
        if run is None:
            # Detached, so that it outlives this program from its first moment.
            said = ask(project, log, "launch", "run", JOB, "--yes", "--detach", *STACK)
            run = said.strip()
        hint = f"`launch logs {run}` has every line; `make demo` trains anew"
        call(project, log, "launch", "wait", run, *STACK, hint=hint)
    return run


def active_run(listed: str) -> str | None:
    """Find the newest unfinished run of the demo's job in the output of `launch ls --json`."""
    runs: list[dict[str, Any]] = json.loads(listed)
    active = [run["id"] for run in runs if run["name"] == JOB and run["state"] in ACTIVE]
    return active[0] if active else None


def show_report(project: Project, run: str) -> None:
    """Print the report of the run."""
    words = ["report", run, *STACK]
    done = subprocess.run([project.venv / "bin" / "launch", *words], cwd=project.root, check=False)
    if done.returncode != 0:
        message = f"launch {' '.join(words)} failed (exit code {done.returncode})"
        raise EnvironmentFailure(message, hint=AGAIN)


def next_commands(run: str) -> list[tuple[str, str]]:
    """List what to do with a trained model and an environment that is up."""
    return [
        ("its curves, logs and pictures in the browser", ".venv/bin/launch ui"),
        ("let this shell find launch and pulumi", ". .venv/bin/activate"),
        ("every run", "launch ls"),
        ("the logs of every rank", f"launch logs {run}"),
        ("the model and the pictures", f"launch fetch {run}"),
        (
            "the same training on one process",
            f"launch run {JOB} --processes-per-node 1",
        ),
        ("a job of your own", "launch run my-job.yaml   # see README.md"),
        ("end the environment", "pulumi destroy -s local"),
    ]


def ask(project: Project, log: Path, name: str, *arguments: str | Path) -> str:
    """Return what a command of the environment prints on stdout; its stderr goes to a log."""
    with tempfile.TemporaryFile() as answer:
        call(project, log, name, *arguments, answer=answer)
        answer.seek(0)
        return answer.read().decode()


def call(
    project: Project,
    log: Path,
    name: str,
    *arguments: str | Path,
    hint: str = AGAIN,
    answer: IO[bytes] | None = None,
) -> None:
    """Run one command of the environment with its output in a log."""
    run_logged(
        [project.venv / "bin" / name, *arguments],
        what=" ".join(str(part) for part in (name, *arguments)),
        log=log,
        cwd=project.root,
        hint=hint,
        answer=answer,
    )


if __name__ == "__main__":
    sys.exit(main())
