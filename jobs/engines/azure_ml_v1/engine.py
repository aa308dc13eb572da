"""Run jobs through Azure ML's first API, for workspaces that still need it: as azureml, less retries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from jobs.contracts.spec import JobSpec, Plan, RunHandle
from jobs.engines.azure_ml.engine import AzureMlEngine
from jobs.jobfile.resolve import require_cluster

if TYPE_CHECKING:
    from jobs.engines.azure_ml_v1.removal import V1Removal
    from jobs.engines.azure_ml_v1.runs import V1Runs


class AzureMlV1Engine(AzureMlEngine):
    """Runs jobs on Azure ML's clusters through azureml-core, which a process of its own asks."""

    @cached_property
    def store(self) -> V1Runs:
        """The workspace's runs, as far as this machine started them."""
        from jobs.engines.azure_ml_v1.runs import V1Runs

        return V1Runs(self.environment, credential=self._credential)

    @property
    def removal(self) -> V1Removal:
        """Removal of the runs with their blobs."""
        from jobs.engines.azure_ml_v1.removal import V1Removal

        return V1Removal(self.store)

    def plan(self, spec: JobSpec) -> Plan:
        """Give the run configuration that `submit` will send; see `Engine.plan`."""
        from jobs.engines.azure_ml_v1.run_configuration import plan_run

        require_cluster(self.environment, spec.cluster)
        return plan_run(spec, self.environment)

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the run on disk, then start it; see `Engine.submit`.

        `secrets` is empty: the ranks fetch theirs from the vault.
        """
        from jobs.engines.azure_ml.submission import submit_run
        from jobs.engines.azure_ml_v1.submission import V1Sender

        del secrets
        session = self.store.session
        session.open()  # before a run is claimed: much may speak against it
        handle = submit_run(plan, V1Sender(self.client, session))
        self.store.statuses.expect(handle)
        return handle

    def cancel(self, handle: RunHandle) -> None:
        """End the run; silent when it is over; see `Engine.cancel`."""
        from jobs.engines.azure_ml.cancel import close_intent

        self.store.session.cancel(handle.id)
        close_intent(self.store, handle)
        self.store.statuses.forget(handle)

    def begin_again(self, handle: RunHandle) -> bool:
        """Begin nothing, and a plan says so: `retry` is the engine azureml's."""
        del handle
        return False
