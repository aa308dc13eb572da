"""Finds the documents of an import among files and folders, and tells of which kind each is."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.host.untrusted import read_small
from jobs.jobfile.yaml_tree import Entry, Node, parse_yaml
from jobs.launching.imports.batchai_toolkits import TOOLKITS
from jobs.launching.imports.json_text import ParsedJson, liberties_text, parse_json_text
from jobs.launching.imports.kinds import Kind
from jobs.launching.imports.secrecy import Vault
from jobs.launching.imports.shell_script import has_command_line
from jobs.launching.imports.task_kinds import ENDINGS, task_kind

MOST_BYTES = 64 << 20
MOST_FILES = 1000
# Pools of Azure Batch, computes of Azure ML and clusters of AKS have a `vmSize`, too.
_OF_OTHERS = {
    *("targetDedicatedNodes", "targetDedicatedComputeNodes", "targetDedicated", "startTask"),
    *("targetLowPriorityNodes", "targetLowPriorityComputeNodes", "autoScaleFormula"),
    *("computeType", "deploymentConfiguration", "agentPoolProfiles", "orchestratorProfile"),
}
SKIPPED = ("node_modules", "__pycache__")
# Of scripts and texts that may have command lines; they are looked for in files up to a size.
_TEXTS = (".sh", ".bash", ".azcli", ".bat", ".cmd", ".ps1", ".txt", ".md")
_ENDINGS = (".json", *_TEXTS, *ENDINGS)
MOST_OF_TEXT = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document: the path as it was given, its kind and its tree; of a script its text."""

    path: Path
    kind: Kind
    root: Node
    text: str = ""
    remarks: tuple[str, ...] = ()


def find_documents(paths: list[Path]) -> list[Document]:
    """Read all documents that the paths name; folders with all that is below them.

    Raises LaunchError for a file that is none, a folder that has none, and for broken ones.
    """
    found: list[Document] = []
    seen: set[Path] = set()
    for path in paths:
        files = _files_below(path) if path.is_dir() else [path]
        documents = [_read(each, is_named=each == path) for each in files]
        kept = [each for each in documents if each]
        if not kept:
            message = f"the folder `{path}` holds no document that can be imported"
            raise LaunchError(
                message, hint="docs/import.md lists the formats; name the file itself"
            )
        for each in kept:
            if each.path.resolve() not in seen:
                seen.add(each.path.resolve())
                found.append(each)
    order = list(Kind)
    return sorted(found, key=lambda each: order.index(each.kind))


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            each
            for each in folders
            if each == ".azureml" or (not each.startswith(".") and each not in SKIPPED)
        )
        found += [Path(parent, each) for each in sorted(files) if each.endswith(_ENDINGS)]
        if len(found) > MOST_FILES:
            message = f"`{folder}` holds more than {MOST_FILES} files that could be documents"
            raise LaunchError(message, hint="name the folder, or the files, of one project")
    return found


def _read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    try:
        return read_small(path, most)
    except OSError as error:
        is_large = error.errno == errno.EFBIG
        reason = f"it has more than {most >> 20} MiB" if is_large else error.strerror
        message = f"cannot read `{path}`: {reason}"
        raise LaunchError(message, hint="launch import FILE|FOLDER...") from None


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = f"{path}:{line}:{column}: the file is not UTF-8 text"
        raise LaunchError(message, hint="save it as UTF-8") from None


def _read(path: Path, *, is_named: bool) -> Document | None:
    is_json = path.name.endswith(".json")
    is_wanted = is_json or is_named
    try:
        content = _read_bytes(path, MOST_BYTES if is_wanted else MOST_OF_TEXT)
        text = _decoded(path, content)
    except LaunchError:
        if is_wanted:
            raise
        return None
    if not is_json and has_command_line(text):
        if len(content) > MOST_OF_TEXT:
            message = f"`{path}` has more than {MOST_OF_TEXT >> 20} MiB, too many for a script"
            raise LaunchError(message, hint="give its lines of `az batchai` alone")
        return Document(
            path=path, kind=Kind.SCRIPT, root=Node(where=str(path), value={}), text=text
        )
    if path.name.endswith(ENDINGS):
        return _read_yaml(path, text, is_named=is_named)
    if not (is_json or is_named):
        return None
    return _read_json(path, text, is_named=is_named)


