"""What an import makes of its documents: drafts of job files, clusters, and notes for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal

from jobs.contracts.spec import Launcher, Priority
from jobs.jobfile.read import RESERVED, RESERVED_PREFIX
from jobs.launching.imports.leaves import Leaves
from jobs.launching.imports.secrecy import Vault
from jobs.launching.imports.shell_text import with_variable

LONGEST_NAME = 63
# Files of an import that are no jobs.
RESERVED_NAMES = ("clusters", "readme")
MOST_NODES = 1000
MOST_PROCESSES = 256
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the command line says of an import.

    That is the scripts' folder, and whether frameworks that no image has are run as MPI programs.
    """

    code: Path | None = None
    as_mpi: bool = False


@dataclass(frozen=True, kw_only=True)
class DraftInput:
    """An input of a job: a dataset, or a folder below the one that is written into; `source` is where its files lay."""

    source: str
    folder: str | None = None
    dataset: str | None = None
    mode: Literal["download", "mount"] = "download"


@dataclass(kw_only=True)
class Draft:
    """A job file to be. `text` is what bash runs in each rank; `setup` once a node before.

    `script` is the file in `code` that it starts, as far as it is known. `remarks` are comments above
    the job; `secrets` maps variables to names in the key vault, and `values` to what they stand for,
    which is empty where it is no secret or in no document.
    """

    name: str
    file: str
    image: str = "pytorch"
    launcher: Launcher = "none"
    text: str = ""
    code: Path | None = None
    script: Path | None = None
    nodes: int = 1
    processes_per_node: int | Literal["gpu"] = 1
    parameter_servers: int = 0
    inputs: dict[str, DraftInput] = field(default_factory=dict[str, DraftInput])
    outputs: list[str] = field(default_factory=list[str])
    setup: list[str] = field(default_factory=list[str])
    env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, str] = field(default_factory=dict[str, str])
    wall_clock_s: float | None = None
    retry: int = 0
    shm_size: str | None = None
    priority: Priority = "normal"
    experiment: str | None = None
    tags: dict[str, str] = field(default_factory=dict[str, str])
    remarks: list[str] = field(default_factory=list[str])

    def add_secret(self, variable: str, value: str, vault: Vault, name: str = "") -> str:
        """Have the run fetch a secret into a variable; gives its name in the key vault.

        `value` is empty where no document has it. Another value of the import has another name.
        """
        name = name or secret_name(variable)
        self.values[variable] = value
        if value:
            vault.variables.setdefault(value, variable)
        free = unique(name, vault.names.values())
        self.secrets[variable] = vault.names.setdefault((name, value), free)
        return self.secrets[variable]

    def without_secrets(self, text: str, vault: Vault, hint: str) -> tuple[str, list[str]]:
        """Put variables in the place of the secrets in a command line; gives their names, too.

        `hint` names those that stand behind no name of their own.
        """
        found = vault.find(text, hint)
        variables = [
            self._variable_of(text[each.start : each.end], each.name, hint, vault) for each in found
        ]
        # From the end: places before stay what they are.
        for each, variable in zip(reversed(found), reversed(variables), strict=True):
            text = with_variable(text, each.start, each.end, variable)
        return text, list(dict.fromkeys(variables))

    def _variable_of(self, value: str, name: str, hint: str, vault: Vault) -> str:
        """Give the variable of a secret: its own, or a new one that stands for nothing else."""
        variable = next((each for each, known in self.values.items() if known == value), None)
        if variable is None:
            first = vault.variables.get(value, "")
            others = {*vault.variables.values()} - {first}
            taken = {*self.env, *self.values, *others}
            plain = variable_name(name.upper())
            numbered = (f"{plain or hint}_{number}" for number in count(2 if plain else 1))
            wanted = chain((first, plain), numbered)
            variable = next(each for each in wanted if each and each not in taken)
        self.add_secret(variable, value, vault)
        return variable


@dataclass(kw_only=True)
class DraftCluster:
    """A cluster of the `clusters:` block; `size` in Azure's spelling.

    One that was paused told no number of nodes: its jobs do.
    """

    name: str
    file: str
    size: str
    known_as: str = ""
    priority: Literal["dedicated", "low_priority"] = "dedicated"
    min_nodes: int = 0
    max_nodes: int = 1
    is_paused: bool = False
    remarks: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class Project:
    """Everything that one import read and makes: one project, so that its parts find each other."""

    choices: Choices
    vault: Vault = field(default_factory=Vault)
    documents: list[Leaves] = field(default_factory=list[Leaves])
    drafts: list[Draft] = field(default_factory=list[Draft])
    clusters: list[DraftCluster] = field(default_factory=list[DraftCluster])
    # Folders that inputs are pushed from, by what their files lay in before.
    folders: dict[str, str] = field(default_factory=dict[str, str])
    # What is said beside the report: accepted comments, names that were changed.
    remarks: list[str] = field(default_factory=list[str])

    def folder_for(self, name: str, source: str) -> str:
        """Give the folder of an input: one for each source, called after the first that asks."""
        if source not in self.folders:
            self.folders[source] = unique(f"data/{name}", self.folders.values())
        return self.folders[source]


def unique(name: str, taken: Iterable[str]) -> str:
    """Number a name that is taken, whatever its case."""
    used = {each.lower() for each in taken}
    if name.lower() not in used:
        return name
    number = 2
    while f"{name}-{number}".lower() in used:
        number += 1
    return f"{name}-{number}"


def job_name(text: str, default: str = "job") -> str:
    """Write a name in the letters that a job's has."""
    return (
        re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:LONGEST_NAME].rstrip("-._") or default
    )


def variable_name(text: str) -> str:
    """Write a name in the letters that a variable's has; empty where nothing is left."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    return f"_{found}" if found[:1].isdigit() else found


def is_variable(text: str) -> bool:
    """Tell whether a text is a variable's name."""
    return _VARIABLE.match(text) is not None


def variable_problem(name: str, vault: Vault) -> str | None:
    """Say why no job can set a variable of that name; None where one can."""
    if not is_variable(name) or vault.holds(name):
        return "no shell can have a variable of that name: rename it"
    if name in RESERVED or name.startswith(RESERVED_PREFIX):
        return "`launch` sets this variable for every rank: rename it"
    return None


def secret_name(variable: str) -> str:
    """Name the secret of a variable as a key vault allows: letters, digits, dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", variable).strip("-").lower()[:127] or "secret"
