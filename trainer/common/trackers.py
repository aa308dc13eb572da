"""Shows a run's metrics in TensorBoard, and in MLflow where the environment names a server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from trainer.common.metrics import Tracker
from trainer.common.world import World


def open_trackers(
    folder: Path,
    world: World,
    *,
    warn: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> list[Tracker]:
    """Give the trackers of this run: event files in `folder`, and MLflow with MLFLOW_TRACKING_URI.

    Only rank 0 has any. A tracker that is not installed is warned of: training is worth more.
    """
    environ = os.environ if environ is None else environ
    if not world.is_main:
        return []
    wanted: list[Callable[[], Tracker]] = [lambda: TensorBoard(folder)]
    if environ.get("MLFLOW_TRACKING_URI"):
        wanted.append(Mlflow)
    trackers: list[Tracker] = []
    for make in wanted:
        try:
            trackers.append(make())
        except ImportError as error:
            warn(f"no metrics go to {error.name}: it is not installed")
    return trackers


class TensorBoard:
    """TensorBoard's event files, one tag `<split>/<name>` a curve."""

    def __init__(self, folder: Path) -> None:
        writing: Any = import_module("tensorboard.summary.writer.event_file_writer")
        self._event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._writer: Any = writing.EventFileWriter(str(folder))

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Queue the values; a thread writes them."""
        scalars = [
            self._summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in values.items()
        ]
        summary = self._summary(value=scalars)
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Write what is queued."""
        self._writer.close()


class Mlflow:
    """MLflow, in the run that MLFLOW_RUN_ID names (as Azure ML sets it), else in a new one."""

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")
        self._mlflow.start_run()

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        """Send the values; MLflow queues them."""
        named = {f"{split}/{name}": value for name, value in values.items()}
        self._mlflow.log_metrics(named, step=step, synchronous=False)

    def close(self) -> None:
        """Send what is queued and end the run."""
        self._mlflow.end_run()
