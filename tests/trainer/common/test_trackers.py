"""Trackers: TensorBoard and MLflow read back what was logged, and a failing one costs no training.

Both live in the image's own runtime; a child process of it writes and reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.busy import HANG_S, wait_until
from trainer.common.metrics import Metrics, Tracker
from trainer.common.trackers import MLFLOW_PATIENCE, open_trackers
from trainer.common.world import World

BEGIN: Any = {"after_step": 0, "only_evaluates": False}
OPEN = """
import json, os, sys, threading, time
from pathlib import Path
from trainer.common.metrics import Metrics
from trainer.common.trackers import open_trackers
from trainer.common.world import World

said = []
folder = Path("tensorboard")
begin = {"warn": said.append, "after_step": 0, "only_evaluates": False}

def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        tag: [(event.step, round(event.value, 6)) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }
"""
WRITE_AND_READ = """
# The first attempt is killed after step 30, which no checkpoint has; the second goes on at 20.
first = open_trackers(folder, World(), **begin)
for step in (10, 20, 30):
    first[0].log(step=step, split="train", values={"loss": 1 / step})
first[0].log(step=20, split="test", values={"loss": 0.5, "accuracy": 0.25})
for tracker in first:
    tracker.close(is_complete=False)
os.environ.pop("MLFLOW_RUN_ID", None)
second = open_trackers(folder, World(), **{**begin, "after_step": 20})
with Metrics(Path("metrics.jsonl"), World(), after_step=20, trackers=second) as metrics:
    metrics.log(step=20, epoch=1, split="test", loss=0.5, accuracy=0.25)
    metrics.log(step=30, epoch=1.5, split="train", loss=0.125)
    while "MLFLOW_RUN_ID" not in os.environ:
        time.sleep(0.01)
    found = os.environ["MLFLOW_RUN_ID"]

import mlflow
client = mlflow.MlflowClient()
runs = client.search_runs(["0"], order_by=["attributes.start_time ASC"])
print(json.dumps({
    "said": said,
    "curves": {tag: sorted(set(points)) for tag, points in curves(folder).items()},
    "statuses": [run.info.status for run in runs],
    "is_found": runs[-1].info.run_id == found,
    "mlflow": {
        name: [(each.step, each.value) for each in client.get_metric_history(run_id, name)]
        for run_id in [runs[-1].info.run_id]
        for name in sorted(client.get_run(run_id).data.metrics)
    },
}))
"""
RESUME_AND_EVALUATE = """
def attempt(after_step, logged, **only):
    place = {"after_step": after_step, "only_evaluates": False, **only}
    trackers = open_trackers(folder, World(), warn=said.append, **place)
    with Metrics(Path("metrics.jsonl"), World(), trackers=trackers, **place) as metrics:
        for step, split, values in logged:
            metrics.log(step=step, epoch=step / 25, split=split, **values)

end = [(25, "val", {"top1": 0.5}), (25, "train", {"images_per_s": 128})]
attempt(0, [(10, "train", {"loss": 0.5}), (20, "train", {"loss": 0.25}), *end])
attempt(20, [*end, (30, "train", {"loss": 0.125})])
resumed = curves(folder)
attempt(0, [(0, "val", {"top1": 0.75})], only_evaluates=True)
print(json.dumps({"said": said, "resumed": resumed, "evaluated": curves(folder)}))
"""
FILL_THE_DISK = """
from tests.limits import largest_file

(tracker,) = open_trackers(folder, World(), **begin)
def log(step):
    tracker.log(step=step, split="train", values={"loss": step / 4})

log(1)
(file,) = folder.iterdir()
with largest_file(file.stat().st_size + 20):  # half a record
    log(2)
    log(3)
