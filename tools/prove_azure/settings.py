"""Writes the settings and the state's place of a stack that is made to be destroyed."""

from __future__ import annotations

import argparse
from typing import Any

from jobs.host.private import make_folder
from tools.project import Project

SIZE = "Standard_D4ds_v4"
BUDGET = 20


def make(
    stage: str, options: argparse.Namespace, *, generation: int, role_wait_s: int
) -> dict[str, object]:
    """Decide the `trainyard:` settings."""
    cluster = {"size": SIZE, "priority": "low_priority", "max_nodes": 2, "idle_s": 120}
    clusters: dict[str, Any] = {"cpu": {**cluster, "processes_per_node": 2}}
    if stage == "dev":
        # Without quota in a new subscription, which is what it is for.
        gpu = {**cluster, "size": "Standard_NC4as_T4_v3", "max_nodes": 1}
        clusters["gpu"] = gpu
    found: dict[str, object] = {
        "engine": "azureml",
        "name": options.name,
        "owner": options.owner,
        "location": options.location,
        "network": "public" if stage == "dev" else "private",
        "generation": generation,
        "role_wait_s": role_wait_s,
        "budget": {"monthly_amount": BUDGET},
        "clusters": clusters,
        "secrets": ["prove-secret"],
        "people": {"practitioners": [options.group], "operators": [options.group]},
    }
    if stage == "dev":
        found["allowed_ips"] = [options.address]
    return found


def write(project: Project, stack: str, found: dict[str, object]) -> None:
    """Write them as the stack's file, beside what Pulumi itself keeps there (its salt)."""
    import yaml

    path = project.root / f"Pulumi.{stack}.yaml"
    known: dict[str, Any] = {}
    if path.exists():
        known = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    config = {f"trainyard:{key}": value for key, value in found.items()}
    path.write_text(yaml.safe_dump({**known, "config": config}), encoding="utf-8")


def variables(project: Project) -> dict[str, str]:
    """Name the folder of this stack's state, which holds no secret and lasts as long as it."""
    state = project.state / "prove" / "state"
    make_folder(state)
    return {"PULUMI_BACKEND_URL": f"file://{state}", "PULUMI_CONFIG_PASSPHRASE": ""}
