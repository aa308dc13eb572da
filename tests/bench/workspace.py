"""A local environment of the benchmark's own: an environment file and an empty workspace."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainer.common.accelerators import has_instructions
from trainer.common.training_options import PrecisionName


def launch_program(project: Path) -> Path:
    """The `launch` of the project's environment."""
    return project / ".venv" / "bin" / "launch"


def runtime_bin(project: Path) -> Path:
    """The folder of programs of the pytorch runtime: python, torchrun, horovodrun."""
    from jobs.images.runtimes import runtime_python

    return runtime_python("pytorch", project).parent


def cpu_precision() -> PrecisionName:
    """The precision that this machine's CPU is fastest in: bf16 where it has instructions for it."""
    return "bf16" if has_instructions("bf16") else "fp32"


def local_environment(folder: Path, *, processes_per_node: int = 2) -> Path:
    """Write an environment file whose one cluster is this machine; gives its path."""
    workspace = folder / "workspace"
    workspace.mkdir()
    cluster = {
        "compute": "cpu-bench",
        "size": "local",
        "gpus_per_node": 0,
        "cpus_per_node": os.cpu_count(),
        "processes_per_node": processes_per_node,
        "rdma": False,
        "priority": "dedicated",
        "min_nodes": 1,
        "max_nodes": 1,
        "idle_s": 0,
        "price_per_node_hour": 0.0,
        "currency": None,
    }
    environment = {
        "schema": 1,
        "stack": "local",
        "engine": "local",
        "location": "local",
        "subscription_id": None,
        "resource_group": None,
        "workspace": {"name": "bench", "id": "bench", "endpoint": workspace.as_uri()},
        "storage": {
            "account": "trainyard",
            "blob_endpoint": "http://127.0.0.1:1/trainyard",
            "containers": {"data": "data", "runs": "runs"},
            "folder": str(folder / "storage"),
        },
        "registry": None,
        "key_vault": None,
        "clusters": {"cpu": cluster},
        "images": {},
    }
    path = folder / "environment.json"
    path.write_text(json.dumps(environment))
    return path
