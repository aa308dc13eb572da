"""Checks the settings of the local stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.sections import PROJECT, Section

TOOLS_FILE = ".trainyard/tools.json"
MAX_NODES = 64
MAX_PROCESSES_PER_NODE = 256


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Azurite's port on 127.0.0.1 and the absolute folder of its data."""

    port: int
    folder: Path


@dataclass(frozen=True, kw_only=True)
class WorkspaceSettings:
    """The absolute folder that holds the runs."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Number of nodes, and the most ranks that a node without GPUs takes (the default, too)."""

    nodes: int
    processes_per_node: int


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Absolute paths of what set-up installed: Node, and the main script of Azurite's blobs."""

    node: str
    azurite: str


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """Checked settings of the local stack."""

    storage: StorageSettings
    workspace: WorkspaceSettings
    clusters: Mapping[str, ClusterSettings]
    images: Mapping[str, str]
    tools: Tools


def parse_local(top: Section, *, root: Path) -> LocalSettings:
    """Read the settings; problems are noted in the section. Folders are relative to `root`."""
    storage = _parse_storage(top.take_section("storage"), root)
    workspace = _parse_workspace(top.take_section("workspace"), root)
    clusters = _parse_clusters(top.take_section("clusters"))
    images = top.take_texts("images")
    top.close()
    if storage.folder.is_relative_to(workspace.folder) or workspace.folder.is_relative_to(
        storage.folder
    ):
        top.refuse("workspace.folder", f"shares a folder with {PROJECT}:storage.folder")
    tools = _read_tools(root, top.problems)
    return LocalSettings(
        storage=storage, workspace=workspace, clusters=clusters, images=images, tools=tools
    )


def _parse_storage(section: Section, root: Path) -> StorageSettings:
    settings = StorageSettings(
        port=section.take_number("port", 1024, 65535), folder=section.take_folder("folder", root)
    )
    section.close()
    return settings


def _parse_workspace(section: Section, root: Path) -> WorkspaceSettings:
    settings = WorkspaceSettings(folder=section.take_folder("folder", root))
    section.close()
    return settings


def _parse_clusters(section: Section) -> dict[str, ClusterSettings]:
    clusters: dict[str, ClusterSettings] = {}
    for name in section.names():
        cluster = section.take_section(name)
        clusters[name] = ClusterSettings(
            nodes=cluster.take_number("nodes", 1, MAX_NODES),
            processes_per_node=cluster.take_number("processes_per_node", 1, MAX_PROCESSES_PER_NODE),
        )
        cluster.close()
    if not clusters:
        section.refuse("", "names no cluster")
    return clusters


def _read_tools(root: Path, problems: list[str]) -> Tools:
    path = root / TOOLS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tools = Tools(node=found["node"], azurite=found["azurite"])
    except FileNotFoundError:
        problems.append(f"{path} is missing; `make setup` writes it")
        return Tools(node="", azurite="")
    except (OSError, ValueError, KeyError, TypeError) as error:
        problems.append(f"{path} is damaged ({error!r}); `make setup` writes it anew")
        return Tools(node="", azurite="")
    problems += [
        f"{path}: {tool} is not there; `make setup` installs it"
        for tool in (tools.node, tools.azurite)
        if not Path(tool).is_file()
    ]
    return tools
