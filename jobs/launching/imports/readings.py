"""Plans what is read in which order: documents, and the commands of scripts with the files that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.launching.imports import batchai_options as names
from jobs.launching.imports.batchai_commands import Config, read_commands
from jobs.launching.imports.documents import (
    Document,
    document_of_text,
    read_config,
)
from jobs.launching.imports.draft import Project
from jobs.launching.imports.kinds import Kind
from jobs.launching.imports.leaves import Leaves
from jobs.launching.imports.shell_script import HereDocument, read_script

_KINDS: dict[tuple[str, ...], Kind] = {
    names.CLUSTER: Kind.CLUSTER,
    names.FILE_SERVER: Kind.FILE_SERVER,
    names.JOB: Kind.JOB,
}
_STANDARD_INPUT = ("-", "/dev/stdin", "@-")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one reader reads: the kind, the leaves, and the path that a name may be made of."""

    kind: Kind
    path: Path
    leaves: Leaves


def plan_reading(documents: Sequence[Document], project: Project) -> list[Reading]:
    """Plan the readings, in the order of `Kind`; a file that a command names is read with that command."""
    files = _Files(project)
    for each in documents:
        if each.kind is not Kind.SCRIPT:
            files.add(each)
    readings: list[Reading] = []
    for each in documents:
        if each.kind is Kind.SCRIPT:
            readings += _of_script(each, files, project)
    readings += files.unused()
    order = list(Kind)
    return sorted(readings, key=lambda each: order.index(each.kind))


def _of_script(document: Document, files: _Files, project: Project) -> list[Reading]:
    path = document.path
    script = read_script(document.text, str(path))
    config = files.named_in(path, script.documents)
    leaves, commands = read_commands(script, str(path), config, project)
    _add(leaves, project, first=True)
    return [Reading(kind=_KINDS[each.kind], path=path, leaves=each.leaves) for each in commands]


def _add(leaves: Leaves, project: Project, *, first: bool = False) -> None:
    project.documents.insert(0, leaves) if first else project.documents.append(leaves)
    for leaf in leaves.top.leaves():
        if isinstance(leaf.value, str):
            project.vault.learn_from(leaf.name, leaf.value)


class _Files:
    """Documents by their paths, and which of them a command has taken."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[Path, tuple[Document, Leaves]] = {}
        self._inner: list[tuple[Document, Leaves]] = []
        self._used: set[int] = set()

    def add(self, document: Document) -> Leaves:
        """Add a document that was given, or that a command names."""
        leaves = Leaves(document.root, str(document.path))
        self._note(document, leaves)
        self._known[document.path.resolve()] = (document, leaves)
        return leaves

    def _note(self, document: Document, leaves: Leaves) -> None:
        _add(leaves, self._project)
        self._project.remarks += document.remarks

    def unused(self) -> list[Reading]:
        """Give the documents that no command has taken."""
        return [
            Reading(kind=document.kind, path=document.path, leaves=leaves)
            for document, leaves in (*self._known.values(), *self._inner)
            if id(leaves) not in self._used and document.kind is not Kind.PART
        ]

    def named_in(self, script: Path, inner: Sequence[HereDocument]) -> Config:
        """Give what finds the files that a script names: those in it, those beside it, and the others by name."""
        written: list[tuple[HereDocument, Leaves]] = []
        for each in inner:
            if found := document_of_text(each.text, script, each.line):
                leaves = Leaves(found.root, str(script))
                self._inner.append((found, leaves))
                written.append((each, leaves))
                if found.kind is not Kind.PART:
                    self._note(found, leaves)

        def find(text: str, line: int) -> Leaves | None:
            found = _written(text, line, written)
            if found and not any(found is each for each in self._project.documents):
                _add(found, self._project)
            found = found or self._beside(script, text)
            if found:
                self._used.add(id(found))
            return found

        return find

    def _beside(self, script: Path, text: str) -> Leaves | None:
        path = script.parent / text
        if known := self._known.get(path.resolve()):
            return known[1]
        document = read_config(path)
        if document:
            return self.add(document)
        same = [leaves for each, leaves in self._known.values() if each.path.name == path.name]
        return same[0] if len(same) == 1 else None


def _written(text: str, line: int, written: Sequence[tuple[HereDocument, Leaves]]) -> Leaves | None:
    """Find the here-document that a command reads, or the last one before it that wrote its file."""
    if text in _STANDARD_INPUT:
        return next(
            (leaves for each, leaves in written if not each.target and each.line > line), None
        )
    name = Path(text).name
    fitting = [
        leaves
        for each, leaves in written
        if each.target and Path(each.target).name == name and each.line <= line
    ]
    return fitting[-1] if fitting else None
