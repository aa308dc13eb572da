"""Written by tests/documents/python_stub.py: the functions are those of `launch` (docs/python.md)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from jobs.contracts.errors import EnvironmentFailure as EnvironmentFailure
from jobs.contracts.errors import LaunchError as LaunchError
from jobs.contracts.errors import NotFound as NotFound
from jobs.contracts.errors import Refused as Refused
from trainyard.one_run import Run as Run

Text = str | int | float | Path

class _RunStatus(TypedDict):
    """A run as `launch ls` and `launch show` give it; times are ISO 8601 in UTC."""

    id: str
    name: str
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
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
    experiment: str
    tags: dict[str, str]

class _Difference(TypedDict):
    """One thing that is not the same; None where a run does not have it."""

    key: str
    a: str | None
    b: str | None

class _Uncommitted(TypedDict):
    """The files of each run's code that were changed and not committed."""

    a: list[str]
    b: list[str]

class _FigurePair(TypedDict):
    """A final figure of both runs."""

    name: str
    a: float | None
    b: float | None

class _RunDiff(TypedDict):
    """The whole comparison, as `--json` prints it."""

    a: _RunStatus
    b: _RunStatus
    differences: list[_Difference]
    code_diff: str
    uncommitted: _Uncommitted
    metrics: list[_FigurePair]

class _Check(TypedDict):
    """A checked part, the finding, and the exact command that corrects it."""

    part: str
    health: Literal['ok', 'note', 'missing']
    found: str
    mend: str | None

class _Stack(TypedDict):
    stack: str
    up: bool | None

class _Workspace(TypedDict):
    """A place that runs are kept in: an Azure ML workspace, or a folder (endpoint file://...)."""

    name: str
    id: str
    endpoint: str

class _Containers(TypedDict):
    """Names of the two blob containers."""

    data: str
    runs: str

class _Storage(TypedDict):
    """The blob store. `folder` is local only: where Azurite keeps its data and key file."""

    account: str
    blob_endpoint: str
    containers: _Containers
    folder: str | None
    datastores: dict[str, str]

class _Registry(TypedDict):
    """The container registry; none on the local stack."""

    login_server: str

class _KeyVault(TypedDict):
    """The vault that named secrets live in; none on the local stack."""

    uri: str

class _Cluster(TypedDict):
    """A cluster; `compute` is its physical name, the key in `clusters` the stable one."""

    compute: str
    size: str
    gpus_per_node: int
    cpus_per_node: int
    processes_per_node: int
    rdma: bool
    priority: Literal['dedicated', 'low_priority']
    min_nodes: int
    max_nodes: int
    idle_s: int
    price_per_node_hour: float | None
    currency: str | None
    family: str | None
    price_as_of: str | None
    secrets: list[str] | None

class _Environment(TypedDict):
    """Facts of a stack that `jobs` uses. Never holds a key, SAS or connection string."""

    schema: Literal[1]
    stack: str
    engine: Literal['local', 'azureml', 'azureml_v1']
    location: str
    subscription_id: str | None
    resource_group: str | None
    workspace: _Workspace
    storage: _Storage
    registry: _Registry | None
    key_vault: _KeyVault | None
    clusters: dict[str, _Cluster]
    images: dict[str, str]
    network: Literal['public', 'private'] | None

class _Outlook(TypedDict):
    """Progress of a run with what is left of it; None for what nobody can tell yet."""

    done: float
    total: float | None
    unit: Literal['step', 'epoch', 'sample']
    share: float | None
    left_s: float | None
    samples_per_s: float | None
    updated_s: float
    silent_s: float | None

class _Spent(TypedDict):
    """The cost of a run so far, of all attempts on all nodes; `at_end` where the time left is known."""

    amount: float
    currency: str | None
    num_nodes: int
    ran_s: float
    price_per_node_hour: float
    price_as_of: str | None
    at_end: float | None

class _ListedRun(TypedDict):
    id: str
    name: str
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
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
    experiment: str
    tags: dict[str, str]
    progress: _Outlook | None
    cost: _Spent | None

class _DatasetVersion(TypedDict):
    """An immutable version of a dataset; `prefix` is set where it was registered in its place."""

    name: str
    version: int
    digest: str
    files: int
    bytes: int
    prefix: NotRequired[str | None]

class _InputSource(TypedDict):
    """The folder or file that an input is pushed from, and how much of it the store lacks yet."""

    path: str
    missing_files: NotRequired[int]
    missing_bytes: NotRequired[int]

