"""`launch exec` beside ranks that compute, and `launch stacks` of ranks that hang."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.table import Row
from tests.bench.ui import goal, start
from tests.bench.workspace import launch_program, local_environment

STEP_SHARE, STACKS_S = 1.02, 3.0
PHASE_S = 4.0
# A step is always the same; it says how long it took, and when it began.
STEPS = """
import json, time
while True:
    began = time.time()
    sum(number * number for number in range(200_000))
    print(json.dumps([began, time.time() - began]), flush=True)
"""
BUSY = "import time; end = time.time() + {}\nwhile time.time() < end: pass"
NUM_RANKS = 8
HANG = "import threading; threading.Event().wait()"


def exec_rows(project: Path, rounds: int) -> list[Row]:
    """Time the steps of a rank alone, beside a busy command, and beside that command without `launch`."""
    launch = str(launch_program(project))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder, processes_per_node=1)
        run = start(project, folder, environment, STEPS)
        where = ["--env", str(environment)]
        wait_for_log(folder, run)
        within = [launch, "exec", run, *where, "--", "python", "-c"]
        asked = [*within, "import sys; print(sys.executable)"]
        python = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        busy = BUSY.format(PHASE_S)
        beside = {
            "alone": [python, "-c", f"import time; time.sleep({PHASE_S})"],
            "exec": [*within, busy],
            "nice": ["nice", "-n", "19", python, "-c", busy],
        }
        phases: list[tuple[float, float, str]] = []
        for _ in range(rounds):
            for kind, words in beside.items():
                began_s = time.time()
                subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
                phases.append((began_s, time.time(), kind))
        subprocess.run([launch, "cancel", run, *where], check=True, stdout=subprocess.DEVNULL)
        log = log_of(folder, run).read_text().splitlines()
    steps = [json.loads(line.partition(" ")[2]) for line in log if line.endswith("]")]
    taken = {
        each: median(
            step_s
            for began_s, ended_s, kind in phases
            if kind == each
            for at_s, step_s in steps
            if began_s < at_s < ended_s
        )
        for each in beside
    }
    return [
        Row(
            goal="time of a step beside a busy `launch exec`",
            ours=f"{taken['exec'] * 1000:.1f} ms",
            peer=f"{words} {taken[kind] * 1000:.1f} ms",
            ratio=taken["exec"] / taken[kind],
            at_most=STEP_SHARE,
        )
        for kind, words in (("alone", "alone"), ("nice", "beside the same under `nice -n 19`"))
    ]


def stacks_rows(project: Path, rounds: int) -> list[Row]:
    """Time `launch stacks` of NUM_RANKS ranks that wait for ever."""
    launch = str(launch_program(project))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = local_environment(folder, processes_per_node=NUM_RANKS)
        run = start(project, folder, environment, "print(1, flush=True)\n" + HANG)
        where = ["--env", str(environment)]
        wait_for_log(folder, run)
        taken: list[float] = []
        for _ in range(rounds):
            began_s = time.perf_counter()
            done = subprocess.run(
                [launch, "stacks", run, "--json", *where], check=True, stdout=subprocess.PIPE
            )
            taken.append(time.perf_counter() - began_s)
            told = json.loads(done.stdout)
            num_seen = sum(len(each["ranks"]) for each in told["groups"])
            assert num_seen == NUM_RANKS, told["without"]
        subprocess.run([launch, "cancel", run, *where], check=True, stdout=subprocess.DEVNULL)
    return [goal(f"`launch stacks` of {NUM_RANKS} ranks that hang", median(taken), STACKS_S, "s")]


def wait_for_log(folder: Path, run: str) -> None:
    """Wait until rank 0 has written to its log, and a moment for the others."""
    while not (log_of(folder, run).exists() and log_of(folder, run).stat().st_size):
        time.sleep(0.1)
    time.sleep(1)


def log_of(folder: Path, run: str) -> Path:
    return folder / "workspace" / "runs" / run / "logs" / "rank-00000.log"
