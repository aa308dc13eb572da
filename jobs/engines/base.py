"""Define the seam between `launch` and the engines, which run jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from re import Pattern
from typing import Protocol, runtime_checkable

from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    JobSpec,
    LogLine,
    Plan,
    RankError,
    RunHandle,
    RunRecord,
    RunStatus,
)
from jobs.datasets.records import DatasetRecord
from jobs.runs.checkpoints import Checkpoint
from jobs.runs.progress import Progress
from jobs.runs.run_folder import RunEvent
from jobs.runs.selection import Selection


class CodeFile(Struct, frozen=True, kw_only=True):
    """One file that travels; `reason` says why it does."""

    name: str
    bytes: int
    reason: str


class CodeListing(Struct, frozen=True, kw_only=True):
    """Listing of all code that travels with a job; `name` is the same for the same content.

    `left_out` are links to what does not travel, folders (they end in a slash) of what was fetched
    from runs, and the code's own `outputs`, whose place on a node is taken.
    """

    name: str
    files: tuple[CodeFile, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(each.bytes for each in self.files)


class Runs(Protocol):
    """The runs of an environment, as verbs read them. What is asked for may block."""

    @property
    def has_own_records(self) -> bool:
        """Tell if this user alone writes the records, so that paths in them may be opened."""
        ...

    @property
    def workspace(self) -> Path:
        """Folder of this machine that holds the runs' folders."""
        ...

    def known(self, limit: int) -> Mapping[str, str]:
        """Give what can name the newest runs, with a word on each; asks nobody, for a TAB."""
        ...

    def names(self) -> Sequence[str]:
        """List the ids of the runs that this machine knows, newest first; asks nobody."""
        ...

    def list(self, limit: int | None = 20, selection: Selection | None = None) -> list[RunStatus]:
        """Read the status of the newest `limit` runs (all when None) of a selection, newest first."""
        ...

    def find(self, name: str) -> RunHandle:
        """Find the run that an id, a unique prefix of one or `last` names; its `run.json` is here then.

        Raises NotFound where there is none, LaunchError where a prefix fits several.
        """
        ...

    def handle(self, run_id: str) -> RunHandle:
        """Make the handle of an id; does not look whether there is such a run."""
        ...

    def record(self, handle: RunHandle) -> RunRecord:
        """Read the run's record: its plan and provenance."""
        ...

    def events(self, handle: RunHandle) -> Sequence[RunEvent]:
        """List the states that the run went through, oldest first."""
        ...

    def status(self, handle: RunHandle) -> RunStatus:
        """Say where the run stands; never raises for a run that is over."""
        ...

    def error(self, handle: RunHandle) -> RankError | None:
        """Find the rank that failed first, or None."""
        ...

    def bring(self, handle: RunHandle) -> None:
        """Download metrics, summary and ranks' records so far into the run directory."""
        ...

    def progress(self, handle: RunHandle) -> Progress | None:
        """Read how far the run is, as far as its nodes have told; None where it does not tell."""
        ...

    def checkpoints(self, handle: RunHandle) -> Sequence[Checkpoint]:
        """List the run's whole checkpoints, newest first."""
        ...

    def reader_of(self, dataset: DatasetVersion) -> str | None:
        """Name a run that is not over and reads a version's content, of those recorded here."""
        ...

    def tasks(self, record: RunRecord) -> Mapping[int, str]:
        """Name each rank's task in TensorFlow's cluster, where the run's record says it."""
        ...

    def places(self, handle: RunHandle) -> Sequence[tuple[str, str]]:
        """Name the places of the run and its results: a word, and a path or an address."""
        ...


class Removal(Protocol):
    """Removal of an environment's runs, and the marks that protect them. Everything may block."""

    def started_here(self) -> Sequence[str]:
        """List the ids of the runs that this machine started, newest first."""
        ...

    def records(self, after: str, damaged: list[LaunchError]) -> Iterator[RunRecord]:
        """Yield the records of all runs that are newer than an id (all when empty), newest first.

        Errors of records that cannot be read are added to `damaged`.
        """
        ...

    def is_kept(self, handle: RunHandle) -> bool:
        """Tell whether the run is marked, so that it is not removed."""
        ...

    def keep(self, handle: RunHandle, *, is_kept: bool) -> None:
        """Mark the run, or take the mark away."""
        ...

    def size(self, handles: Sequence[RunHandle]) -> int:
        """Count the bytes that a removal of the runs frees: here, or in the blob store."""
        ...

    def cut_off(self) -> Sequence[RunHandle]:
        """List the runs whose removal was cut off."""
        ...

    def remove(self, handle: RunHandle) -> None:
        """Remove a run that is over and all that it left; goes on where a removal was cut off.

        Raises Refused for a run that may still change.
        """
        ...


