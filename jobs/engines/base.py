"""The seam between `launch` and where a job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from re import Pattern
from typing import Protocol

from jobs.spec import JobSpec, LogLine, Plan, RunHandle, RunStatus


class Engine(Protocol):
    """Where a job runs. Everything but `plan` may block on the disk or the network.

    Made by `jobs.engines.load_engine(environment)`; holds the environment it was made for.
    """

    def plan(self, spec: JobSpec) -> Plan:
        """Give the exact request as data. Pure; raises Refused where the job cannot fit."""
        ...

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the intent on disk, then start the run; returns before it ends.

        `secrets` maps variable names to values; they are handed to the ranks and stored
        nowhere.
        """
        ...

    def status(self, handle: RunHandle) -> RunStatus:
        """Say where the run stands; never raises for a run that is over."""
        ...

    def logs(
        self,
        handle: RunHandle,
        ranks: Sequence[int] | None,
        *,
        follow: bool,
        since: str | None = None,
        tail: int | None = None,
        grep: Pattern[str] | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of the ranks asked for (all when None), merged by time.

        Reads by byte range, never the whole file again; with `follow` ends when the run does.
        `since` is a time as the lines carry it, `tail` the number of matching lines to begin
        with, of all ranks together.
        """
        ...

    def cancel(self, handle: RunHandle) -> None:
        """End the run; silent when it is already over."""
        ...

    def fetch(self, handle: RunHandle, into: Path) -> Path:
        """Copy outputs, metrics, summary and logs into the folder `into`, which is returned.

        Resumable, and while the run is on: a file that is there already is not copied again.
        """
        ...
