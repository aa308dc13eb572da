"""Read the runs of a workspace through azureml-core: those that this machine started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.blobs.files import Blob
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunHandle, RunState
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.history import Attempt, Listed
from jobs.engines.azure_ml.intents import read_intent
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.runs import CloudRuns
from jobs.engines.azure_ml.states import Standing
from jobs.engines.azure_ml_v1.run_configuration import ENGINE
from jobs.host import console

if TYPE_CHECKING:
    from jobs.engines.azure_ml_v1.session import Session


class V1Runs(CloudRuns):
    """Runs as the engine azureml has them, asked for through azureml-core; listed from disk."""

    @cached_property
    def session(self) -> Session:
        """Session of azureml-core."""
        from jobs.engines.azure_ml_v1.session import Session

        return Session(self.environment, self.client)

    @cached_property
    def artifacts(self) -> Any:
        """Logs that Azure ML keeps."""
        return V1Artifacts(self.session)

    def handle(self, run_id: str) -> RunHandle:
        """Make the handle of an id; does not look whether there is such a run."""
        handle = super().handle(run_id)
        return msgspec.structs.replace(handle, engine=ENGINE)

    def details(self, run: str, number: int) -> dict[str, Any] | None:
        return self.session.details(job_name(run, number))

    def why_waiting(self, handle: RunHandle, attempt: Attempt) -> str | None:
        """Tell nothing: azureml-core does not."""

    def listed(self, tag: str = "") -> Iterator[Listed]:
        """Yield the runs of this machine: a list of azureml-core's asks every experiment apart."""
        del tag
        for name in self.local.names():
            run_dir = self.runs / name
            if not (run_dir / "run.json").exists() or read_intent(run_dir) is not None:
                continue
            try:
                record = self.record(self.handle(name))
            except LaunchError as error:
                console.warn(f"{name} is left out: {error.message}")
                continue
            if record.plan.engine != ENGINE:
                continue  # the same workspace by the other engine
            spec = record.plan.spec
            yield Listed(
                run=name,
                attempt=1,
                standing=Standing(state=RunState.RUNNING, reason="not looked at in a long list"),
                name=spec.name,
                stack=spec.stack,
                cluster=spec.cluster,
                nodes=spec.nodes,
                processes_per_node=spec.processes_per_node,
                experiment=spec.experiment or spec.name,
                tags=spec.tags,
            )


class V1Artifacts:
    """The logs of a workspace's runs, as jobs.engines.azure_ml.artifacts.Artifacts gives them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str, folder: str) -> Iterator[Blob]:
        """Yield the logs of a job below a folder that ends with a slash."""
        for name, size in self._session.list(job, folder):
            yield Blob(name=job_prefix(job) + name, bytes=size, md5=None, etag="")

    def read_parts(self, job: str, parts: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        """Read ranges of logs, in their order; empty for deleted logs."""
        if parts:
            yield from self._session.read(job, parts)
