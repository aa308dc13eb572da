"""Reads the inputs of a job file: a dataset, or a folder or file of this machine, in a short form or a long one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobFile, JobInput
from jobs.jobfile.yaml_tree import Entry, Node, brief

_BEGINNINGS = ("./", "../", "/", "~")


def with_long_inputs(root: Node) -> Node:
    """Write each input that is a text as a mapping: `./words` is a path, `digits@3` a dataset."""
    if not isinstance(root.value, dict) or "inputs" not in root.value:
        return root
    inputs = root.value["inputs"]
    if not isinstance(inputs.node.value, dict):
        return root
    entries = {name: _long(name, entry) for name, entry in inputs.node.value.items()}
    node = replace(inputs.node, value=entries)
    return replace(root, value={**root.value, "inputs": replace(inputs, node=node)})


def _long(name: str, entry: Entry) -> Entry:
    node, text = entry.node, entry.node.value
    if not isinstance(text, str):
        return entry
    is_path = text.startswith(_BEGINNINGS) or text in (".", "..")
    if not is_path and "/" in text:
        message = f"{node.where}: `{brief(text)}` is an invalid dataset name"
        raise LaunchError(
            message, hint=f"a path begins with `./`: `{brief(name)}: ./{brief(text)}`"
        )
    key = Entry(where=node.where, node=node)
    return replace(
        entry, node=Node(where=node.where, value={"path" if is_path else "dataset": key})
    )


def check_input(name: str, each: JobInput, where: str) -> None:
    """Raise LaunchError for an input that is not exactly one of a dataset and a path."""
    shown = f"`inputs.{name}`"
    if (each.dataset is None) is (each.path is None):
        has = "neither `dataset` nor `path`" if each.dataset is None else "`dataset` and `path`"
        message = f"{where}: {shown} has {has}"
        raise LaunchError(message, hint=f"`{name}: digits@3` or `{name}: ./folder`")
    if each.path is not None and each.file is not None:
        message = f"{where}: {shown} has `path` and `file`"
        raise LaunchError(message, hint="let `path` name the file itself")
    if each.mode == "stream" and each.path is not None:
        message = f"{where}: {shown}: only a dataset can be streamed"
        hint = "launch data pack DIR --to PACKED, launch data push PACKED NAME, `dataset: NAME`"
        raise LaunchError(message, hint=hint)
    if each.file is not None and (each.mode == "stream" or not _is_inside(each.file)):
        message = f"{where}: `file: {brief(each.file)}` names no file that the input will have"
        hint = "a path in the dataset, such as `file: train/words.txt`, with `mode: download`"
        raise LaunchError(message, hint=hint)


def _is_inside(path: str) -> bool:
    return "\\" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def with_paths(
    job: JobFile,
    paths: Mapping[str, Path],
    where: Mapping[str, str],
    *,
    keep_out: tuple[Path, ...] = (),
) -> JobFile:
    """Give the job with the absolute paths of its inputs, by name; `where` says where they are written.

    Raises LaunchError for one that is not there, or that holds a path of `keep_out`: the job's own.
    """
    located = {
        name: structs.replace(job.inputs[name], path=str(_check_path(path, where[name], keep_out)))
        for name, path in paths.items()
    }
    return structs.replace(job, inputs={**job.inputs, **located})


def _check_path(path: Path, where: str, keep_out: tuple[Path, ...]) -> Path:
    # A file keeps its own name, of a link, too.
    path = path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    if not path.is_dir() and not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "is not there"
        message = f"{where}: the input `{path}` {what}"
        raise LaunchError(message, hint="paths are relative to the job file")
    held = next((own for own in keep_out if own.resolve().is_relative_to(path)), None)
    if held is not None:
        message = f"{where}: the input `{path}` holds the job's own `{held}`"
        raise LaunchError(message, hint="put the data into a folder of its own")
    return path