class _InputSpec(TypedDict):
    """A job's input with its dataset version pinned; `file` is the one that it stands for."""

    dataset: _DatasetVersion
    mode: Literal['mount', 'download', 'stream']
    file: NotRequired[str | None]
    source: NotRequired[_InputSource | None]

class _Limits(TypedDict):
    """The job's limits in seconds; `cost` is what `wall_clock_s` comes from where that is less."""

    wall_clock_s: float | None
    hang_s: float | None
    cost: float | None

class _JobRetry(TypedDict):
    """Number of restarts of a run, and the failures that lead to one."""

    max: int
    on: list[Literal['preemption', 'node_failure']]

class _ResumePoint(TypedDict):
    """The run whose checkpoints a job begins with, and the step of the newest of them."""

    run: str
    step: int

class _JobSpec(TypedDict):
    """A job with everything decided: what `Engine.plan` takes. Holds no secret's value."""

    name: str
    stack: str
    image: str
    launcher: Literal['horovod', 'torch', 'tensorflow', 'mpi', 'none']
    command: list[str]
    code: str | None
    code_only: list[str]
    cluster: str
    compute: str
    nodes: int
    processes_per_node: int
    parameter_servers: int
    inputs: dict[str, _InputSpec]
    outputs: list[str]
    setup: list[str]
    env: dict[str, str]
    secrets: dict[str, str]
    limits: _Limits
    retry: _JobRetry
    shm_size: str | None
    priority: Literal['low', 'normal', 'high']
    experiment: str | None
    tags: dict[str, str]
    chief: bool
    resume: _ResumePoint | None
    requirements: NotRequired[str]
    identity: NotRequired[Literal['user']]

class _Band(TypedDict):
    """Hold a figure, and the range that is meant to hold it in 9 of 10 cases."""

    middle: float
    low: float
    high: float

class _Forecast(TypedDict):
    """Tell how fast a job runs on a layout, how long and at what cost."""

    cluster: str
    nodes: int
    processes_per_node: int
    rate: _Band
    time_s: _Band | None
    cost: _Band | None
    node_hours: _Band | None
    gpu_hours: _Band | None
    binds: Literal['compute', 'exchange inside a node', 'exchange between nodes', 'synchronisation', 'loader', 'line of a node', 'store', 'start-up', 'download of the data', 'checkpoints', 'evaluation']
    restarts: float
    why_wide: str | None
    source: str | None
    parts: dict[str, float]

class _Takeover(TypedDict):
    """Tell from how many nodes on another limit binds."""

    nodes: int
    limit: Literal['compute', 'exchange inside a node', 'exchange between nodes', 'synchronisation', 'loader', 'line of a node', 'store', 'start-up', 'download of the data', 'checkpoints', 'evaluation']

class _Twice(TypedDict):
    """Compare a layout with one of twice the nodes: so many times as fast, and as dear."""

    faster: float
    dearer: float

class _Foreseen(TypedDict):
    """Hold what is known of a job before it starts; without a forecast `unknown` says why."""

    forecast: _Forecast | None
    unit: Literal['step', 'epoch', 'sample']
    prepare_s: float
    is_measured: bool
    next_limit: _Takeover | None
    twice_the_nodes: _Twice | None
    runs: list[str]
    num_runs: int
    published: str | None
    unknown: str | None

class _ForeseenPlan(TypedDict):
    """Add the forecast to a plan, for `launch plan --json`."""

    engine: str
    spec: _JobSpec
    request: Any
    notes: list[str]
    folder: str | None
    foreseen: _Foreseen

class _Figure(TypedDict):
    """A metric's last and best value, with the epochs (or steps) at which they were found."""

    split: str
    name: str
    goal: Literal['max', 'min'] | None
    axis: Literal['epoch', 'step']
    last: float
    last_at: float
    best: float | None
    best_at: float | None

class _Figures(TypedDict):
    """Hold a run's final figures, rates over all ranks; None for those that the run did not write."""

    epochs: float | None
    test_accuracy: float | None
    test_loss: float | None
    images_per_s: float | None
    data_wait_s: float | None
    main: _Figure | None

class _RankError(TypedDict):
    """`error.json`: the rank that failed first, why, and its traceback where it left one."""

    rank: int | None
    host: str
    cause: str
    message: str
    traceback: str | None
    exit_code: int | None

class _ReportedRun(TypedDict):
    id: str
    name: str
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
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
    experiment: str
    tags: dict[str, str]
    time_s: float | None
    figures: _Figures
    metrics: list[_Figure]
    differs: dict[str, str] | None
    summary: dict[str, Any]
    error: _RankError | None
    forecast: dict[str, Any] | None

