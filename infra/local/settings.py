"""Tells the local stack's settings: their types, and what this machine takes of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from infra.models import NAME, PROJECT, Problem, Rule, Wrong, checked, read_model, text

TOOLS_FILE = ".trainyard/tools.json"
MAX_NODES = 64
MAX_PROCESSES_PER_NODE = 256


def _check_folder(value: str, given: Mapping[str, Any]) -> Path | Wrong:
    """Make a folder absolute, from `root`; refuse one that cannot be created or written to."""
    folder = Path(os.path.normpath(given["root"] / Path(value).expanduser()))
    nearest = folder
    # os.path: pathlib's exists() raises on a folder that may not be looked into.
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not os.path.isdir(nearest):  # noqa: PTH112
        return Wrong(f"{nearest} is in the way, it is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Wrong(f"no permission to write in {nearest}")
    return folder


Name = Annotated[str, text(NAME, "name (small letters, digits, dashes; 32 at most)")]
Folder = Annotated[Path, checked(_check_folder)]


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Azurite's port on 127.0.0.1 and the absolute folder of its data."""

    port: Annotated[int, Meta(ge=1024, le=65535)]
    folder: Folder


class WorkspaceSettings(Struct, frozen=True, kw_only=True):
    """The absolute folder that holds the runs."""

    folder: Folder


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Number of nodes, and the most ranks that a node without GPUs takes (the default, too)."""

    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)]
    processes_per_node: Annotated[int, Meta(ge=1, le=MAX_PROCESSES_PER_NODE)]


class Tools(Struct, frozen=True, kw_only=True):
    """Absolute paths of what set-up installed: Node, and the main script of Azurite's blobs."""

    node: str
    azurite: str


def _folders_apart(storage: StorageSettings, workspace: WorkspaceSettings) -> Iterator[Problem]:
    one, other = storage.folder, workspace.folder
    if one.is_relative_to(other) or other.is_relative_to(one):
        yield "workspace.folder", f"shares a folder with {PROJECT}:storage.folder"


class LocalSettings(Struct, frozen=True, kw_only=True):
    """Checked settings of the local stack."""

    engine: Literal["azureml", "local"] = "local"
    storage: StorageSettings
    workspace: WorkspaceSettings
    clusters: Annotated[dict[Name, ClusterSettings], Meta(min_length=1)]
    images: dict[str, str] = {}
    tools: Tools
    rules: ClassVar[tuple[Rule, ...]] = (_folders_apart,)


def parse_local(
    config: Mapping[str, Any], *, root: Path, problems: list[str]
) -> LocalSettings | None:
    """Read the settings; with any problem, noted in `problems`, None.

    Folders are relative to `root`.
    """
    tools, faults = _read_tools(root)
    settings = read_model(LocalSettings, config, {"root": root, "tools": tools}, problems)
    problems += faults
    return settings


def _read_tools(root: Path) -> tuple[Tools, list[str]]:
    path, none = root / TOOLS_FILE, Tools(node="", azurite="")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tools = Tools(node=found["node"], azurite=found["azurite"])
    except FileNotFoundError:
        return none, [f"{path} is missing; `make setup` writes it"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return none, [f"{path} is damaged ({error!r}); `make setup` writes it anew"]
    return tools, [
        f"{path}: {tool} is not there; `make setup` installs it"
        for tool in (tools.node, tools.azurite)
        if not Path(tool).is_file()
    ]