log(4)
tracker.close(is_complete=True)
print(json.dumps({"said": said, "curves": curves(folder)}))
"""
SERVE = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        info = {"run_id": "1", "run_uuid": "1", "experiment_id": "0", "status": "RUNNING",
                "start_time": 1, "artifact_uri": "/nowhere", "lifecycle_stage": "active"}
        body = json.dumps({"run": {"info": info, "data": {}}}).encode()
        has_begun = begun.is_set()
        self.send_response(503 if has_begun else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "1000")
        self.end_headers()
        self.wfile.write(body)
        begun.set()
    def log_message(self, *_arguments):
        pass

begun = threading.Event()
server = HTTPServer(("127.0.0.1", 0), Server)
thread = threading.Thread(target=server.serve_forever)
thread.start()
os.environ["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{server.server_port}"
"""
WAIT_FOR_NONE = """
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "1"
trackers = open_trackers(folder, World(), **begin)
with Metrics(Path("metrics.jsonl"), World(), trackers=trackers) as metrics:
    metrics.log(step=1, epoch=0, split="train", loss=1.0)
server.shutdown(); thread.join(); server.server_close()
print(json.dumps(said), flush=True)
"""
LOSE_THEM = """
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
trackers = open_trackers(folder, World(), **begin)
begun.wait()
server.shutdown(); thread.join(); server.server_close()
with Metrics(Path("metrics.jsonl"), World(), trackers=trackers) as metrics:
    for step in range(3):
        metrics.log(step=step, epoch=0, split="train", loss=1.0)
bad = open_trackers(Path("file") / "below", World(), **begin, environ={})
bad[0].log(step=1, split="train", values={"loss": 1.0})
bad[0].close(is_complete=True)
print(json.dumps({"said": said, "lines": len(Path("metrics.jsonl").read_text().splitlines())}))
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
        "is_found": True,
        "mlflow": {
            "test/accuracy": [[20, 0.25]],
            "test/loss": [[20, 0.5]],
            "train/loss": [[30, 0.125]],
        },
    }


def test_curves_of_tensorboard_lose_what_comes_again_and_nothing_else(
    python: Path, tmp_path: Path
) -> None:
    told = run(python, tmp_path, RESUME_AND_EVALUATE)
    resumed = {
        "train/loss": [[10, 0.5], [20, 0.25], [30, 0.125]],
        "val/top1": [[25, 0.5]],
        "train/images_per_s": [[25, 128]],
    }
    assert told == {
        "said": [],
        "resumed": resumed,
        "evaluated": {**resumed, "val/top1": [[25, 0.5], [0, 0.75]]},
    }


def test_a_disk_that_was_full_costs_tensorboard_those_values_alone(
    python: Path, tmp_path: Path
) -> None:
    assert run(python, tmp_path, FILL_THE_DISK) == {
        "said": ["values are lost for TensorBoard: No space left on device; training goes on"],
        "curves": {"train/loss": [[1, 0.25], [4, 1.0]]},
    }


def test_tracker_that_fails_is_told_once_and_costs_no_metrics(python: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    told = run(python, tmp_path, SERVE + LOSE_THEM)
    assert [text.partition(":")[0] for text in told["said"]] == [
        "no more metrics go to MLflow",
        "no more metrics go to TensorBoard",
    ]
    assert told["lines"] == 3


def test_a_training_does_not_wait_as_long_as_a_busy_mlflow_asks_for(
    python: Path, tmp_path: Path
) -> None:
    (said,) = run(python, tmp_path, SERVE + WAIT_FOR_NONE)
    assert said.startswith("no more metrics go to MLflow: ")
    assert "503" in said


class FakeMlflow:
    """MLflow's module and its client; active runs are each thread's own, as there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.ended: list[str] = []
        self.got: list[tuple[str, str, int]] = []
        self.may_start, self.may_log = threading.Event(), threading.Event()
        self.may_start.set()
        self.may_log.set()
        self.error: Exception | None = None
        self._active = threading.local()
        for name in MLFLOW_PATIENCE:
            monkeypatch.setenv(name, "0")
        monkeypatch.setenv("MLFLOW_RUN_ID", "run-1")
        entities = SimpleNamespace(Metric=lambda *told: told, __spec__=None)
        module = SimpleNamespace(
            start_run=self.start_run,
            end_run=self.end_run,
            MlflowClient=lambda: self,
            __spec__=None,
        )
        monkeypatch.setitem(sys.modules, "mlflow", module)
        monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
        monkeypatch.setitem(sys.modules, "tensorboard", None)

    def start_run(self, run_id: str | None) -> Any:
        assert self.may_start.wait(HANG_S)
        self._active.run_id = run_id
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def end_run(self, status: str) -> None:
        if getattr(self._active, "run_id", None):
            self.ended.append(status)

    def log_batch(self, run_id: str, metrics: list[Any]) -> None:
        assert self.may_log.wait(HANG_S)
        if self.error is not None:
            raise self.error
        self.got += [(run_id, name, step) for name, _, _, step in metrics]

    def trackers(self, tmp_path: Path) -> list[Tracker]:
        environ = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
        _, mlflow = open_trackers(
            tmp_path / "x", World(), warn=self.said.append, environ=environ, **BEGIN
        )
        assert self.said.pop().startswith("no more metrics go to TensorBoard")
        return [mlflow]


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    return FakeMlflow(monkeypatch)


