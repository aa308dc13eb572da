"""Profiles some steps of a training: a trace for chrome://tracing or Perfetto, and the dearest kernels."""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from trainer.common.profiling import NUM_KERNELS, StepProfiler
from trainer.common.rundir import RunDir
from trainer.common.whole_file import write_whole
from trainer.tf.strategy import DeviceName

# Planes of a profile that hold a device's own times, else those of the processor's threads.
DEVICE_PLANE, HOST_PLANE = "/device:GPU", "/host:CPU"
NODE = re.compile(r"[\w./-]+:(\w+)")


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one profiled operation: where it ran, its name, and its time in picoseconds."""

    plane: str
    line: str
    name: str
    begin_ps: int
    duration_ps: int


class Profiler(StepProfiler):
    """Profiles by TensorFlow's own profiler."""

    errors = (*StepProfiler.errors, tf.errors.OpError, DecodeError)

    def __init__(
        self,
        run_dir: RunDir,
        *,
        device: DeviceName,
        num_steps: int,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(run_dir, num_steps=num_steps, say=say)
        self._plane = DEVICE_PLANE if device == "cuda" else HOST_PLANE

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        tf.profiler.experimental.start(self._folder.name)

    def _stop(self) -> None:
        tf.profiler.experimental.stop()
        with self._folder as name:
            self._events = list(read_events(Path(name)))

    def _write(self, folder: Path, steps: str) -> None:
        table = table_of(self._events, self._plane)
        write_whole(folder / "trace.json", json.dumps(trace_of(self._events)).encode())
        write_whole(folder / "kernels.txt", f"{steps}\n{table}\n".encode())


def read_events(folder: Path) -> Iterator[Event]:
    """Yield the events that TensorFlow's profiler has written into this folder."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for path in folder.rglob("*.xplane.pb"):
        space: Any = xplane_pb2.XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            names = {key: each.name for key, each in plane.event_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    yield Event(
                        plane.name,
                        line.name or str(line.id),
                        names.get(event.metadata_id, ""),
                        line.timestamp_ns * 1000 + event.offset_ps,
                        event.duration_ps,
                    )


def trace_of(events: list[Event]) -> dict[str, object]:
    """Give the events in the Trace Event Format, each line of a plane as a thread of a process."""
    began_ps = min((event.begin_ps for event in events), default=0)
    places: dict[tuple[str, str], tuple[int, int]] = {}
    processes: dict[str, int] = {}
    told: list[dict[str, object]] = []
    for event in events:
        process = processes.setdefault(event.plane, len(processes) + 1)
        place = (event.plane, event.line)
        if place not in places:
            places[place] = (process, len(places) + 1)
            for kind, name in (("process_name", event.plane), ("thread_name", event.line)):
                about = {"ph": "M", "name": kind, "pid": process, "tid": places[place][1]}
                told.append({**about, "args": {"name": name}})
        told.append(
            {
                "ph": "X",
                "name": event.name,
                "pid": process,
                "tid": places[place][1],
                "ts": (event.begin_ps - began_ps) / 1e6,
                "dur": event.duration_ps / 1e6,
            }
        )
    return {"traceEvents": told, "displayTimeUnit": "ms"}


def table_of(events: list[Event], plane: str) -> str:
    """Give the dearest kernels of the planes whose names begin so: their time, calls and names.

    A processor's kernels are operations of a graph, which bear `NODE:KIND`; calls of Python's and
    TensorFlow's own are in the trace only.
    """
    spent: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.plane.startswith(plane):
            node = NODE.fullmatch(event.name)
            if node or plane == DEVICE_PLANE:
                spent[node[1] if node else event.name].append(event.duration_ps)
    dearest = sorted(spent.items(), key=lambda each: -sum(each[1]))[:NUM_KERNELS]
    rows = [f"{'total ms':>12} {'calls':>8}  kernel"]
    rows += [f"{sum(times) / 1e9:12.3f} {len(times):8}  {name}" for name, times in dearest]
    return "\n".join(rows)
