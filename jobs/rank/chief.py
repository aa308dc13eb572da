"""Ends a rank that serves TensorFlow's chief, once the chief is over; a process of its own beside it.

Servers and a chief's workers never end by themselves, and Azure ML waits for every worker. The chief's
record in the store says that it is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from jobs.rank.identity import Identity, NodeFailure
from jobs.rank.main import die_with_parent
from jobs.rank.record import record_path
from jobs.rank.services import Answer, Container
from jobs.rank.settings import Settings

INTERVAL_S = 2.0
GRACE_S = 2.0
# The chief may be over before this process has begun; a job that Azure ML begins again begins later.
# Both by the store's clock: those of two nodes may differ by more.
EARLIER_S = 60.0


def served(rank: int) -> str:
    """Name the file of the run directory that says that a rank has served its chief to the end."""
    return f"served-{rank}"


def watch_chief(settings: Settings, run_dir: str, rank: int) -> None:
    """Wait until the chief is over, or the input is closed; then end the rank's command."""
    die_with_parent()
    runs = Container(settings.store, settings.runs, Identity(dict(os.environ)))
    chief = Chief(runs, f"{settings.run}/ranks/{settings.attempt}/00000.json")
    while not select.select([0], [], [], INTERVAL_S)[0]:
        if chief.is_over():
            with open(f"{run_dir}/{served(rank)}", "w", encoding="utf-8"):
                pass
            with contextlib.suppress(FileNotFoundError):  # it prepares its node still
                _end(record_path(run_dir, rank))
                return


class Chief:
    """The record that a chief leaves when it is over."""

    def __init__(self, runs: Container, record: str) -> None:
        self._runs, self._record = runs, record
        self._began_s = time.monotonic()
        self._since: datetime | None = None  # by the store's clock

    def is_over(self) -> bool:
        """Tell whether the chief is over, in this start of the job; False if the store does not say."""
        try:
            found = self._runs.look(self._record)
            if found.status not in (200, 404):
                return False
            if self._since is None:
                ago_s = time.monotonic() - self._began_s + EARLIER_S
                self._since = _time(found, "Date") - timedelta(seconds=ago_s)
            # One that is older was left when Azure ML had begun this job before.
            return found.status == 200 and _time(found, "Last-Modified") > self._since
        except (NodeFailure, TypeError, ValueError):
            return False


def _time(answer: Answer, name: str) -> datetime:
    return parsedate_to_datetime(answer.headers.get(name, ""))


def _end(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        child = json.load(file)["child"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)
        time.sleep(GRACE_S)
