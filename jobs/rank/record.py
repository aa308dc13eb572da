"""Reads and writes a rank's record in `ranks/`, by which the run is judged."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from typing import Any, NamedTuple

from jobs.rank.world import World

_NAME = re.compile(r"[0-9]{5}\.json")


class Ending(NamedTuple):
    """The end of a command; exactly one of the two is set."""

    exit_code: int | None
    signal: int | None

    @property
    def code(self) -> int:
        """The exit code as a shell gives it."""
        return self.exit_code if self.exit_code is not None else 128 + (self.signal or 0)


class Record:
    """One rank from its start to its end; times are of the monotonic clock.

    What has not been set is not written (jobs/runs/failure.py reads it).
    """

    child: int
    started_s: float
    exited_s: float | None
    output_closed_s: float | None
    stopped_s: float | None = None
    ended_s: float | None = None
    stage: str
    setup: str
    exit_code: int | None
    signal: int | None
    last_lines: str
    traceback: str
    traceback_s: float
    out_of_memory: bool
    hang_seconds: float
    silent_seconds: float
    was_stopped: bool
    log_error: str | None

    def __init__(self, world: World) -> None:
        self.rank = world.rank
        self.node = world.node
        self.host = socket.gethostname()
        self.pid = os.getpid()


def record_path(run_dir: str, rank: int) -> str:
    """Name a rank's file."""
    return f"{run_dir}/ranks/{rank:05d}.json"


def write_record(run_dir: str, record: Record) -> None:
    """Replace the rank's file at once, or write the main thing over it on a full disk."""
    path, known = record_path(run_dir, record.rank), vars(record)
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{path}.new", path)
    except OSError:
        # The disk is full. The file that is there has a block, and the main thing fits in it.
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.new")
        shortened = {
            name: value[-1000:] if isinstance(value, str) else value
            for name, value in known.items()
        }
        with contextlib.suppress(OSError), open(path, "r+", encoding="utf-8") as file:
            json.dump(shortened, file)
            file.truncate()


def has_ended(run_dir: str, rank: int) -> bool:
    """Tell whether a rank's record says that it is over."""
    return "ended_s" in _read(run_dir, rank)


def is_running(run_dir: str, rank: int) -> bool:
    """Tell whether a rank of this node is at work."""
    record = _read(run_dir, rank)
    if not record or "ended_s" in record:
        return False
    try:
        os.kill(record["pid"], 0)
    except OSError:
        return False
    return True


def read_records(run_dir: str) -> list[dict[str, Any]]:
    """Read the records of a node's ranks, each with `output_s`: when it last wrote (wall clock)."""
    names = sorted(filter(_NAME.fullmatch, os.listdir(f"{run_dir}/ranks")))
    return [
        {**record, "output_s": os.stat(f"{run_dir}/ranks/{name}").st_mtime}
        for name in names
        if (record := _read(run_dir, int(name[:5])))
    ]


def _read(run_dir: str, rank: int) -> dict[str, Any]:
    try:
        with open(record_path(run_dir, rank), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}
