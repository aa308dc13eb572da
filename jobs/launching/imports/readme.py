"""Writes the README of an import: what lies where, what to do next, and what became of each key."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from jobs.launching.imports.draft import Draft, Project
from jobs.launching.imports.leaves import Outcome, Told
from jobs.launching.imports.secrecy import vault_command


def write_readme(project: Project, told: Sequence[Told], into: Path) -> str:
    """Write the next steps in their order, and the report."""
    lines = ["# Imported jobs", "", *_next_steps(project, into)]
    if project.remarks:
        lines += ["", "## Remarks", "", *(f"- {each}" for each in project.remarks)]
    lines += [
        "",
        "## What became of each key",
        "",
        "| file | key | outcome | how |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {_cell(each.file)} | `{_cell(each.key)}` | {each.outcome} | {_cell(each.reason or each.became or '')} |"
        for each in told
    ]
    refused = sum(each.outcome is Outcome.REFUSED for each in told)
    lines += ["", f"{len(told)} keys, {refused} refused.", ""]
    return "\n".join(lines)


def _next_steps(project: Project, into: Path) -> list[str]:
    lines: list[str] = []
    sources = {
        folder: source
        for source, folder in project.folders.items()
        if any(each.folder == folder for draft in project.drafts for each in draft.inputs.values())
    }
    if project.clusters:
        lines += [
            "1. Copy the clusters that you want from clusters.yaml into Pulumi.<stack>.yaml: "
            "`pulumi preview -s STACK`, then `pulumi up -s STACK`.",
            *(f"   - {remark}" for cluster in project.clusters for remark in cluster.remarks),
        ]
    for folder, source in sources.items():
        lines += [
            f"1. Put the files of {source} into `{into / folder}`. A run pushes them. To push them once for "
            f"all jobs: `launch data push {shlex.quote(str(into / folder))} NAME`, and write `NAME` as the input."
        ]
    for draft in project.drafts:
        lines += [
            f"1. Put the secret of `{variable}` ({draft.name}) into the vault: `{vault_command(name)}`, and add "
            f"`{name}` to `trainyard:secrets` of the stack. For the local stack: a line `{variable}=VALUE` in "
            "`.secrets.env` (mode 0600)."
            for variable, name in draft.secrets.items()
        ]
    lines += [
        f"1. Read `setup` of {draft.name}.yaml: on the local stack it runs on this machine, as you."
        for draft in project.drafts
        if draft.setup
    ]
    lines += [f"1. {_run_command(draft, into)}" for draft in project.drafts]
    return lines


def _run_command(draft: Draft, into: Path) -> str:
    file = shlex.quote(str(into / f"{draft.name}.yaml"))
    size = (
        draft.nodes * draft.processes_per_node if isinstance(draft.processes_per_node, int) else 1
    )
    small = (
        "" if draft.nodes == 1 else f" (on one machine add `--nodes 1 --processes-per-node {size}`)"
    )
    return f"`launch plan {file}`, then `launch run {file}`{small}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")
