"""How old a job's line is when it is shown: `launch logs -f` against `MLClient.jobs.stream`.

Both follow the same job at the stand-in Azure at the same time. Its stores give out an account key,
without which `jobs.stream` cannot read logs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.bench.table import Row
from tests.bench.workspace import launch_program
from tests.environments.laying import lay_environment
from tests.fakes.azureml import FakeAzure

SDK = "tests/bench/azure_ai_ml_stream.py"
IMAGE = f"registry.azurecr.io/python@sha256:{'a' * 64}"
# The peer looks every 59 s from its third minute on.
SETTLED_S, LENGTH_S = 180, 360
NUM_NODES = 2
# What issue and design ask of ours, whatever the peer does.
AT_MOST_S = 1.5
PROGRAM = f"""
import time
for _ in range({LENGTH_S}):
    print("written", repr(time.time()), flush=True)
    time.sleep(1)
"""
_WRITTEN = re.compile(r"written (\d+\.\d+)")


def latency_rows(project: Path, rounds: int) -> list[Row]:
    """One job of six minutes, a line a second and node; `rounds` counts for nothing."""
    del rounds
    lock = project / "tests/environments/azure_ai_ml.txt"
    python = lay_environment(lock, project, what="azure-ai-ml") / "bin" / "python"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runtimes = {"python": Path(sys.executable)}
        with FakeAzure(folder / "azure", runtimes=runtimes, datastores="account key") as azure:
            environment = folder / "dev.json"
            environment.write_text(json.dumps(azure.environment(images={"python": IMAGE})))
            env = {**azure.environ, "XDG_STATE_HOME": str(folder / "state")}
            launch, words = str(launch_program(project)), ["--env", str(environment)]
            started = subprocess.run(
                [launch, "run", str(_write_job(folder)), "-d", "-y", *words],
                env=env,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            job = started.stdout.split()[0]
            while azure.job(job).state != "Running":
                time.sleep(0.1)
            begun_s = time.time()
            followers = [
                _Follower([launch, "logs", "-f", job, *words], env),
                _Follower([str(python), "-W", "ignore", str(project / SDK)], env),
            ]
            followers[1].argv += [azure.place.workspace_id, job]
            for each in followers:
                each.start()
            for each in followers:
                each.join()
    assert len(followers[0].seen) == NUM_NODES * LENGTH_S
    ours, theirs = (_p95(each.seen, begun_s + SETTLED_S) for each in followers)
    from_the_first_s = _p95(followers[0].seen, 0)
    return [
        Row(
            goal="p95 from line written to line shown, from the first to the last",
            ours=f"{from_the_first_s:.2f} s",
            peer=f"the goal's {AT_MOST_S} s",
            ratio=from_the_first_s / AT_MOST_S,
            at_most=1.0,
        ),
        Row(
            goal="p95 from line written to line shown, after the third minute",
            ours=f"{ours:.2f} s",
            peer=f"`MLClient.jobs.stream` {theirs:.1f} s",
            ratio=ours / theirs,
            at_most=0.05,
        ),
    ]


class _Follower(threading.Thread):
    """Notes when each line was written, and how long after that it was shown."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        super().__init__()
        self.argv = argv
        self.seen: list[tuple[float, float]] = []
        self._env = env

    def run(self) -> None:
        with subprocess.Popen(
            self.argv, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if written := _WRITTEN.search(line):
                    written_s = float(written[1])
                    self.seen.append((written_s, time.time() - written_s))


def _p95(seen: list[tuple[float, float]], since_s: float) -> float:
    ages = sorted(age for written_s, age in seen if written_s >= since_s)
    return ages[int(len(ages) * 0.95)]


def _write_job(folder: Path) -> Path:
    code = folder / "job"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    job = {"name": "lines", "image": "python", "script": "train.py", "nodes": NUM_NODES}
    path = code / "job.yaml"
    path.write_text(json.dumps({**job, "launcher": "torch"}))
    return path
