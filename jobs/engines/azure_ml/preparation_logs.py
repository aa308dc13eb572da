"""Azure ML's own logs of a job: how its image was built and how its nodes were made ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.contracts.errors import EnvironmentFailure
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.log_files import LONGEST_RANGE, Reading
from jobs.engines.azure_ml.names import job_name
from jobs.host.units import now

if TYPE_CHECKING:
    from jobs.contracts.spec import RunHandle
    from jobs.engines.azure_ml.runs import CloudRuns

IMAGE_BUILD = "azureml-logs/"
NODES = "system_logs/"
PERIOD_S = 2.0


def preparation_lines(runs: CloudRuns, handle: RunHandle) -> Iterator[tuple[str, str]]:
    """Yield what has been written so far, of the newest attempt: names of logs, and lines."""
    job = job_name(handle.id, runs.newest_attempt(handle))
    for folder in (IMAGE_BUILD, NODES):
        for blob in list(runs.artifacts.list(job, folder)):
            name = blob.name.removeprefix(job_prefix(job))
            reading = Reading(name=name, rank=0, size=blob.bytes)
            for line in _read(runs, job, reading):
                yield name, line
            for line in reading.last_line(now()):
                yield name, line.text


class BuildNews:
    """Log of a run's image build, read while it grows."""

    def __init__(self, runs: CloudRuns, handle: RunHandle) -> None:
        self._runs, self._handle = runs, handle
        self._readings: dict[str, Reading] = {}
        self._looked_s = float("-inf")

    def lines(self) -> list[str]:
        """Read the new lines, every PERIOD_S; never raises: nobody waits for them."""
        now_s = time.monotonic()
        if now_s - self._looked_s < PERIOD_S:
            return []
        self._looked_s = now_s
        try:
            return self._news()
        except EnvironmentFailure:
            return []

    def _news(self) -> list[str]:
        job = job_name(self._handle.id, self._runs.newest_attempt(self._handle))
        lines: list[str] = []
        for blob in list(self._runs.artifacts.list(job, IMAGE_BUILD)):
            name = blob.name.removeprefix(job_prefix(job))
            # By the blob's whole name: another attempt has logs of its own.
            reading = self._readings.setdefault(blob.name, Reading(name=name, rank=0))
            reading.size = blob.bytes
            lines += _read(self._runs, job, reading)
        return lines


def _read(runs: CloudRuns, job: str, reading: Reading) -> Iterator[str]:
    while reading.has_news:
        before = reading.offset
        part = (reading.name, *reading.next_range(LONGEST_RANGE))
        for content in runs.artifacts.read_parts(job, [part]):
            for line in reading.take(content, now()) or ():
                yield line.text
        if reading.offset <= before:
            return
