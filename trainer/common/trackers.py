"""Shows a run's metrics in TensorBoard, and in MLflow where the environment names a server."""

from __future__ import annotations

import errno
import io
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
END_S = 5  # for the end of a run whose values were refused before
MOST_IN_A_REQUEST = 500  # MLflow takes 1,000
RUN_ID = "MLFLOW_RUN_ID"
# MLflow's own figures let a server that is down hold up the training for four minutes.
MLFLOW_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
}


def open_trackers(
    folder: Path,
    world: World,
    *,
    warn: Callable[[str], None],
    after_step: int,
    only_evaluates: bool,
    environ: Mapping[str, str] | None = None,
) -> list[Tracker]:
    """Give the trackers of this run: event files in `folder`, and MLflow with MLFLOW_TRACKING_URI.

    Only rank 0 has any. One that is not installed or fails is warned of: training is worth more.
    `after_step` and `only_evaluates` are those of Metrics: what comes again is dropped, as there.
    """
    environ = os.environ if environ is None else environ
    if not world.is_main:
        return []

    def tensorboard() -> Tracker:
        return TensorBoard(folder, warn, after_step=None if only_evaluates else after_step)

    trackers: list[Tracker] = [_Spared("TensorBoard", tensorboard, warn)]
    if environ.get("MLFLOW_TRACKING_URI"):
        trackers.append(_Spared("MLflow", Mlflow, warn))
    return trackers


class _Spared:
    """A tracker whose failure costs its curves and nothing else; told once."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]) -> None:
        self._name = name
        self._warn = warn
        self._has_failed = False
        self._tracker: Tracker | None = None
        self._try(lambda: setattr(self, "_tracker", make()))

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Pass the values on until the tracker fails."""
        tracker = self._tracker
        if tracker is not None and not self._has_failed:
            self._try(lambda: tracker.log(step=step, split=split, values=values))

    def close(self, *, is_complete: bool) -> None:
        """Close the tracker, where one was made: also one that has failed tells how it ended."""
        tracker = self._tracker
        if tracker is not None:
            self._try(lambda: tracker.close(is_complete=is_complete))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - other people's code, which may raise anything
            if self._has_failed:
                return
            self._has_failed = True
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            self._warn(f"no more metrics go to {self._name}: {first_line}")


class TensorBoard:
    """An event file of TensorBoard, one tag `<split>/<name>` a curve.

    Written at once: TensorBoard's own writer keeps two minutes in memory, for a kill to lose. A full
    disk costs values, told once, and no curve.
    """

    def __init__(
        self, folder: Path, warn: Callable[[str], None], *, after_step: int | None
    ) -> None:
        """Open a file; beyond `after_step` TensorBoard drops what files before it show."""
        events: Any = import_module("tensorboard.compat.proto.event_pb2")
        records: Any = import_module("tensorboard.summary.writer.record_writer")
        self._event: Any = events.Event
        self._summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._record_writer: Any = records.RecordWriter
        self._warn = warn
        self._has_lost = False
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        number = len(list(folder.iterdir()))
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{number:04d}"
        self._file = (folder / name).open("xb", buffering=0)
        self._add(0, file_version="brain.Event:2")
        if after_step is not None:
            session = events.SessionLog
            self._add(after_step + 1, session_log=session(status=session.START))

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Write the values."""
        scalars = [
            self._summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in values.items()
        ]
        try:
            self._add(step, summary=self._summary(value=scalars))
        except OSError as error:
            if not self._has_lost:
                self._has_lost = True
                why = f"{error.strerror}; training goes on"
                self._warn(f"values are lost for TensorBoard: {why}")

    def close(self, *, is_complete: bool) -> None:  # noqa: ARG002 - an event file has no end
        """Close the file."""
        self._file.close()

    def _add(self, step: int, **content: Any) -> None:
        """Write a whole record; raises OSError, and leaves no part of it then."""
        event = self._event(wall_time=time.time(), step=step, **content)
        record = io.BytesIO()
        self._record_writer(record).write(event.SerializeToString())
        num_written = self._file.write(record.getvalue())
        if num_written < record.tell():
            # A reader gets no further than half a record, whatever comes behind it.
            self._file.seek(-num_written, os.SEEK_CUR)
            self._file.truncate()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Mlflow:
    """MLflow, in the run that MLFLOW_RUN_ID names (as Azure ML sets it), else in a new one.

    A thread starts the run, sends what has come up since its last request in one, and ends the run.
    MLflow's own sends each value by itself, and keeps a process from ending for minutes where its
    server is gone. With `azureml://` the start may wait until somebody has signed in.
    """

    def __init__(self) -> None:
        for name, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = import_module("mlflow")
        self._metric: Any = import_module("mlflow.entities").Metric
        self._run_id = os.environ.get(RUN_ID)
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
        """Have the thread send what is queued and end the run, within CLOSE_S."""
        self._queue.put("FINISHED" if is_complete else "FAILED")
        self._thread.join(CLOSE_S if self._error is None else END_S)
        self._raise_error()
        if self._thread.is_alive():
            message = f"its server has not taken the last ones within {CLOSE_S} s"
            raise TimeoutError(message)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        status: str | None = None
        try:
            run_id = self._mlflow.start_run(run_id=self._run_id).info.run_id
            # MLflow has a run in one thread only: calls of the user's own model find it by this.
            os.environ[RUN_ID] = run_id
            client = self._mlflow.MlflowClient()
            while status is None:
                metrics, status = self._take()
                client.log_batch(run_id, metrics=metrics)
        except Exception as error:  # noqa: BLE001 - the edge of this thread; `log` raises it
            self._error = error
        while status is None:
            _, status = self._take()
        try:
            self._mlflow.end_run(status)
        except Exception as error:  # noqa: BLE001 - as above
            self._error = self._error or error

    def _take(self) -> tuple[list[Any], str | None]:
        """Wait for metrics, as many as go into a request; at the end there is a status, too."""
        taken = [self._queue.get()]
        while not self._queue.empty() and len(taken) < MOST_IN_A_REQUEST:
            taken.append(self._queue.get())
        status = taken.pop() if isinstance(taken[-1], str) else None
        return taken, status
