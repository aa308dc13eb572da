"""The local engine: runs are gangs of real processes on this machine, under their own supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from re import Pattern

from jobs.logs import read_logs
from jobs.runs import RunStore, read_status
from jobs.spec import Environment, JobSpec, LogLine, Plan, RunHandle, RunStatus


class LocalEngine:
    """Runs jobs on this machine. `runtime` maps an image to its interpreter (tests set it)."""

    def __init__(
        self, environment: Environment, *, runtime: Callable[[str], Path] | None = None
    ) -> None:
        self.environment = environment
        self.store = RunStore.of(environment)
        self._runtime = runtime

    def plan(self, spec: JobSpec) -> Plan:
        """Give the request that the gang's supervisor will read; see `Engine.plan`."""
        raise NotImplementedError

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the run on disk, then start its supervisor; see `Engine.submit`."""
        raise NotImplementedError

    def status(self, handle: RunHandle) -> RunStatus:
        """Say where the run stands; see `Engine.status`."""
        return read_status(Path(handle.run_dir))

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
        """Yield the ranks' lines; see `Engine.logs`."""

        def is_over() -> bool:
            return self.status(handle).state.is_terminal()

        run_dir = Path(handle.run_dir)
        ending = is_over if follow else None
        return read_logs(run_dir, ranks, since=since, tail=tail, grep=grep, is_over=ending)

    def cancel(self, handle: RunHandle) -> None:
        """End the run; silent when it is over; see `Engine.cancel`."""
        raise NotImplementedError

    def fetch(self, handle: RunHandle, into: Path) -> Path:
        """Copy what the run made into `into`; see `Engine.fetch`."""
        raise NotImplementedError
