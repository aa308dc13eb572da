"""Run jobs as command jobs of the Azure ML workspace that the environment names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from re import Pattern
from typing import TYPE_CHECKING, Any

from jobs.contracts.spec import DatasetVersion, Environment, JobSpec, LogLine, Plan, RunHandle
from jobs.jobfile.resolve import require_cluster
from jobs.runs.cloud_folder import workspace_folder

if TYPE_CHECKING:
    from jobs.datasets.records import DatasetRecord
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.engines.azure_ml.preparation_logs import BuildNews
    from jobs.engines.azure_ml.removal import CloudRemoval
    from jobs.engines.azure_ml.runs import CloudRuns
    from jobs.engines.base import CodeListing


class AzureMlEngine:
    """Runs jobs on Azure ML's clusters. Made without a word to Azure: `plan` needs none.

    `credential` stands in for DefaultAzureCredential.
    """

    def __init__(self, environment: Environment, *, credential: Any = None) -> None:
        self.environment = environment
        self._credential = credential
        self._news: dict[str, BuildNews] = {}

    @property
    def client(self) -> ArmClient:
        """Client of Azure."""
        return self.store.client

    @cached_property
    def store(self) -> CloudRuns:
        """The workspace's runs."""
        from jobs.engines.azure_ml.runs import CloudRuns

        return CloudRuns(self.environment, credential=self._credential)

    @property
    def removal(self) -> CloudRemoval:
        """Removal of the runs with their jobs and blobs."""
        from jobs.engines.azure_ml.removal import CloudRemoval

        return CloudRemoval(self.store)

    def plan(self, spec: JobSpec) -> Plan:
        """Give the request that `submit` will send; see `Engine.plan`."""
        from jobs.engines.azure_ml.request import plan_job

        require_cluster(self.environment, spec.cluster)
        return plan_job(spec, self.environment)

    def image_reference(self, image: str) -> str:
        """Give the reference that the stack pins; see `Engine.image_reference`."""
        from jobs.engines.azure_ml.image_versions import image_reference

        return image_reference(image, self.environment)

    def image_digest(self, spec: JobSpec) -> None:
        """Give none: a job's image is a reference."""

    def code_listing(self, plan: Plan) -> CodeListing:
        """List the code that is uploaded; see `Engine.code_listing`."""
        from jobs.engines.azure_ml.code_listing import read_code

        exclude = (workspace_folder(self.environment), *plan.spec.pushed_paths)
        return read_code(plan.spec, exclude=exclude).listing

    def told_to_nodes(self, plan: Plan) -> Mapping[str, object]:
        """Decode the variable that the ranks read; see `Engine.told_to_nodes`."""
        from jobs.engines.azure_ml.node_job import node_job

        return {"node_job": node_job(plan.spec, self.environment)}

    def require_ready(self, spec: JobSpec) -> None:
        """Require nothing: images and programs are the workspace's."""

    def register_dataset(self, dataset: DatasetVersion) -> None:
        """Make the data asset of a version; see `Engine.register_dataset`."""
        from jobs.engines.azure_ml.data_assets import make_asset

        make_asset(dataset, self.client)

    def withdraw_dataset(self, dataset: DatasetVersion) -> None:
        """Archive the data asset of a version; see `Engine.withdraw_dataset`."""
        from jobs.engines.azure_ml.data_assets import archive_asset

        archive_asset(dataset, self.client)

    def dataset_places(self, dataset: DatasetVersion) -> Mapping[str, str]:
        """Give the address that jobs of the workspace read; see `Engine.dataset_places`."""
        from jobs.engines.azure_ml.data_assets import datastore_uri

        return {"datastore": datastore_uri(dataset, self.environment)}

    def register_model(self, model: DatasetRecord) -> None:
        """Make the workspace's model of a version; see `Engine.register_model`."""
        from jobs.engines.azure_ml.models import make_model

        make_model(model, self.client)

    def model_places(self, model: DatasetRecord) -> Mapping[str, str]:
        """Give the address that the workspace's model has; see `Engine.model_places`."""
        from jobs.engines.azure_ml.models import model_uri

        return {"datastore": model_uri(model, self.environment)}

    def import_image(self, reference: str, source: Environment) -> str:
        """Have the registry import it; see `Engine.import_image`."""
        from jobs.engines.azure_ml.registry import import_image

        return import_image(reference, source, self.client)

    def check_quota(self, plan: Plan) -> None:
        """Hold the job against the quota of its cluster; see `Attended.check_quota`."""
        from jobs.engines.azure_ml.quota import check_job

        check_job(plan.spec, self.environment, self.client)

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the run on disk, then the job into the workspace; see `Engine.submit`.

        `secrets` is empty: the ranks fetch theirs from the vault.
        """
        from jobs.engines.azure_ml.sender import JobSender
        from jobs.engines.azure_ml.submission import submit_run

        del secrets
        handle = submit_run(plan, JobSender(self.client))
        self.store.statuses.expect(handle)
        return handle

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
        from jobs.engines.azure_ml.logs import read_logs

        return read_logs(
            self.store, handle, ranks, follow=follow, since=since, tail=tail, grep=grep
        )

    def watch(
        self,
        handle: RunHandle,
        ranks: Sequence[int] | None,
        *,
        since: str | None = None,
        tail: int | None = None,
        grep: Pattern[str] | None = None,
    ) -> Iterator[Iterator[LogLine]]:
        """Yield looks at the ranks' lines; see `Engine.watch`."""
        from jobs.engines.azure_ml.logs import watch_logs

        return watch_logs(self.store, handle, ranks, since=since, tail=tail, grep=grep)

    def cancel(self, handle: RunHandle) -> None:
        """Ask Azure ML to end the run; silent when it is over; see `Engine.cancel`."""
        from jobs.engines.azure_ml.cancel import cancel_run

        cancel_run(self.store, handle)

    def fetch(self, handle: RunHandle, into: Path) -> Path:
        """Copy the run's results into `into`; see `Engine.fetch`."""
        from jobs.engines.azure_ml.fetch import fetch_run

        return fetch_run(self.store, handle, into)

    def begin_again(self, handle: RunHandle) -> bool:
        """Submit another attempt where `retry` says so; see `Attended.begin_again`."""
        from jobs.engines.azure_ml.retry import begin_again

        return begin_again(self.store, handle)

    def preparation(self, handle: RunHandle) -> Iterator[tuple[str, str]]:
        """Yield the lines of Azure ML's own logs; see `Attended.preparation`."""
        from jobs.engines.azure_ml.preparation_logs import preparation_lines

        return preparation_lines(self.store, handle)

    def preparation_news(self, handle: RunHandle) -> Sequence[str]:
        """Give new lines of the image's build; see `Attended.preparation_news`."""
        from jobs.engines.azure_ml.preparation_logs import BuildNews

        news = self._news.setdefault(handle.id, BuildNews(self.store, handle))
        return news.lines()
