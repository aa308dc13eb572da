"""Find and list the runs of an Azure ML workspace, page by page, and read their states.

What this machine knows of a run lies in the run's folder (docs/run-directory.md); what has ended
is kept there and not asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.contracts.errors import LaunchError, NotFound, Unreached
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    RankError,
    RunHandle,
    RunRecord,
    RunState,
    RunStatus,
)
from jobs.engines.azure_ml.history import (
    Attempt,
    Listed,
    created_of,
    events_of,
    is_run,
    listed_runs,
)
from jobs.engines.azure_ml.intents import read_intent
from jobs.engines.azure_ml.listing import wanted_of_listed
from jobs.engines.azure_ml.names import HISTORY, MARK, job_name
from jobs.engines.azure_ml.states import mapping, why_it_waits
from jobs.engines.azure_ml.status import StatusReader
from jobs.host import console
from jobs.host.files import write_file
from jobs.host.private import make_folder
from jobs.host.untrusted import read_bounded
from jobs.runs.cloud_folder import workspace_folder
from jobs.runs.run_folder import RunEvent, read_record
from jobs.runs.selection import Selection
from jobs.runs.store import RunStore, several_runs

if TYPE_CHECKING:
    from jobs.blobs.store import BlobStore
    from jobs.engines.azure_ml.artifacts import Artifacts
    from jobs.engines.azure_ml.client import ArmClient
    from jobs.runs.checkpoints import Checkpoint
    from jobs.runs.progress import Progress

_LONGEST_RECORD = 16 << 20


class CloudRuns:
    """Runs of one workspace. Calls that block do so on the network, and raise EnvironmentFailure."""

    def __init__(self, environment: Environment, *, credential: Any = None) -> None:
        self.environment = environment
        self._credential = credential
        self.local = RunStore(workspace_folder(environment))
        self.runs = self.local.runs
        self.statuses = StatusReader(
            environment.workspace.name,
            details=self.details,
            why_waiting=self.why_waiting,
            spec_of=lambda run: self.record(self.handle(run)).plan.spec,
            blobs=lambda: self.blobs,
        )
        self._records: dict[str, RunRecord] = {}

    @property
    def has_own_records(self) -> bool:
        """Return False: whoever may write to the blob store writes records."""
        return False

    @property
    def workspace(self) -> Path:
        """Folder of this machine that holds what it knows of the runs."""
        return self.local.workspace

    @classmethod
    def of(cls, environment: Environment) -> CloudRuns:
        """Open the runs of an environment; asks nothing yet."""
        return cls(environment)

    @cached_property
    def client(self) -> ArmClient:
        """Client of Azure."""
        from jobs.engines.azure_ml.client import ArmClient

        return ArmClient(self.environment, credential=self._credential)

    @cached_property
    def blobs(self) -> BlobStore:
        """The container `runs`."""
        from jobs.blobs.store import open_runs_store

        return open_runs_store(self.environment)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Container in which Azure ML keeps logs."""
        from jobs.engines.azure_ml.artifacts import Artifacts

        return Artifacts(self.client)

    # --- Which -------------------------------------------------------------------------------

    def known(self, limit: int) -> Mapping[str, str]:
        """Give the ids that this machine knows, and `last`; nobody waits for Azure at a TAB."""
        return dict.fromkeys(["last", *self.local.names()[:limit]], "")

    def names(self) -> list[str]:
        """List the ids that this machine knows, newest first; asks nobody."""
        return self.local.names()

    def list(self, limit: int | None = 20, selection: Selection | None = None) -> list[RunStatus]:
        """Read the status of the newest `limit` runs (all when None) of a selection, newest first."""
        from jobs.engines.azure_ml.submission import settle_intents

        settle_intents(self.environment, lambda run: self.details(run, 1) is not None)
        wanted = selection or Selection()
        seen: set[str] = set()
        # Azure ML has fewer to list where it looks for a tag that is asked for.
        listed = self.listed(wanted.tags[0][0]) if wanted.tags else self.listed()
        runs = wanted_of_listed(
            listed, limit, wanted, seen, folder=self.runs, statuses=self.statuses
        )
        # Those that Azure ML has not got (yet): their submit is under way, or was cut off.
        oldest = min(seen, default="")
        pending: list[RunStatus] = []
        damaged: list[LaunchError] = []
        for name in self.local.names():
            if wanted.is_too_old(name):
                break
            if name > oldest and name not in seen and self.is_meant(name):
                try:
                    spec = read_record(self.runs / name).plan.spec
                    if wanted.takes_job(spec.name, spec.experiment, spec.tags):
                        pending.append(self.status(self.handle(name)))
                except Unreached:
                    raise
                except LaunchError as error:
                    damaged.append(error)
        console.warn_damaged(damaged)
        found = [*runs, *filter(wanted.takes, pending)]
        return sorted(found, key=lambda run: run.id, reverse=True)[:limit]

    def find(self, name: str) -> RunHandle:
        """Find the run that an id, a unique prefix of one or `last` names.

        Its record is here then, unless the blob store has none or is out of reach. Raises NotFound where
        there is no such run, LaunchError where a prefix fits several.
        """
        if is_run(name):
            handle = self.handle(name)
            try:
                self._bring_record(handle)
            except LaunchError as error:
                # Resource Manager alone ends a job, and has to be able to.
                if self.client.find(f"{self.client.workspace}/jobs/{name}") is None:
                    raise (self._no_run(name) if isinstance(error, NotFound) else error) from None
            return handle
        if name == "last":
            newest = self.list(1)
            if not newest:
                message = "there is no run yet"
                raise NotFound(message, hint="launch run JOB")
            return self.find(newest[0].id)
        matches = list(self._beginning_with(name)) if name else []
        if not matches:
            raise self._no_run(name)
        if len(matches) > 1:
            raise several_runs(name, matches)
        return self.find(matches[0])

    def handle(self, run_id: str) -> RunHandle:
        """Make the handle of an id; does not look whether there is such a run."""
        return RunHandle(id=run_id, engine="azureml", run_dir=str(self.runs / run_id))

    def record(self, handle: RunHandle) -> RunRecord:
        """Read the run's record: its plan and provenance."""
        record = self._records.get(handle.id)
        if record is None:
            self._bring_record(handle)
            record = read_record(Path(handle.run_dir))
            self._records[handle.id] = record
        return record

    def listed(self, tag: str = MARK[0]) -> Iterator[Listed]:
        """Yield the runs that Azure ML knows, newest first, a page at a time.

        The service chooses jobs by the key of one tag, and by nothing else that is asked for here.
        """
        query = {"tag": tag, "listViewType": "ActiveOnly"}
        pages = self.client.pages(
            f"{self.client.workspace}/jobs",
            query=query,
            what="listing runs",
        )
        yield from listed_runs(pages)

    def _beginning_with(self, prefix: str) -> Iterator[str]:
        here = {name for name in self.local.names() if self.is_meant(name)}
        for listed in self.listed():
            here.discard(listed.run)
            if listed.run.startswith(prefix):
                yield listed.run
            elif listed.run < prefix:
                break  # ids begin with their time
        yield from sorted(name for name in here if name.startswith(prefix))

    def _bring_record(self, handle: RunHandle) -> None:
        """Have `run.json` here: another machine may have made the run."""
        path = Path(handle.run_dir, "run.json")
        if path.exists():
            return
        content = read_bounded(self.blobs, f"{handle.id}/run.json", _LONGEST_RECORD)
        if content is None:
            message = f"the record of {handle.id} was deleted from the store"
            raise NotFound(message, hint=f"launch cancel {handle.id} ends it if it is on")
        make_folder(path.parent)
        write_file(path, content)

    def _no_run(self, name: str) -> NotFound:
        hint = f"launch ls -s {self.environment.stack}"
        return NotFound(f"there is no run `{name}`", hint=hint)

    # --- How it stands -----------------------------------------------------------------------

    def status(self, handle: RunHandle) -> RunStatus:
        """Make the status; asks Azure ML unless that was done just now.

        `lost` where Azure ML no longer has this job, or the workspace is gone.
        """
        spec = self.record(handle).plan.spec
        look = self.statuses.look(handle)
        attempts = look.attempts
        last = attempts[-1]
        standing = last.standing
        starts = [each.started for each in attempts if each.started is not None]
        return RunStatus(
            id=handle.id,
            name=spec.name,
            state=standing.state,
            reason=standing.reason or look.waiting,
            exit_code=0 if standing.state is RunState.COMPLETED else standing.exit_code,
            stack=spec.stack,
            cluster=spec.cluster,
            nodes=spec.nodes,
            world_size=spec.world_size,
            created=created_of(handle.id),
            started=starts[0] if starts else None,
            ended=last.ended if standing.state.is_terminal() else None,
            run_dir=handle.run_dir,
            experiment=spec.experiment or spec.name,
            tags=spec.tags,
        )

    def attempts(self, handle: RunHandle) -> Sequence[Attempt]:
        """List the run's attempts, oldest first; at least one."""
        return self.statuses.look(handle).attempts

    def newest_attempt(self, handle: RunHandle) -> int:
        """Give the number of the newest attempt, from 1."""
        return self.statuses.look(handle).attempts[-1].number

    def events(self, handle: RunHandle) -> list[RunEvent]:
        """List the states that the run went through, oldest first."""
        return events_of(created_of(handle.id), self.attempts(handle), handle.id)

    def details(self, run: str, number: int) -> dict[str, Any] | None:
        """Read an attempt's details in the run history; None if there is no such job."""
        name, client = job_name(run, number), self.client
        what = f"asking for the state of {name}"
        path = f"{HISTORY}{client.workspace}/runs/{name}/details"
        details = client.find(path, api_version=None, host=client.endpoint, what=what)
        if details is not None:
            return details
        # The history may be behind what Resource Manager knows.
        job = client.find(f"{client.workspace}/jobs/{name}", what=what)
        return None if job is None else {"status": mapping(job.get("properties")).get("status")}

    def why_waiting(self, handle: RunHandle, attempt: Attempt) -> str | None:
        """Give the reason why an attempt waits, if its cluster reports one."""
        spec = self.record(handle).plan.spec
        path = f"{self.client.workspace}/computes/{spec.compute}"
        compute = self.client.find(path, what=f"asking why {handle.id} waits")
        if compute is None:
            return f"cluster `{spec.cluster}` is gone"
        properties = mapping(mapping(compute.get("properties")).get("properties"))
        is_building = attempt.status == "Preparing"
        return why_it_waits(spec.cluster, properties, is_building=is_building)

    # --- What it left ------------------------------------------------------------------------

    def error(self, handle: RunHandle) -> RankError | None:
        """Find the rank that failed first, or None."""
        from jobs.engines.azure_ml.results import rank_error

        attempt = self.attempts(handle)[-1]
        if attempt.standing.state not in (RunState.FAILED, RunState.PREEMPTED):
            return None
        return rank_error(self.blobs, handle.id, attempt.number)

    def bring(self, handle: RunHandle) -> None:
        """Have metrics, summary, the ranks' records and the error in the run's folder."""
        from jobs.engines.azure_ml.results import bring_results

        bring_results(self.blobs, handle, self.attempts(handle)[-1])

    def progress(self, handle: RunHandle) -> Progress | None:
        """Read how far a run is; its nodes tell every 10 s."""
        from jobs.engines.azure_ml.results import bring_progress
        from jobs.runs.progress import read_progress

        bring_progress(self.blobs, handle)
        return read_progress(Path(handle.run_dir))

    def checkpoints(self, handle: RunHandle) -> Sequence[Checkpoint]:
        """List the whole checkpoints, newest first."""
        from jobs.engines.azure_ml.results import cloud_checkpoints

        return cloud_checkpoints(self.blobs, handle.id)

    def reader_of(self, dataset: DatasetVersion) -> str | None:
        """Name a run that is not over and reads a version's content, of those recorded here.

        Azure ML is asked about those that read it and were not seen to end. Raises Unreached.
        """
        for name in self.local.readers_of(dataset):
            if not self.status(self.handle(name)).state.is_terminal():
                return name
        return None

    def tasks(self, record: RunRecord) -> Mapping[int, str]:
        """Name no task: Azure ML deals them."""
        del record
        return {}

    def forget(self, handle: RunHandle) -> None:
        """Forget what was read of a run that was removed."""
        self._records.pop(handle.id, None)
        self.statuses.forget(handle)

    def is_meant(self, name: str) -> bool:
        """Tell whether a run's submission is under way, or was cut off."""
        run_dir = self.runs / name
        is_there = is_run(name) and (run_dir / "run.json").exists()
        return is_there and read_intent(run_dir) is not None

    def places(self, handle: RunHandle) -> list[tuple[str, str]]:
        """Name the addresses and folders of the run and its results."""
        workspace, storage = self.environment.workspace, self.environment.storage
        name = job_name(handle.id, self.newest_attempt(handle))
        runs = f"{storage.blob_endpoint.rstrip('/')}/{storage.containers.runs}"
        return [
            ("studio", f"https://ml.azure.com/runs/{name}?wsid={workspace.id}"),
            ("container", f"{runs}/{handle.id}/"),
            ("outputs", f"{runs}/{handle.id}/outputs/"),
            ("run folder", handle.run_dir),
        ]
