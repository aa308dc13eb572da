"""Parse the settings in an Azure ML job's variables (jobs/engines/azure_ml/node_job.py)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

RUN_VARIABLE, ATTEMPT_VARIABLE = "TRAINYARD_RUN", "TRAINYARD_ATTEMPT"
JOB_VARIABLE = "TRAINYARD_JOB"
# `user` where the job acts as the person that sent it; not set where as its cluster's identity.
IDENTITY_VARIABLE = "TRAINYARD_IDENTITY"
# In the run directory: this attempt began without the metrics of those before it.
UNREAD_METRICS = "metrics-unread"


class Stream(NamedTuple):
    """An input whose shards stay in the store: its list of files, and their prefix."""

    files: str
    prefix: str


class Settings(NamedTuple):
    """One attempt at a run.

    `secrets` maps variables to names in `vault`; `store` is the address of the blob service, `data`
    and `runs` are its containers. `env` are the variables whose values hold placeholders, `files` the
    one file that an input stands for. A run without a sign of life for `hang_s` is ended. `topology` is the
    series of the node's size, where NCCL has to be told how it is built (topology.py).
    """

    run: str
    attempt: int
    command: list[str]
    setup: list[str]
    chief: bool
    outputs: list[str]
    secrets: dict[str, str]
    vault: str | None
    store: str
    data: str
    runs: str
    streams: dict[str, Stream]
    env: Mapping[str, str] = MappingProxyType({})
    files: Mapping[str, str] = MappingProxyType({})
    requirements: str | None = None
    hang_s: float | None = None
    topology: str | None = None


def read_settings(environ: dict[str, str]) -> Settings:
    """Read the variables of the job."""
    told = json.loads(base64.urlsafe_b64decode(environ[JOB_VARIABLE]))
    streams = {name: Stream(**each) for name, each in told.pop("streams").items()}
    run, attempt = environ[RUN_VARIABLE], int(environ[ATTEMPT_VARIABLE])
    return Settings(run=run, attempt=attempt, streams=streams, **told)