class Engine(Protocol):
    """Place to run jobs. Everything but `plan` may block on the disk or the network.

    Made by `jobs.engines.load_engine(environment)`; holds the environment it was made for.
    """

    @property
    def environment(self) -> Environment:
        """Environment that it was made for."""
        ...

    @property
    def store(self) -> Runs:
        """Runs of the environment."""
        ...

    @property
    def removal(self) -> Removal:
        """Removal of the runs."""
        ...

    def plan(self, spec: JobSpec) -> Plan:
        """Give the exact request as data. Pure; raises Refused where the job cannot fit."""
        ...

    def image_reference(self, image: str) -> str:
        """Resolve an image of a job file to the image that the engine starts; raises LaunchError if unknown."""
        ...

    def image_digest(self, spec: JobSpec) -> str | None:
        """Give the digest of a job's present runtime or container; None if a reference pins it."""
        ...

    def code_listing(self, plan: Plan) -> CodeListing | None:
        """List each file that the engine would send, read for its digest; None where it sends none.

        Raises LaunchError for a file that cannot be read.
        """
        ...

    def told_to_nodes(self, plan: Plan) -> Mapping[str, object]:
        """Decode what the request says to the nodes in a form that nobody reads; by its name."""
        ...

    def require_ready(self, spec: JobSpec) -> None:
        """Raise LaunchError if this machine lacks a part that `submit` needs."""
        ...

    def register_dataset(self, dataset: DatasetVersion) -> None:
        """Make a version that is in the blob store known where runs run.

        Raises EnvironmentFailure; the version stays where that fails.
        """
        ...

    def withdraw_dataset(self, dataset: DatasetVersion) -> None:
        """Hide a version that was removed; raises EnvironmentFailure."""
        ...

    def dataset_places(self, dataset: DatasetVersion) -> Mapping[str, str]:
        """Give other addresses of a version than its URL, by kind."""
        ...

    def register_model(self, model: DatasetRecord) -> None:
        """Make a model's version that is in the blob store known to the workspace.

        Raises EnvironmentFailure; the version stays where that fails.
        """
        ...

    def model_places(self, model: DatasetRecord) -> Mapping[str, str]:
        """Give other addresses of a model's version than its URL, by kind."""
        ...

    def import_image(self, reference: str, source: Environment) -> str:
        """Copy an image from the registry of `source`, by digest; gives its reference here.

        Raises LaunchError where one of the two has no registry, EnvironmentFailure where Azure refuses.
        """
        ...

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the intent on disk, then start the run; returns before it ends.

        `secrets` maps variable names to values; they are handed to the ranks and stored
        nowhere.
        """
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

    def watch(
        self,
        handle: RunHandle,
        ranks: Sequence[int] | None,
        *,
        since: str | None = None,
        tail: int | None = None,
        grep: Pattern[str] | None = None,
    ) -> Iterator[Iterator[LogLine]]:
        """Yield looks without end: the first has the lines of `logs`, each further one what is new.

        For who looks when it suits him. A look is to be taken to its end before the next one, and
        reads by byte range; once one has raised an error, `watch` is to be called anew.
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


class Beside(Struct, frozen=True, kw_only=True):
    """A command to start beside a rank: its words, variables (secrets among them) and folder."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    folder: str


@runtime_checkable
class Reachable(Protocol):
    """An engine whose ranks are processes of this machine."""

    def command_processes(self, handle: RunHandle) -> Mapping[int, int]:
        """Give the process of each rank's command, of the ranks whose command runs."""
        ...

    def beside(self, handle: RunHandle, rank: int, words: Sequence[str]) -> Beside:
        """Describe a command in the folder, with the variables and in the image of a rank's.

        Raises Refused where the run has no such rank, or its command does not run.
        """
        ...


@runtime_checkable
class Attended(Protocol):
    """An engine whose runs nobody looks after but an attached `launch`, and that are paid for."""

    def check_quota(self, plan: Plan) -> None:
        """Raise Refused where no quota will ever hold the job; say so where it may have to wait."""
        ...

    def begin_again(self, handle: RunHandle) -> bool:
        """Start another attempt of a run that is over, where its job's `retry` says so.

        Whether there is one, whoever started it. The same from several terminals starts one.
        """
        ...

    def preparation(self, handle: RunHandle) -> Iterator[tuple[str, str]]:
        """Yield the logs of image and node preparation: names of logs, and lines."""
        ...

    def preparation_news(self, handle: RunHandle) -> Sequence[str]:
        """Read lines of the image's build since the last call."""
        ...
