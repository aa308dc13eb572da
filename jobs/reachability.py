"""Looks whether each part of an environment can be used from here: store, workspace, clusters."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from jobs.console import count_text
from jobs.spec import Cluster, Environment

TIMEOUT_S = 10


class PartCheck(Struct, frozen=True, kw_only=True):
    """One part of the environment, whether it can be used, and what was found."""

    part: str
    ok: bool
    detail: str


def check_environment(environment: Environment) -> list[PartCheck]:
    """Look at every part; changes nothing, starts nothing, blocks for at most some seconds."""
    return [
        _check_store(environment),
        _check_workspace(environment),
        *(_check_cluster(name, each) for name, each in environment.clusters.items()),
    ]


def _check_store(environment: Environment) -> PartCheck:
    storage = environment.storage
    if storage.folder is None:
        ok = _listens(storage.blob_endpoint)
        detail = storage.blob_endpoint if ok else f"nothing answers at {storage.blob_endpoint}"
        return PartCheck(part="storage", ok=ok, detail=detail)
    # infra's own program knows whether what listens there is this environment's Azurite.
    program = [sys.executable, "-P", "-m", "infra.local.azurite_server", "status", storage.folder]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return PartCheck(part="storage", ok=True, detail=f"answering at {storage.blob_endpoint}")
    stack = environment.stack
    detail = (
        f"Azurite is down; a job that needs it brings it back, and so does "
        f"`pulumi refresh -s {stack}`, `pulumi up -s {stack}`"
    )
    return PartCheck(part="storage", ok=False, detail=detail)


def _check_workspace(environment: Environment) -> PartCheck:
    endpoint = environment.workspace.endpoint
    url = urlsplit(endpoint)
    if url.scheme != "file":
        ok = _listens(endpoint)
        detail = endpoint if ok else f"nothing answers at {endpoint}"
        return PartCheck(part="workspace", ok=ok, detail=detail)
    folder = nearest = Path(unquote(url.path))
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return PartCheck(part="workspace", ok=False, detail=f"{nearest} cannot be written to")
    return PartCheck(part="workspace", ok=True, detail=f"{folder} can be written to")


def _check_cluster(name: str, cluster: Cluster) -> PartCheck:
    detail = (
        f"up to {count_text(cluster.max_nodes, 'node')} of "
        f"{count_text(cluster.cpus_per_node, 'core')}, {count_text(cluster.gpus_per_node, 'GPU')}"
    )
    if cluster.size == "local":
        wanted, cores = cluster.cpus_per_node * cluster.max_nodes, _num_cores()
        # A node has one core at least, so more nodes than cores is the owner's choice.
        if cluster.cpus_per_node > 1 and wanted > cores:
            detail += f"; this machine has {count_text(cores, 'core')} now: `pulumi up` again"
            return PartCheck(part=f"cluster {name}", ok=False, detail=detail)
    return PartCheck(part=f"cluster {name}", ok=True, detail=detail)


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=TIMEOUT_S):
            return True
    except OSError:
        return False
