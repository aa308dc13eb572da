"""Shows a run's metrics in TensorBoard, and in MLflow where the environment names a server."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from trainer.common.metrics import Tracker
from trainer.common.world import World

CLOSE_S = 60
MOST_IN_A_REQUEST = 500  # MLflow takes 1,000
# MLflow's own figures let a server that is down hold up the training for four minutes.
MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


def open_trackers(
    folder: Path,
    world: World,
    *,
    warn: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> list[Tracker]:
    """Give the trackers of this run: event files in `folder`, and MLflow with MLFLOW_TRACKING_URI.

    Only rank 0 has any. One that is not installed or fails is warned of: training is worth more.
    """
    environ = os.environ if environ is None else environ
    if not world.is_main:
        return []
    trackers: list[Tracker] = [_Spared("TensorBoard", lambda: TensorBoard(folder), warn)]
    if environ.get("MLFLOW_TRACKING_URI"):
        trackers.append(_Spared("MLflow", Mlflow, warn))
    return trackers


class _Spared:
    """A tracker whose failure costs its curves and nothing else; told once."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]) -> None:
        self._name = name
        self._warn = warn
        self._tracker: Tracker | None = None
        self._try(lambda: setattr(self, "_tracker", make()))

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Pass the values on while there is a tracker."""
        tracker = self._tracker
        if tracker is not None:
            self._try(lambda: tracker.log(step=step, split=split, values=values))

    def close(self, *, is_complete: bool) -> None:
        """Close the tracker, while there is one."""
        tracker = self._tracker
        if tracker is not None:
            self._try(lambda: tracker.close(is_complete=is_complete))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - other people's code, which may raise anything
            self._tracker = None
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            self._warn(f"no more metrics go to {self._name}: {first_line}")


class TensorBoard:
    """An event file of TensorBoard, one tag `<split>/<name>` a curve.

    Written at once: TensorBoard's own writer keeps two minutes in memory, for a kill to lose.
    """

    def __init__(self, folder: Path) -> None:
        events: Any = import_module("tensorboard.compat.proto.event_pb2")
        records: Any = import_module("tensorboard.summary.writer.record_writer")
        self._event: Any = events.Event
        self._session: Any = events.SessionLog
        self._summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        number = len(list(folder.iterdir()))
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{number:04d}"
        self._file = (folder / name).open("xb", buffering=0)
        self._writer: Any = records.RecordWriter(self._file)
        self._add(0, file_version="brain.Event:2")
        self._is_new = True

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Write the values."""
        if self._is_new:
            # What an earlier attempt showed of later steps is dropped, as in Metrics.
            self._is_new = False
            first = step if split == "train" else step + 1
            self._add(first, session_log=self._session(status=self._session.START))
        scalars = [
            self._summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in values.items()
        ]
        self._add(step, summary=self._summary(value=scalars))

    def close(self, *, is_complete: bool) -> None:  # noqa: ARG002 - an event file has no end
        """Close the file."""
        self._file.close()

    def _add(self, step: int, **content: Any) -> None:
        event = self._event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())


class Mlflow:
    """MLflow, in the run that MLFLOW_RUN_ID names (as Azure ML sets it), else in a new one.

    A thread sends what has come up since its last request in one. MLflow's own sends each value by
    itself, and keeps a process from ending for minutes where its server is gone.
    """

    def __init__(self) -> None:
        for name, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = import_module("mlflow")
        self._metric: Any = import_module("mlflow.entities").Metric
        self._run_id: str = self._mlflow.start_run().info.run_id
        self._client: Any = self._mlflow.MlflowClient()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Queue the values; raises the thread's error."""
        now_ms = round(time.time() * 1000)
        for name, value in values.items():
            self._queue.put(self._metric(f"{split}/{name}", value, now_ms, step))
        self._raise_error()

    def close(self, *, is_complete: bool) -> None:
        """Send what is queued, within CLOSE_S, and end the run."""
        self._queue.put(None)
        self._thread.join(CLOSE_S)
        self._raise_error()
        self._mlflow.end_run("FINISHED" if is_complete else "FAILED")

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        is_open = True
        while is_open:
            waiting = [self._queue.get()]
            while not self._queue.empty() and len(waiting) < MOST_IN_A_REQUEST:
                waiting.append(self._queue.get())
            is_open = waiting[-1] is not None
            metrics = [each for each in waiting if each is not None]
            try:
                self._client.log_batch(self._run_id, metrics=metrics)
            except Exception as error:  # noqa: BLE001 - the edge of this thread; `log` raises it
                self._error = error
                return
