"""Written by tests/documents/python_stub.py: the functions are those of `launch` (docs/python.md)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobs.contracts.errors import EnvironmentFailure as EnvironmentFailure
from jobs.contracts.errors import LaunchError as LaunchError
from jobs.contracts.errors import NotFound as NotFound
from jobs.contracts.errors import Refused as Refused
from trainyard.one_run import Run as Run

Text = str | int | float | Path

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
) -> Any:
    """Show how two runs differ."""

def doctor(
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Check this machine and name what is missing."""

class env:
    @staticmethod
    def ls() -> Any:
        """List the stacks that have settings, and which of them are up on this machine."""

    @staticmethod
    def show(
        *,
        stack: Text | None = ...,
        env: Text | None = ...,
        refresh: bool = ...,
    ) -> Any:
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
) -> Any:
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
) -> Any:
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
) -> Any:
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
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Print the JSON Schema of a job file or of an environment."""

def show(
    run: Text | None = ...,
    *,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Show a run's state, attempts, ranks and figures."""

def stacks(
    run: Text | None = ...,
    *,
    threads: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Show all ranks' Python stacks, grouped by identical ones."""

def wait(
    run: Text | None = ...,
    *,
    timeout: Text | None = ...,
    passthrough: bool = ...,
    stack: Text | None = ...,
    env: Text | None = ...,
) -> Any:
    """Wait for the end of a run."""
