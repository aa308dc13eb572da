"""The contracts of `launch` as frozen structs: environment, job file, job, plan, run.

`docs/schemas/*.json` are generated from these structs (`launch schema`). Everything that
crosses a module or process border is one of them; nothing passes dicts.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

ENVIRONMENT_SCHEMA = 1
RUN_RECORD_SCHEMA = 1

Launcher = Literal["horovod", "torch", "tensorflow", "mpi", "none"]
Priority = Literal["low", "normal", "high"]
InputMode = Literal["mount", "download", "stream"]
# As whom a job reads and writes on Azure: its cluster's identity, or the person that sends it.
JobIdentity = Literal["managed", "user"]
# jobs/engines/__init__.py has a row for each.
CloudEngine = Literal["azureml", "azureml_v1"]
EngineName = Literal["local", CloudEngine]

# `$` alone would take a newline at the end; a schema's regular expressions know no `\Z`.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)")]
_LENGTH = r"(?![0.]+[smhd])[0-9]{1,11}(\.[0-9]{1,11})?(s|m|h|d)"
Duration = Annotated[str, Meta(pattern=rf"^{_LENGTH}$(?!\n)")]
DurationOrOff = Annotated[str, Meta(pattern=rf"^(off|{_LENGTH})$(?!\n)")]
# A relative one would be of whatever folder one is in.
AbsolutePath = Annotated[str, Meta(pattern=r"^/")]
MemorySize = Annotated[str, Meta(pattern=r"^[0-9]{1,9}[kmg]$(?!\n)")]
# Becomes part of a path of this machine, and is written by whoever hands an environment on.
PathPart = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$(?!\n)")]
Positive = Annotated[int, Meta(ge=1)]


# --- The environment: the stack output `environment` (docs/schemas/environment-1.json) ----


class Workspace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place that runs are kept in: an Azure ML workspace, or a folder (endpoint file://...)."""

    name: PathPart
    id: str
    endpoint: str

    @property
    def is_folder(self) -> bool:
        """Tell if it is a folder of this machine."""
        return self.endpoint.startswith("file:")


class Containers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of the two blob containers."""

    data: str
    runs: str


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The blob store. `folder` is local only: where Azurite keeps its data and key file.

    `datastores` are Azure ML's names for containers, where they are not called as these.
    """

    account: str
    blob_endpoint: str
    containers: Containers
    folder: AbsolutePath | None = None
    datastores: dict[str, str] = {}

    def datastore(self, container: str) -> str:
        """Give Azure ML's name of a container: no name there has a dash."""
        return self.datastores.get(container, container.replace("-", "_"))


class Registry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container registry; none on the local stack."""

    login_server: str


class KeyVault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vault that named secrets live in; none on the local stack."""

    uri: str


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster; `compute` is its physical name, the key in `clusters` the stable one.

    `family` is what Azure counts the size's quota by. `price_as_of` is the day of a list price,
    None where the price is the stack's own or not known. `secrets` are the names that its identity
    may read in the vault, None where the stack does not say.
    """

    compute: str
    size: str
    gpus_per_node: Annotated[int, Meta(ge=0)]
    cpus_per_node: Positive
    processes_per_node: Positive
    rdma: bool
    priority: Literal["dedicated", "low_priority"]
    min_nodes: Annotated[int, Meta(ge=0)]
    max_nodes: Positive
    idle_s: Annotated[int, Meta(ge=0)]
    price_per_node_hour: float | None
    currency: str | None
    family: str | None = None
    price_as_of: str | None = None
    secrets: tuple[str, ...] | None = None


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a stack that `jobs` uses. Never holds a key, SAS or connection string.

    From nodes of a `private` network only the stack's own services can be reached; None where nobody
    said which it is.
    """

    schema: Literal[1]
    stack: str
    engine: EngineName
    location: PathPart
    subscription_id: str | None
    resource_group: str | None
    workspace: Workspace
    storage: Storage
    registry: Registry | None
    key_vault: KeyVault | None
    clusters: dict[str, Cluster]
    images: dict[str, str]
    network: Literal["public", "private"] | None = None

    @property
    def is_imported(self) -> bool:
        """Tell whether no stack has made it: `launch env import` calls it as its workspace."""
        return self.stack == self.workspace.name


# --- The job file (docs/schemas/job-1.json) ------------------------------------------------


class JobInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dataset (`name` or `name@version`), or a folder or file to push, that the job reads.

    `file` is the one file of a dataset that the input stands for.
    """

    dataset: str | None = None
    path: str | None = None
    file: str | None = None
    mode: InputMode = "download"


class JobOutput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that the job writes and `launch fetch` brings back."""


class JobLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`wall_clock` and `hang` as durations (`90s`, `30m`, `12h`); `cost` in the currency.

    A `hang` that is `off` is not looked for.
    """

    wall_clock: Duration | None = None
    cost: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    hang: DurationOrOff = "30m"


class JobRetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number of restarts of a run, and the failures that lead to one."""

    max: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    on: tuple[Literal["preemption", "node_failure"], ...] = ("preemption", "node_failure")


class JobFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job file as written; paths in it are relative to the file."""

    name: Name
    description: str | None = None
    image: str
    launcher: Launcher = "none"
    module: str | None = None
    script: str | None = None
    command: tuple[str, ...] | None = None
    code: str | None = None
    args: (
        dict[str, bool | int | float | str | list[int | float | str] | None]
        | tuple[int | float | str, ...]
    ) = {}
    cluster: str | None = None
    nodes: Positive | Literal["max"] = 1
    processes_per_node: Positive | Literal["gpu"] = "gpu"
    parameter_servers: Annotated[int, Meta(ge=0, le=1_000)] = 0
    chief: bool = False
    inputs: dict[VariableName, JobInput] = {}
    outputs: dict[VariableName, JobOutput] = {}
    requirements: str | None = None
    setup: tuple[str, ...] = ()
    env: dict[VariableName, str] = {}
    secrets: dict[VariableName, str] = {}
    limits: JobLimits = JobLimits()
    retry: JobRetry = JobRetry()
    shm_size: MemorySize | None = None
    priority: Priority = "normal"
    identity: JobIdentity = "managed"
    experiment: Name | None = None
    tags: dict[str, str] = {}


# --- The resolved job, the plan, the run ---------------------------------------------------


class DatasetVersion(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An immutable version of a dataset; `prefix` is set where it was registered in its place."""

    name: str
    version: int
    digest: str
    files: int
    bytes: int
    prefix: str | None = None

    @property
    def ref(self) -> str:
        """The name and number by which a job file names the version."""
        return f"{self.name}@{self.version}"

    @property
    def content_prefix(self) -> str:
        """The prefix of its blobs' names, in the container `data`."""
        return self.prefix or f"{self.name}/{self.digest}/"


class InputSource(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The folder or file that an input is pushed from, and how much of it the store lacks yet."""

    path: str
    missing_files: int = 0
    missing_bytes: int = 0


class InputSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job's input with its dataset version pinned; `file` is the one that it stands for."""

    dataset: DatasetVersion
    mode: InputMode
    file: str | None = None
    source: InputSource | None = None


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job's limits in seconds; `cost` is what `wall_clock_s` comes from where that is less.

    None is no limit.
    """

    wall_clock_s: float | None
    hang_s: float | None
    cost: float | None = None


class ResumePoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run whose checkpoints a job begins with, and the step of the newest of them."""

    run: str
    step: int


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job with everything decided: what `Engine.plan` takes. Holds no secret's value.

    `command` is the whole argv of one rank; its first word `python` means the image's own
    interpreter. `code` is the absolute folder whose copy the command runs in; `code_only`
    names the sub-folders of it that travel (all when empty). `requirements` is a file in `code`;
    records of jobs without one leave it out. `identity` is left out where it is the cluster's.
    """

    name: str
    stack: str
    image: str
    launcher: Launcher
    command: tuple[str, ...]
    code: str | None
    code_only: tuple[str, ...]
    cluster: str
    compute: str
    nodes: int
    processes_per_node: int
    parameter_servers: int
    inputs: dict[str, InputSpec]
    outputs: tuple[str, ...]
    setup: tuple[str, ...]
    env: dict[str, str]
    secrets: dict[str, str]
    limits: Limits
    retry: JobRetry
    shm_size: str | None
    priority: Priority
    experiment: str | None
    tags: dict[str, str]
    chief: bool = False
    resume: ResumePoint | None = None
    requirements: str | UnsetType = UNSET
    identity: Literal["user"] | UnsetType = UNSET

    @property
    def world_size(self) -> int:
        """Number of ranks of the whole job; parameter servers are none."""
        return self.nodes * self.processes_per_node

    @property
    def num_processes(self) -> int:
        """Number of processes that have a log of their own: ranks, then parameter servers, numbered on."""
        return self.world_size + self.parameter_servers

    @property
    def pushed_paths(self) -> tuple[Path, ...]:
        """Folders and files that inputs are pushed from: they are data, and travel with no code."""
        return tuple(Path(each.source.path) for each in self.inputs.values() if each.source)


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request of an engine as data: `launch plan` prints it, `submit` takes it.

    `request` is JSON that only the engine reads, by a struct of its own. `folder` is that of the
    job file, where a rerun looks for the secrets, too.
    """

    engine: str
    spec: JobSpec
    request: Raw
    notes: tuple[str, ...] = ()
    folder: str | None = None


class RunState(StrEnum):
    """The states of a run."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"

    def is_terminal(self) -> bool:
        """Tell whether the run can change no more."""
        return self not in (RunState.QUEUED, RunState.PREPARING, RunState.RUNNING)


class RunHandle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names one submitted run; all an engine needs to find it again."""

    id: str
    engine: str
    run_dir: str


class RunStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run as `launch ls` and `launch show` give it; times are ISO 8601 in UTC.

    `experiment` is the job's name where its file names none.
    """

    id: str
    name: str
    state: RunState
    reason: str | None
    exit_code: int | None
    stack: str
    cluster: str
    nodes: int
    world_size: int
    created: str
    started: str | None
    ended: str | None
    run_dir: str
    experiment: str = ""
    tags: dict[str, str] = {}

    @property
    def size(self) -> str:
        """Nodes x ranks on each, as tables show it; empty where the run's record is gone."""
        return f"{self.nodes}x{self.world_size // self.nodes}" if self.nodes else ""


class GitState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The commit that the code came from, and the diff that was not committed."""

    commit: str
    dirty_diff: str | None


class RunRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`run.json`: what was asked for and with what; written once, before anything starts."""

    schema: Literal[1]
    id: str
    created: str
    plan: Plan
    git: GitState | None
    image_digest: str | None
    environment_digest: str


class RankError(Struct, frozen=True, kw_only=True):
    """`error.json`: the rank that failed first, why, and its traceback where it left one."""

    rank: int | None
    host: str
    cause: str
    message: str
    traceback: str | None
    exit_code: int | None


class LogLine(Struct, frozen=True, kw_only=True):
    """A line of one rank; `ts` is ISO 8601 in UTC with microseconds."""

    ts: str
    rank: int
    text: str
