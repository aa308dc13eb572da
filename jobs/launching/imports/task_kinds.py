"""Tells the task files of other tools apart by their keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobs.jobfile.yaml_tree import Entry, Node
from jobs.launching.imports.kinds import Kind

ENDINGS = (".yaml", ".yml", ".runconfig")
_OF_SKYPILOT = {"resources", "num_nodes", "workdir", "envs", "file_mounts"}
_OF_RUN = {"framework", "communicator", "nodeCount", "environment", "target"}
_OF_AZURE_ML = {"environment", "compute", "resources", "distribution", "experiment_name"}
# Keys of our own job files, which have a `command`, too.
_OURS = {"image", "launcher"}


def task_kind(root: Node, path: Path) -> Kind | None:
    """Tell the kind of a task file; None for files of other tools, and for our own."""
    top = root.value
    if not isinstance(top, dict):
        return None
    keys = {key for key, entry in top.items() if entry.node.value is not None}
    if (
        "script" in keys
        and keys & _OF_RUN
        and (path.suffix == ".runconfig" or len(keys & _OF_RUN) > 1)
    ):
        return Kind.RUN_CONFIGURATION
    kind, schema = _text(top, "type"), _text(top, "$schema")
    if "commandjob" in schema.lower() and "azuremlschemas" in schema.lower():
        return Kind.COMMAND_JOB
    if kind in ("", "command") and "command" in keys and keys & _OF_AZURE_ML and not keys & _OURS:
        return Kind.COMMAND_JOB
    if kind == "task" and keys & {"commands", "image"}:
        return Kind.DSTACK
    if "run" in keys and isinstance(top["run"].node.value, str) and keys & _OF_SKYPILOT:
        return Kind.SKYPILOT
    return Kind.TORCHX if _has_roles(top) else None


def _text(top: Mapping[str, Entry], key: str) -> str:
    value = top[key].node.value if key in top else ""
    return value if isinstance(value, str) else ""


def _has_roles(top: Mapping[str, Entry]) -> bool:
    roles = top["roles"].node.value if "roles" in top else None
    return (
        isinstance(roles, list)
        and bool(roles)
        and all(isinstance(each.value, dict) and "entrypoint" in each.value for each in roles)
    )
