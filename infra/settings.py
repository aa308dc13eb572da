"""Typed settings of a stack from its configuration; every wrong key in one message.

Checked before anything is declared, so that a wrong setting creates nothing.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

PROJECT = "trainyard"
ENGINES = ("local",)
TOOLS_FILE = ".trainyard/tools.json"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
MAX_NODES = 64
MAX_PROCESSES_PER_NODE = 256


class SettingsError(Exception):
    """All that is wrong with the settings, one line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = "1 wrong setting" if len(problems) == 1 else f"{len(problems)} wrong settings"
        super().__init__("\n  ".join([f"{count}, nothing was changed", *problems]))


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
    """Number of nodes, and of ranks that a node runs where the job does not say."""

    nodes: int
    processes_per_node: int


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Absolute paths of what set-up installed: Node, and the main script of Azurite's blobs."""

    node: str
    azurite: str


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """Everything that the local stack is made from."""

    storage: StorageSettings
    workspace: WorkspaceSettings
    clusters: Mapping[str, ClusterSettings]
    images: Mapping[str, str]
    tools: Tools


def find_project_root() -> Path:
    """The folder of Pulumi.yaml: the working folder, which Pulumi sets to main's, or above it."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    problem = f"no Pulumi.yaml in {Path.cwd()} or above"
    raise SettingsError([problem])


def parse_settings(config: Mapping[str, str], *, root: Path) -> LocalSettings:
    """Check the stack's configuration as Pulumi hands it over (`trainyard:key` -> value).

    Objects come as JSON; keys of other namespaces are not ours to judge. Folders are taken
    relative to `root`. Raises SettingsError with every problem found.
    """
    problems: list[str] = []
    ours = {
        key.partition(":")[2]: _decode(value)
        for key, value in config.items()
        if key.startswith(f"{PROJECT}:")
    }
    top = _Section(f"{PROJECT}:", ours, problems, root)
    top.take_choice("engine", ENGINES)
    storage = _parse_storage(top.take_section("storage"))
    workspace = _parse_workspace(top.take_section("workspace"))
    clusters = _parse_clusters(top.take_section("clusters"))
    images = top.take_texts("images")
    top.close()
    if storage.folder.is_relative_to(workspace.folder) or workspace.folder.is_relative_to(
        storage.folder
    ):
        problems.append(
            f"{PROJECT}:workspace.folder: shares a folder with {PROJECT}:storage.folder"
        )
    tools = _read_tools(root, problems)
    if problems:
        raise SettingsError(problems)
    return LocalSettings(
        storage=storage, workspace=workspace, clusters=clusters, images=images, tools=tools
    )


def _parse_storage(section: _Section) -> StorageSettings:
    settings = StorageSettings(
        port=section.take_number("port", 1024, 65535), folder=section.take_folder("folder")
    )
    section.close()
    return settings


def _parse_workspace(section: _Section) -> WorkspaceSettings:
    settings = WorkspaceSettings(folder=section.take_folder("folder"))
    section.close()
    return settings


def _parse_clusters(section: _Section) -> dict[str, ClusterSettings]:
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


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@dataclass
class _Section:
    """One mapping of the configuration: gives values by type, notes what is wrong."""

    path: str
    values: Any
    problems: list[str]
    root: Path
    known: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            self.refuse("", f"{json.dumps(self.values)} is no mapping")
            self.values = None

    @property
    def mapping(self) -> dict[str, Any] | None:
        """The values; None where there are none to judge."""
        return cast("dict[str, Any] | None", self.values)

    def refuse(self, key: str, reason: str) -> None:
        """Note one problem."""
        self.problems.append(f"{(self.path + key).rstrip('.:')}: {reason}")

    def names(self) -> list[str]:
        """All keys, for a mapping whose keys are names."""
        names = list(self.mapping or ())
        for name in names:
            if not NAME.fullmatch(name):
                self.refuse(name, "is no name (small letters, digits, dashes; 32 at most)")
        return names

    def take_section(self, key: str) -> _Section:
        """The mapping under a key."""
        value = self._take(key)
        if value is None:
            # Noted once, above; nothing to judge inside.
            section = _Section(f"{self.path}{key}.", {}, [], self.root)
            section.values = None
            return section
        return _Section(f"{self.path}{key}.", value, self.problems, self.root)

    def take_number(self, key: str, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self._take(key)
        if value is None:
            return low
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(key, f"{json.dumps(value)} is no whole number")
        elif not low <= value <= high:
            self.refuse(key, f"{value} is not between {low} and {high}")
        else:
            return value
        return low

    def take_folder(self, key: str) -> Path:
        """A folder that is, or can be made, and can be written to; absolute."""
        value = self._take(key)
        fallback = self.root / ".unset" / f"{self.path}{key}"
        if value is None:
            return fallback
        if not isinstance(value, str) or not value:
            self.refuse(key, f"{json.dumps(value)} is no folder")
            return fallback
        folder = Path(os.path.normpath(self.root / Path(value).expanduser()))
        if reason := _why_not_writable(folder):
            self.refuse(key, reason)
        return folder

    def take_choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of a few words."""
        value = self._take(key)
        if value is not None and value not in choices:
            self.refuse(key, f"{json.dumps(value)} is none of: {', '.join(choices)}")
        return choices[0]

    def take_texts(self, key: str) -> dict[str, str]:
        """A mapping of texts; empty when absent."""
        self.known.add(key)
        value = (self.mapping or {}).get(key, {})
        section = _Section(f"{self.path}{key}.", value, self.problems, self.root)
        texts: dict[str, str] = {}
        for name, text in (section.mapping or {}).items():
            if isinstance(text, str) and text:
                texts[name] = text
            else:
                section.refuse(name, f"{json.dumps(text)} is no text")
        return texts

    def close(self) -> None:
        """Refuse every key that nobody took, naming the nearest known one."""
        for key in self.mapping or ():
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, n=1)
                known = ", ".join(sorted(self.known))
                hint = f"did you mean `{near[0]}`?" if near else f"known: {known}"
                self.refuse(key, f"unknown key, {hint}")

    def _take(self, key: str) -> Any:
        self.known.add(key)
        if self.mapping is None:
            return None
        if self.mapping.get(key) is None:
            self.refuse(key, "is missing")
        return self.mapping.get(key)


def _why_not_writable(folder: Path) -> str | None:
    nearest = folder
    # os.path: pathlib's exists() raises on a folder that may not be looked into.
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not os.path.isdir(nearest):  # noqa: PTH112
        return f"{nearest} is in the way, it is no folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"no permission to write in {nearest}"
    return None