class _Report(TypedDict):
    picture: str | None
    runs: list[_ReportedRun]

class _RankReport(TypedDict):
    """`ranks/NNNNN.json`: the record that rank/main.py keeps of its rank."""

    rank: int
    node: int
    host: str
    pid: int
    child: int
    stage: str | None
    setup: str | None
    exit_code: int | None
    signal: int | None
    exited_s: float | None
    ended_s: float | None
    stopped_s: float | None
    output_closed_s: float | None
    out_of_memory: bool
    traceback: str | None
    traceback_s: float | None
    last_lines: str
    log_error: str | None
    hang_seconds: float | None
    silent_seconds: float
    was_stopped: bool

class _Plan(TypedDict):
    """Request of an engine as data: `launch plan` prints it, `submit` takes it."""

    engine: str
    spec: _JobSpec
    request: Any
    notes: list[str]
    folder: str | None

class _GitState(TypedDict):
    """The commit that the code came from, and the diff that was not committed."""

    commit: str
    dirty_diff: str | None

class _RunRecord(TypedDict):
    """`run.json`: what was asked for and with what; written once, before anything starts."""

    schema: Literal[1]
    id: str
    created: str
    plan: _Plan
    git: _GitState | None
    image_digest: str | None
    environment_digest: str

class _RunEvent(TypedDict):
    """A line of `events.jsonl`: the state that the run entered at `ts`."""

    ts: str
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
    reason: str | None
    exit_code: int | None
    attempt: str | None

class _AttemptBrief(TypedDict):
    """One start of the run's gang; `ended` and `reason` are None while it runs."""

    name: str
    started: str
    ended: str | None
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
    reason: str | None

class _Checkpoint(TypedDict):
    """A whole checkpoint; `saved` is ISO 8601 in UTC."""

    name: str
    step: int
    saved: str | None
    bytes: int

class _Checkpoints(TypedDict):
    count: int
    newest: _Checkpoint | None
    all: list[_Checkpoint]

class _ShownRun(TypedDict):
    id: str
    name: str
    state: Literal['queued', 'preparing', 'running', 'completed', 'failed', 'cancelled', 'preempted', 'lost']
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
    experiment: str
    tags: dict[str, str]
    error: _RankError | None
    ranks: list[_RankReport]
    metrics: list[dict[str, Any]]
    record: _RunRecord
    events: list[_RunEvent]
    attempts: list[_AttemptBrief]
    checkpoints: _Checkpoints
    resumed_from: _ResumePoint | None
    places: dict[str, str]
    progress: _Outlook | None
    cost: _Spent | None

