"""Imports documents: reads them all, then writes job files, the `clusters:` block and a README, or nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.launching.imports.batchai_cluster import read_cluster, read_file_server
from jobs.launching.imports.batchai_job import read_job
from jobs.launching.imports.batchai_variables import NOTE, Mount
from jobs.launching.imports.documents import Document, find_documents
from jobs.launching.imports.draft import RESERVED_NAMES, Choices, Project, job_name, unique
from jobs.launching.imports.job_yaml import write_clusters, write_job
from jobs.launching.imports.kinds import Kind
from jobs.launching.imports.leaves import Leaves, Told
from jobs.launching.imports.project_json import read_project
from jobs.launching.imports.readings import plan_reading
from jobs.launching.imports.readme import write_readme
from jobs.launching.imports.secrecy import vault_command
from jobs.launching.imports.task_azure_ml import read_command_job, read_run_configuration
from jobs.launching.imports.task_others import read_dstack, read_skypilot, read_torchx

_TASKS = {
    Kind.COMMAND_JOB: read_command_job,
    Kind.RUN_CONFIGURATION: read_run_configuration,
    Kind.SKYPILOT: read_skypilot,
    Kind.DSTACK: read_dstack,
    Kind.TORCHX: read_torchx,
}
CLUSTERS, README = "clusters.yaml", "README.md"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import made: the texts of its files by their names, and the report.

    `folders` are those for data, each with what its files lay in before.
    """

    files: dict[str, str]
    folders: dict[str, str]
    told: tuple[Told, ...]
    remarks: tuple[str, ...]


def import_documents(paths: Sequence[Path], into: Path, choices: Choices) -> Imported:
    """Read the documents and make the files in memory; raises LaunchError for what cannot be read."""
    project = Project(choices=choices)
    _read_all(find_documents(list(paths)), project)
    told = [each for leaves in project.documents for each in _report(leaves, project)]
    files = {
        f"{draft.name}.yaml": write_job(draft, into, project.vault) for draft in project.drafts
    }
    if project.clusters:
        files[CLUSTERS] = write_clusters(project.clusters)
    if files:
        files[README] = write_readme(project, told, into)
    inputs = [each for draft in project.drafts for each in draft.inputs.values()]
    return Imported(
        # The last guard, behind the readers' own.
        files={name: project.vault.strike(text) for name, text in files.items()},
        folders={each.folder: project.vault.mask(each.source) for each in inputs if each.folder},
        told=tuple(told),
        remarks=tuple(map(project.vault.strike, project.remarks)),
    )


def _read_all(documents: Sequence[Document], project: Project) -> None:
    """Read clusters before the jobs that name them; a project's own file comes last."""
    mounts: dict[str, list[Mount]] = {}
    for each in plan_reading(documents, project):
        leaves = each.leaves
        if each.kind is Kind.CLUSTER:
            found = read_cluster(leaves, job_name(each.path.stem), project)
            mounts[project.clusters[-1].known_as.lower()] = found
        elif each.kind is Kind.FILE_SERVER:
            read_file_server(leaves)
        elif each.kind is Kind.PROJECT:
            read_project(leaves, project)
        elif reader := _TASKS.get(each.kind):
            reader(leaves, _name_of(each.path, project), each.path, project)
        else:
            name = _name_of(each.path, project)
            read_job(leaves, name, project, _cluster_mounts(leaves, mounts))


def _name_of(path: Path, project: Project) -> str:
    """Call a job after its file; one of several files of the same name after the folder, too."""
    taken = [*RESERVED_NAMES, *(each.name for each in project.drafts)]
    name = job_name(path.stem)
    if name.lower() in {each.lower() for each in taken}:
        name = job_name(f"{path.resolve().parent.name}-{path.stem}")
    return unique(name, taken)


def _cluster_mounts(leaves: Leaves, mounts: dict[str, list[Mount]]) -> list[Mount]:
    """Give copies of the mounts of the cluster that a job names, or of the only one."""
    body = leaves.top.section("properties") or leaves.top
    section = body.section("cluster")
    told = section.take_text("id") if section else None
    name = told[0].rstrip("/").rpartition("/")[2].lower() if told else ""
    found = mounts.get(name) or (next(iter(mounts.values())) if len(mounts) == 1 else [])
    return [Mount(root=each.root, path=each.path, source=each.source) for each in found]


def _report(leaves: Leaves, project: Project) -> list[Told]:
    """Give what was told of each leaf, with the vault's command where it holds a secret."""
    strike = project.vault.strike
    secret = {
        leaf.key
        for leaf in leaves.top.leaves()
        if isinstance(leaf.value, str) and project.vault.is_secret(leaf.name, leaf.value)
    }
    return [
        structs.replace(
            each,
            key=project.vault.mask(each.key),
            became=strike(_with_command(each.became, is_secret=each.key in secret)) or None,
            reason=strike(_with_command(each.reason, is_secret=each.key in secret)) or None,
        )
        for each in leaves.close()
    ]


def _with_command(text: str | None, *, is_secret: bool) -> str:
    if not text or not is_secret or "az keyvault secret set" in text:
        return text or ""
    return f"{text}; a secret stands here: {vault_command('NAME')}"


def write_files(imported: Imported, into: Path) -> list[Path]:
    """Write what an import made; raises LaunchError where a file or a link is there already."""
    targets = {into / name: text for name, text in imported.files.items()}
    # A folder without any file can be neither planned nor pushed.
    notes = {
        into / folder / NOTE: f"Put the files of {source} beside this one.\n"
        for folder, source in imported.folders.items()
    }
    for path in (*targets, *notes):
        if os.path.lexists(path):
            message = f"`{path}` exists"
            raise LaunchError(message, hint=f"--into {into}-2, or remove it first")
        if not path.resolve().is_relative_to(into.resolve()):
            message = f"`{path.parent}` leads out of `{into}`"
            raise LaunchError(message, hint=f"--into {into}-2, or remove the link first")
    try:
        into.mkdir(parents=True, exist_ok=True)
        for path, text in (notes | targets).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"cannot write into `{into}`: {error.strerror}"
        raise EnvironmentFailure(message, hint="--into DIR, a folder that you may write") from None
    return list(targets)