def _read_yaml(path: Path, text: str, *, is_named: bool) -> Document | None:
    """Read a task file; a folder's other YAML, whatever it is, is passed over."""
    if not is_named and len(text) > MOST_OF_TEXT:
        return None
    try:
        root = parse_yaml(text.removeprefix("\ufeff"), str(path))
    except LaunchError as error:
        if not is_named:
            return None
        # A key or a tag in the message may hold what nobody is to see.
        raise LaunchError(Vault().mask(error.message), hint="correct the YAML there") from None
    if kind := task_kind(root, path):
        return Document(path=path, kind=kind, root=root)
    if not is_named:
        return None
    message = f"{path}:1:1: this is no task of Azure ML, SkyPilot, dstack or TorchX"
    raise LaunchError(message, hint="docs/import.md lists the formats that are read")


def _read_json(path: Path, text: str, *, is_named: bool) -> Document | None:
    parsed = parse_json_text(text, str(path))
    kind = kind_of(parsed.root) or task_kind(parsed.root, path)
    if kind is None:
        if not is_named:
            return None
        message = f"{path}:1:1: this is no job, cluster or file server of Batch AI, nor a project.json of it"
        raise LaunchError(message, hint="docs/import.md lists the formats that are read")
    return _of_json(path, kind, parsed)


def read_config(path: Path) -> Document | None:
    """Read a file that a command line names; None where it is not there, or holds no JSON object.

    Of a file that options complete, the command tells the kind: it may have any of the keys alone.
    """
    if not path.is_file():
        return None
    return document_of_text(_decoded(path, _read_bytes(path)), path, 1)


def document_of_text(text: str, path: Path, line: int) -> Document | None:
    """Read JSON that stands in a script from a line on; None where it is no JSON object."""
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*", "#")):
        return None
    parsed = parse_json_text("\n" * (line - 1) + text, str(path))
    if not isinstance(parsed.root.value, dict):
        return None
    return _of_json(path, kind_of(parsed.root) or Kind.PART, parsed)


def _of_json(path: Path, kind: Kind, parsed: ParsedJson) -> Document:
    remarks = (f"{path}: {liberties_text(parsed.liberties)}",) if parsed.liberties else ()
    return Document(path=path, kind=kind, root=parsed.root, remarks=remarks)


def kind_of(root: Node) -> Kind | None:
    """Tell the kind of a JSON document by its keys; None for schemas and files of other tools."""
    if not isinstance(root.value, dict):
        return None
    top = root.value
    is_wrapped = "properties" in top and isinstance(top["properties"].node.value, dict)
    inner = top["properties"].node.value if is_wrapped else top
    body = inner if isinstance(inner, dict) else {}
    if "definitions" in top or "$ref" in body or _is_schema(body):
        return None
    keys = {key for key, entry in body.items() if entry.node.value is not None}
    if _OF_OTHERS & (keys | top.keys()):
        return None
    if {"clusterName", "sourceScript"} <= keys or {"experimentName", "sourceScript"} <= keys:
        return Kind.PROJECT
    if keys & TOOLKITS.keys() or {"nodeCount", "stdOutErrPathPrefix"} <= keys:
        return Kind.JOB
    if "vmSize" in keys and keys & {"dataDisks", "sshConfiguration"}:
        return Kind.FILE_SERVER
    of_cluster = {
        "scaleSettings",
        "vmPriority",
        "userAccountSettings",
        "nodeSetup",
        "virtualMachineConfiguration",
    }
    if "vmSize" in keys and (keys & of_cluster or (is_wrapped and keys <= {"vmSize", "subnet"})):
        return Kind.CLUSTER
    return _by_schema(top)


def _is_schema(body: Mapping[str, Entry]) -> bool:
    """Tell whether keys are described, and not given: JSON Schema writes each as an object with its type."""
    inner = body.get("properties")
    return inner is not None and isinstance(inner.node.value, dict) and "type" in body


def _by_schema(top: Mapping[str, Entry]) -> Kind | None:
    """Tell the kind by the schema that a document names for editors."""
    schema = top.get("$schema")
    address = str(schema.node.value) if schema else ""
    if "BatchAI" not in address:
        return None
    name = address.rpartition("/")[2].split("?")[0].removesuffix(".json")
    kinds = {"cluster": Kind.CLUSTER, "nfs": Kind.FILE_SERVER}
    return kinds.get(name, Kind.JOB)
