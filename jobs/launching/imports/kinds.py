"""Names the kinds of documents that an import reads."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The kinds of documents; the order is that in which they are read: jobs need the clusters,
    and a project is about its jobs."""

    CLUSTER = "a cluster of Batch AI"
    FILE_SERVER = "a file server of Batch AI"
    JOB = "a job of Batch AI"
    COMMAND_JOB = "a command job of Azure ML"
    RUN_CONFIGURATION = "a run configuration of Azure ML's first version"
    SKYPILOT = "a task of SkyPilot"
    DSTACK = "a task of dstack"
    TORCHX = "an application of TorchX"
    PROJECT = "the project.json of a job-submission script"
    SCRIPT = "command lines of `az batchai`"
    PART = "a file that options of a command line complete"
