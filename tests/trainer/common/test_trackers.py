"""Trackers: TensorBoard and MLflow read back what was logged, and a failing one costs no training.

Both live in the image's own runtime; a child process of it writes and reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.images.runtimes import PROJECT
from tests import needs
from trainer.common.metrics import Metrics
from trainer.common.trackers import MLFLOW_PATIENCE, open_trackers
from trainer.common.world import World

OPEN = """
import json, os, sys, threading
from pathlib import Path
from trainer.common.metrics import Metrics
from trainer.common.trackers import open_trackers
from trainer.common.world import World

said = []
folder = Path("tensorboard")
"""
WRITE_AND_READ = """
# The first attempt is killed after step 30, which no checkpoint has; the second goes on at 20.
first = open_trackers(folder, World(), warn=said.append)
for step in (10, 20, 30):
    first[0].log(step=step, split="train", values={"loss": 1 / step})
first[0].log(step=20, split="test", values={"loss": 0.5, "accuracy": 0.25})
for tracker in first:
    tracker.close(is_complete=False)
os.environ.pop("MLFLOW_RUN_ID", None)
second = open_trackers(folder, World(), warn=said.append)
with Metrics(Path("metrics.jsonl"), World(), after_step=20, trackers=second) as metrics:
    metrics.log(step=20, epoch=1, split="test", loss=0.5, accuracy=0.25)
    metrics.log(step=30, epoch=1.5, split="train", loss=0.125)

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import mlflow
read = EventAccumulator(str(folder))
read.Reload()
curves = {
    tag: sorted({(event.step, round(event.value, 6)) for event in read.Scalars(tag)})
    for tag in read.Tags()["scalars"]
}
client = mlflow.MlflowClient()
runs = client.search_runs(["0"], order_by=["attributes.start_time ASC"])
print(json.dumps({
    "said": said,
    "curves": curves,
    "statuses": [run.info.status for run in runs],
    "mlflow": {
        name: [(each.step, each.value) for each in client.get_metric_history(run_id, name)]
        for run_id in [runs[-1].info.run_id]
        for name in sorted(client.get_run(run_id).data.metrics)
    },
}))
"""
LOSE_THEM = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        info = {"run_id": "1", "run_uuid": "1", "experiment_id": "0", "status": "RUNNING",
                "start_time": 1, "artifact_uri": "/nowhere", "lifecycle_stage": "active"}
        body = json.dumps({"run": {"info": info, "data": {}}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_arguments):
        pass

server = HTTPServer(("127.0.0.1", 0), Server)
thread = threading.Thread(target=server.serve_forever)
thread.start()
os.environ["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{server.server_port}"
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
trackers = open_trackers(folder, World(), warn=said.append)
server.shutdown(); thread.join(); server.server_close()
with Metrics(Path("metrics.jsonl"), World(), trackers=trackers) as metrics:
    for step in range(3):
        metrics.log(step=step, epoch=0, split="train", loss=1.0)
bad = open_trackers(Path("file") / "below", World(), warn=said.append, environ={})
bad[0].log(step=1, split="train", values={"loss": 1.0})
bad[0].close(is_complete=True)
print(json.dumps({"said": said, "lines": len(Path("metrics.jsonl").read_text().splitlines())}), flush=True)
os._exit(0)  # MLflow would try to reach its server once more
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return needs.runtime("pytorch")


def run(python: Path, cwd: Path, program: str, **environ: str) -> Any:
    done = subprocess.run(
        [python, "-c", OPEN + program],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT), "HOME": str(cwd), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_tensorboard_and_mlflow_read_what_was_logged(python: Path, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/mlruns"
    told = run(
        python,
        tmp_path,
        WRITE_AND_READ,
        MLFLOW_TRACKING_URI=store,
        MLFLOW_ALLOW_FILE_STORE="true",
    )
    assert told == {
        "said": [],
        "curves": {
            "train/loss": [[10, 0.1], [20, 0.05], [30, 0.125]],
            "test/loss": [[20, 0.5]],
            "test/accuracy": [[20, 0.25]],
        },
        "statuses": ["FAILED", "FINISHED"],
        "mlflow": {
            "test/accuracy": [[20, 0.25]],
            "test/loss": [[20, 0.5]],
            "train/loss": [[30, 0.125]],
        },
    }


def test_tracker_that_fails_is_told_once_and_costs_no_metrics(python: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    told = run(python, tmp_path, LOSE_THEM)
    assert [text.partition(":")[0] for text in told["said"]] == [
        "no more metrics go to MLflow",
        "no more metrics go to TensorBoard",
    ]
    assert told["lines"] == 3


def test_an_mlflow_that_fails_later_is_told_once_and_costs_no_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread fails; a server that goes is tried with the real one in `make faults`."""

    class Failing:
        def log_batch(self, run_id: str, metrics: list[Any]) -> None:
            raise ConnectionError(f"run {run_id}: {len(metrics)}\nno route")

    run = SimpleNamespace(info=SimpleNamespace(run_id="1"))
    ended: list[str] = []
    mlflow = SimpleNamespace(
        start_run=lambda: run, MlflowClient=Failing, end_run=ended.append, __spec__=None
    )
    for name in MLFLOW_PATIENCE:
        monkeypatch.setenv(name, "0")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    entities = SimpleNamespace(Metric=lambda *told: told, __spec__=None)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    said: list[str] = []
    environ = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    trackers = open_trackers(tmp_path / "file" / "x", World(), warn=said.append, environ=environ)
    with Metrics(tmp_path / "metrics.jsonl", World(), trackers=trackers) as metrics:
        for step in range(3):
            metrics.log(step=step, epoch=0, split="train", loss=1.0)
    assert [text.partition(":")[0] for text in said] == [
        "no more metrics go to TensorBoard",
        "no more metrics go to MLflow",
    ]
    assert said[1].startswith("no more metrics go to MLflow: run 1: ")
    assert "no route" not in said[1]
    assert ended == []
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    said: list[str] = []
    environ = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    for tracker in open_trackers(tmp_path, World(), warn=said.append, environ=environ):
        tracker.log(step=1, split="train", values={"loss": 1.0})
        tracker.close(is_complete=True)
    assert [text.partition(":")[0] for text in said] == [
        "no more metrics go to TensorBoard",
        "no more metrics go to MLflow",
    ]


def test_only_rank_0_tracks(tmp_path: Path) -> None:
    assert open_trackers(tmp_path / "new", World(rank=1, size=2), warn=pytest.fail) == []
    assert list(tmp_path.iterdir()) == []