def test_an_mlflow_that_fails_later_is_told_once_and_costs_no_metrics(
    mlflow: FakeMlflow, tmp_path: Path
) -> None:
    """Its thread fails; a server that goes is tried with the real one in `make faults`."""
    mlflow.error = ConnectionError("1.2.3.4\nno route")
    with Metrics(
        tmp_path / "metrics.jsonl", World(), trackers=mlflow.trackers(tmp_path)
    ) as metrics:
        for step in range(3):
            metrics.log(step=step, epoch=0, split="train", loss=1.0)
    assert mlflow.said == ["no more metrics go to MLflow: 1.2.3.4"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(("fails", "status"), [(False, "FINISHED"), (True, "FAILED")])
def test_an_mlflow_that_refused_values_is_told_how_the_training_ended(
    mlflow: FakeMlflow, tmp_path: Path, fails: bool, status: str
) -> None:
    """MLflow itself ends a run that is left open as FINISHED, when the process ends."""
    (tracker,) = mlflow.trackers(tmp_path)
    mlflow.error = ConnectionError("503")
    tracker.log(step=1, split="train", values={"loss": 1.0})
    wait_until(
        lambda: tracker.log(step=2, split="train", values={"loss": 1.0}) or mlflow.said,
        what=lambda: "MLflow's refusal is not told",
    )
    mlflow.error = None
    tracker.log(step=3, split="train", values={"loss": 1.0})
    tracker.close(is_complete=not fails)
    assert (mlflow.ended, mlflow.got) == ([status], [])
    assert mlflow.said == ["no more metrics go to MLflow: 503"]


def test_a_sign_in_that_mlflow_waits_for_does_not_hold_up_the_training(
    mlflow: FakeMlflow, tmp_path: Path
) -> None:
    mlflow.may_start.clear()
    (tracker,) = mlflow.trackers(tmp_path)
    tracker.log(step=1, split="train", values={"loss": 1.0})
    mlflow.may_start.set()
    tracker.close(is_complete=True)
    assert mlflow.got == [("run-1", "train/loss", 1)]
    assert (mlflow.ended, mlflow.said) == (["FINISHED"], [])


def test_values_that_mlflow_has_not_taken_in_the_end_are_told(
    mlflow: FakeMlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.common.trackers.CLOSE_S", 0.01)
    mlflow.may_log.clear()
    (tracker,) = mlflow.trackers(tmp_path)
    tracker.log(step=1, split="train", values={"loss": 1.0})
    tracker.close(is_complete=True)
    assert mlflow.ended == []
    assert mlflow.said == [
        "no more metrics go to MLflow: its server has not taken the last ones within 0.01 s"
    ]
    mlflow.may_log.set()


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    said: list[str] = []
    environ = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    for tracker in open_trackers(tmp_path, World(), warn=said.append, environ=environ, **BEGIN):
        tracker.log(step=1, split="train", values={"loss": 1.0})
        tracker.close(is_complete=True)
    assert [text.partition(":")[0] for text in said] == [
        "no more metrics go to TensorBoard",
        "no more metrics go to MLflow",
    ]


def test_only_rank_0_tracks(tmp_path: Path) -> None:
    assert open_trackers(tmp_path / "new", World(rank=1, size=2), warn=pytest.fail, **BEGIN) == []
    assert list(tmp_path.iterdir()) == []
