"""Writes drafts as job files and as the `clusters:` block: YAML that people read, with comments."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import decode_job
from jobs.jobfile.yaml_tree import parse_yaml, plain_scalar
from jobs.launching.imports.draft import Draft, DraftCluster
from jobs.launching.imports.secrecy import Vault

# How long Azure ML lets a node idle by itself; Batch AI had no such setting.
IDLE_S = 120
_PLAIN = re.compile(r"[A-Za-z0-9./_][A-Za-z0-9./_+-]*\Z")
# As a block nothing is escaped, so that every character has to be one that YAML shows.
_BLOCK = re.compile(r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*\Z")
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def write_job(draft: Draft, into: Path, vault: Vault) -> str:
    """Write a draft as a job file in the folder `into`; raises LaunchError where it would not be read as meant.

    Secrets of the vault are struck out of it.
    """
    lines = [*(f"# {_comment(each)}" for each in draft.remarks), f"name: {scalar(draft.name)}"]
    lines += [f"image: {scalar(draft.image)}", f"launcher: {draft.launcher}"]
    lines += ["command:", "  - bash", "  - -c", *_text_item(draft.text)]
    if draft.code is not None:
        code = os.path.relpath(draft.code.resolve(), into.resolve())
        lines.append(f"code: {scalar(Path(code).as_posix())}")
    lines += [f"nodes: {draft.nodes}", f"processes_per_node: {draft.processes_per_node}"]
    if draft.parameter_servers:
        lines.append(f"parameter_servers: {draft.parameter_servers}")
    lines += _inputs(draft)
    lines += _mapping("outputs", dict.fromkeys(draft.outputs, "{}"), is_scalar=False)
    if draft.setup:
        lines += ["setup:", *(line for each in draft.setup for line in _text_item(_in_bash(each)))]
    lines += _mapping("env", draft.env)
    lines += _mapping("secrets", draft.secrets)
    if draft.wall_clock_s is not None:
        lines.append(f"limits: {{wall_clock: {duration_text(draft.wall_clock_s)}}}")
    lines += [f"retry: {{max: {draft.retry}}}"] if draft.retry else []
    lines += [f"shm_size: {draft.shm_size}"] if draft.shm_size else []
    lines += [f"priority: {draft.priority}"] if draft.priority != "normal" else []
    lines += [f"experiment: {scalar(draft.experiment)}"] if draft.experiment else []
    lines += _mapping("tags", draft.tags)
    text = vault.strike("\n".join([*lines, ""]))
    _require_readable(draft, text, vault)
    return text


def _require_readable(draft: Draft, text: str, vault: Vault) -> None:
    """Read what was written, by the parser that `launch run` has, and compare."""
    command = ("bash", "-c", vault.strike(draft.text))
    env = {name: vault.strike(value) for name, value in draft.env.items()}
    job, cause = None, None
    try:
        job = decode_job(parse_yaml(text, f"{draft.name}.yaml"))
    except LaunchError as error:
        cause = error
    if job is None or job.command != command or dict(job.env) != env:
        message = f"{draft.file}: the job cannot be written as YAML"
        hint = "remove unusual characters from its texts, and secrets that are words of a job file"
        raise LaunchError(message, hint=hint) from cause


def _in_bash(text: str) -> str:
    """Have bash run a text: a node's `setup` is run by sh."""
    return f"bash -c {shlex.quote(text)}\n"


def _text_item(text: str) -> list[str]:
    if _BLOCK.match(text) and text.endswith("\n") and not text.startswith((" ", "\t", "\n")):
        body = text[:-1].split("\n")
        if all(body) and not body[-1].isspace():
            return ["  - |", *(f"    {line}" for line in body)]
        if body[-1].strip():
            return ["  - |", *(f"    {line}" if line else "" for line in body)]
    return [f"  - {scalar(text)}"]


def _inputs(draft: Draft) -> list[str]:
    if not draft.inputs:
        return []
    lines = ["inputs:"]
    for name, each in draft.inputs.items():
        place = (
            f"path: ./{each.folder}" if each.folder else f"dataset: {scalar(each.dataset or '')}"
        )
        mode = "" if each.mode == "download" else f", mode: {each.mode}"
        comment = f" # {_comment(each.source)}" if each.source else ""
        lines.append(f"  {name}: {{{place}{mode}}}{comment}")
    return lines


def _mapping(key: str, values: Mapping[str, str], *, is_scalar: bool = True) -> list[str]:
    if not values:
        return []
    return [
        f"{key}:",
        *(
            f"  {scalar(name)}: {scalar(text) if is_scalar else text}"
            for name, text in values.items()
        ),
    ]


def write_clusters(clusters: Iterable[DraftCluster]) -> str:
    """Write the block of a stack's settings."""
    lines = ["# For Pulumi.<stack>.yaml, below its `config:`.", "config:", "  trainyard:clusters:"]
    for each in clusters:
        lines += [f"    # {_comment(remark)}" for remark in each.remarks]
        lines += [
            f"    {each.name}:",
            f"      size: {each.size}",
            f"      priority: {each.priority}",
        ]
        lines += [f"      min_nodes: {each.min_nodes}"] if each.min_nodes else []
        lines += [f"      max_nodes: {each.max_nodes}", f"      idle_s: {IDLE_S}"]
    return "\n".join([*lines, ""])


def scalar(text: str) -> str:
    """Write a text so that YAML gives it back as it is, whatever characters it has."""
    if (
        _PLAIN.match(text)
        and isinstance(plain_scalar(text), str)
        and text.lower() not in ("y", "n")
    ):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def duration_text(seconds: float) -> str:
    """Write a length of time in the largest unit that says it exactly."""
    whole = max(1, round(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole % length == 0:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def _comment(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]+", " ", text)