def bench(
    job: Text,
    arguments: Text | Iterable[Text] | None = ...,
    *,
    nodes: Text | None = ...,
    processes_per_node: Text | None = ...,
    strong: Text | None = ...,
    measure: Text | None = ...,
    into: Text | None = ...,
    cluster: Text | None = ...,
    priority: Text | None = ...,
    set: Mapping[str, object] | Text | Iterable[Text] | None = ...,
    yes: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Measure a job at several sizes, and report how it scales."""

def cancel(
    runs: Text | Iterable[Text],
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """End runs."""

class cluster:
    @staticmethod
    def ls(
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """List the clusters with the states of their nodes and their current cost."""

    @staticmethod
    def show(
        cluster: Text,
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Show a cluster: nodes with their runs, scale, quota and cost."""

    @staticmethod
    def pause(
        cluster: Text,
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Set the minimum to 0 nodes and wait until all are released; runs go on to their end."""

    @staticmethod
    def resume(
        cluster: Text,
        *,
        nodes: Text | None = ...,
        yes: bool = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Keep nodes warm, so that runs begin without waiting for machines."""

    @staticmethod
    def resize(
        cluster: Text,
        nodes: Text,
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Change a cluster's maximum number of nodes; prints the setting."""

class data:
    @staticmethod
    def prepare(
        dataset: Text,
        *,
        to: Text,
        from_: Text | None = ...,
        download: bool = ...,
        checksums: Text | None = ...,
        no_weights: bool = ...,
    ) -> Any:
        """Make a dataset's folder from its archives (`digits` needs no archives)."""

    @staticmethod
    def pack(
        folder: Text,
        *,
        to: Text,
        format: Text | None = ...,
        shard_size: Text | None = ...,
    ) -> Any:
        """Pack class folders or a COCO folder into a few large shards."""

    @staticmethod
    def synthesize(
        dataset: Text,
        *,
        images: Text,
        to: Text,
        classes: Text | None = ...,
        seed: Text | None = ...,
    ) -> Any:
        """Make random JPEGs in the layout and sizes of a dataset, for tests."""

    @staticmethod
    def push(
        folder: Text,
        name: Text,
        *,
        dry_run: bool = ...,
        limit_rate: Text | None = ...,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Upload a folder as a new version of a dataset; files that the store has are not sent."""

    @staticmethod
    def pull(
        ref: Text,
        *,
        to: Text,
        delete: bool = ...,
        yes: bool = ...,
        dry_run: bool = ...,
        limit_rate: Text | None = ...,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Download a dataset into a folder; equal files in the folder are kept."""

    @staticmethod
    def ls(
        name: Text | None = ...,
        *,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """List datasets and their versions, the newest of each first."""

    @staticmethod
    def show(
        ref: Text,
        *,
        files: bool = ...,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Show a version: size, largest folders, place in the store."""

    @staticmethod
    def diff(
        a: Text,
        b: Text,
        *,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Compare the files of two versions."""

    @staticmethod
    def copy(
        ref: Text,
        *,
        to: Text,
        dry_run: bool = ...,
        limit_rate: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Copy a version to another stack; files that its store has are not copied again."""

    @staticmethod
    def rm(
        ref: Text,
        *,
        yes: bool = ...,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Remove a version; its number is never used again."""

    @staticmethod
    def register(
        name: Text,
        prefix: Text,
        *,
        sas: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Make a version from a folder in the store, without a copy."""

def diff(
    a: Text,
    b: Text,
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> _RunDiff:
    """Show how two runs differ."""

def doctor(
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> list[_Check]:
    """Check this machine and name what is missing."""

class env:
    @staticmethod
    def ls() -> list[_Stack]:
        """List the stacks that have settings, and which of them are up on this machine."""

    @staticmethod
    def show(
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
        refresh: bool = ...,
    ) -> _Environment:
        """Show an environment: store, workspace, clusters, images."""

    @staticmethod
    def export(
        *,
        stack: Text | None = ...,
        engine: Text | None = ...,
        output: Text | None = ...,
        refresh: bool = ...,
    ) -> Any:
        """Write an environment file, which needs no Pulumi: `launch ... --env FILE`."""

    @staticmethod
    def import_(
        *,
        workspace: Text,
        data: Text | None = ...,
        runs: Text | None = ...,
        engine: Text | None = ...,
        output: Text | None = ...,
    ) -> Any:
        """Write an environment file for an Azure ML workspace that no stack made."""

    @staticmethod
    def check(
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
        only: Text | None = ...,
        allow_replace: Text | Iterable[Text] | None = ...,
    ) -> Any:
        """Test access to each part, and list what `pulumi up` would destroy."""

    @staticmethod
    def repair(
        *,
        stack: Text | None = ...,
    ) -> Any:
        """Repair a stack whose `pulumi up` was killed: remove stale locks and pending operations."""

    @staticmethod
    def trust(
        folder: Text,
    ) -> Any:
        """Trust a project of another user, or another clone."""

def exec(
    run: Text,
    command: Text | Iterable[Text],
    *,
    rank: Text | None = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Run a command beside a rank, in its folder, variables and image."""

def fetch(
    run: Text | None = ...,
    *,
    into: Text | None = ...,
    follow: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Download a run's outputs and logs."""

class image:
    @staticmethod
    def init(
        name: Text,
        *,
        from_: Text | None = ...,
    ) -> Any:
        """Write images/NAME: a Dockerfile, a list of packages and its lock, ready to be changed."""

    @staticmethod
    def lock(
        name: Text,
    ) -> Any:
        """Write an image's lock: exact versions of its packages, with hashes."""

    @staticmethod
    def install(
        name: Text,
    ) -> Any:
        """Make an image's runtime on this machine: a virtual environment from the image's lock."""

    @staticmethod
    def build(
        name: Text,
        *,
        variant: Text | None = ...,
    ) -> Any:
        """Build an image as a container with buildah, podman or docker; the tag identifies its content."""

    @staticmethod
    def push(
        name: Text,
        *,
        variant: Text | None = ...,
        registry: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Upload a built image to a registry; prints the setting that pins its digest."""

    @staticmethod
    def promote(
        name: Text,
        *,
        to: Text,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Copy a pinned image to another stack's registry; prints the setting that pins its digest."""

    @staticmethod
    def path(
        name: Text,
    ) -> Any:
        """Print the interpreter of an installed image, for IDEs and debuggers."""

    @staticmethod
    def ls() -> Any:
        """List the images, with their runtimes and built containers."""

def import_(
    documents: Text | Iterable[Text],
    *,
    into: Text | None = ...,
    code: Text | None = ...,
    as_mpi: bool = ...,
) -> Any:
    """Write job files from those of Batch AI and other tools."""

def init(
    script: Text,
    arguments: Text | Iterable[Text] | None = ...,
    *,
    into: Text | None = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Write the job file of a script."""

def jobs(
    name: Text | None = ...,
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """List the jobs of the catalog with their requirements and arguments."""

def keep(
    runs: Text | Iterable[Text],
    *,
    undo: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Protect runs from `launch rm` and `launch prune`."""

def logs(
    run: Text | None = ...,
    *,
    follow: bool = ...,
    rank: Text | None = ...,
    grep: Text | None = ...,
    since: Text | None = ...,
    tail: Text | None = ...,
    timestamps: bool = ...,
    preparation: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Print the log lines of all ranks, merged by time."""

def ls(
    *,
    limit: Text | None = ...,
    name: Text | None = ...,
    experiment: Text | None = ...,
    tag: Text | Iterable[Text] | None = ...,
    state: Text | Iterable[Text] | None = ...,
    since: Text | None = ...,
    all: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> list[_ListedRun]:
    """List runs, newest first."""

class model:
    @staticmethod
    def register(
        run: Text,
        *,
        name: Text | None = ...,
        output: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Register a completed run's output as a new version of a model, with its lineage."""

    @staticmethod
    def ls(
        name: Text | None = ...,
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """List models and their versions, the newest of each first."""

    @staticmethod
    def show(
        ref: Text,
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Show a version: size, run, data, code, image, figures, place in the store."""

    @staticmethod
    def fetch(
        ref: Text,
        *,
        into: Text | None = ...,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Download a model: its files into DIR/files, its record into DIR/model.json."""

    @staticmethod
    def copy(
        ref: Text,
        *,
        to: Text,
        stack: Text | None = ...,
        env: Text | None = ...,
    ) -> Any:
        """Copy a version to another stack, with its lineage."""

def plan(
    job: Text,
    arguments: Text | Iterable[Text] | None = ...,
    *,
    nodes: Text | None = ...,
    processes_per_node: Text | None = ...,
    cluster: Text | None = ...,
    priority: Text | None = ...,
    set: Mapping[str, object] | Text | Iterable[Text] | None = ...,
    deadline: Text | None = ...,
    budget: Text | None = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> _ForeseenPlan:
    """Show what `launch run` would start."""

def predict(
    *,
    measured: Text,
    ask: Text,
) -> Any:
    """Predict training rates on more GPUs from measured ones."""

def prune(
    *,
    older: Text | None = ...,
    keep: Text | None = ...,
    datasets: bool = ...,
    dry_run: bool = ...,
    yes: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Remove old runs and cached files that nothing uses."""

def report(
    runs: Text | Iterable[Text] | None = ...,
    *,
    output: Text | None = ...,
    no_picture: bool = ...,
    html: Text | None = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> _Report:
    """Show the final figures of runs and draw their curves."""

def rerun(
    run: Text | None = ...,
    *,
    resume: bool = ...,
    nodes: Text | None = ...,
    processes_per_node: Text | None = ...,
    cluster: Text | None = ...,
    priority: Text | None = ...,
    set: Mapping[str, object] | Text | Iterable[Text] | None = ...,
    yes: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Run:
    """Start a recorded run again."""

def rm(
    runs: Text | Iterable[Text],
    *,
    yes: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Remove runs that are over, with their outputs and checkpoints."""

def run(
    job: Text,
    arguments: Text | Iterable[Text] | None = ...,
    *,
    nodes: Text | None = ...,
    processes_per_node: Text | None = ...,
    cluster: Text | None = ...,
    priority: Text | None = ...,
    set: Mapping[str, object] | Text | Iterable[Text] | None = ...,
    deadline: Text | None = ...,
    budget: Text | None = ...,
    yes: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Run:
    """Run a job and follow its ranks' logs."""

def schema(
    what: Text | None = ...,
    *,
    output: Text | None = ...,
) -> Any:
    """Print the JSON Schema of a job file or of an environment."""

def show(
    run: Text | None = ...,
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> _ShownRun:
    """Show a run's state, attempts, ranks and figures."""

def stacks(
    run: Text | None = ...,
    *,
    threads: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Show where all ranks stand in their Python code (stack traces); `launch env ls` lists stacks."""

def wait(
    run: Text | None = ...,
    *,
    timeout: Text | None = ...,
    passthrough: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Wait for the end of a run."""
