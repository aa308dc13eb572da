"""Name a run's jobs, code and checkpoints in Azure ML (pure)."""

from __future__ import annotations

# Stand in a plan for what is known only when it is submitted.
RUN, CODE = "<RUN>", "<CODE>"
CODE_VERSION = "1"
# Where the run history stands on a workspace's own host.
HISTORY = "/history/v1.0"
# Tag that tells our jobs from a workspace's others.
MARK = ("trainyard", "1")


def job_name(run: str, attempt: int = 1) -> str:
    """Name the job of an attempt; Azure ML's names have no dots."""
    return run if attempt == 1 else f"{run}_{attempt}"


def run_of_job(name: str) -> tuple[str, int]:
    """Split the name of a job of ours into its run and its attempt."""
    run, _, attempt = name.partition("_")
    return run, int(attempt or 1)


def checkpoints_prefix(run: str) -> str:
    """Name the folder of a run's checkpoints in the container `runs`; the blob store's rules know it."""
    return f"checkpoints/{run}/"


def resource_name(resource_id: str) -> str:
    """Give the name at the end of a resource's id."""
    return resource_id.rstrip("/").rpartition("/")[2]


def code_path(workspace: str, code: str) -> str:
    """Give the path in Resource Manager of an upload of code."""
    return f"{workspace}/codes/{code}/versions/{CODE_VERSION}"
