"""Decide how a notebook runs as a job's script: its command, its output, what its cells import (pure)."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from textwrap import dedent
from typing import Any

import msgspec
from msgspec.structs import replace

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobFile
from jobs.jobfile.arguments import Argument
from jobs.jobfile.yaml_tree import Node
from jobs.rank.notebook import PROGRAM

SUFFIX = ".ipynb"
# The output of a job that holds the notebook as it was executed.
OUTPUT = "notebook"
# Of IPython alone: `!ls`, `%cd x`, `files = !ls`. A wrapped line of Python's may begin with `% (` or `!=`.
_MAGIC = re.compile(r"(\s*)([^\W\d][^=#]*=\s*)?((?:!(?!=)|%[^\W\d]).*)")
_HELP = re.compile(r"(\s*)(\?.*|[^#]*\?)\s*")
_CELL_MAGIC = re.compile(r"\s*%%(\w*).*\n?")
# The cell magics behind which Python stands, and is executed in the notebook itself.
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun")


def is_notebook(path: str | None) -> bool:
    """Tell whether a path is that of a notebook."""
    return path is not None and path.lower().endswith(SUFFIX)


def with_numbers(job: JobFile, root: Node) -> JobFile:
    """Give a notebook's job with numbers where its file, the tree `root`, has numbers in `args`.

    A script's options are words, so decoding kept `1e-3` and `0.90` as they were written; a cell
    that is assigned them computes with them. What was quoted stays a text.
    """
    args = root.value.get("args") if isinstance(root.value, dict) else None
    if not is_notebook(job.script) or args is None or not isinstance(args.node.value, dict):
        return job
    assert isinstance(job.args, dict), "it was decoded from this mapping"
    entries = args.node.value
    numbers = {key: _with_numbers(value, entries[key].node) for key, value in job.args.items()}
    return replace(job, args=numbers)


def _with_numbers(value: Argument, node: Node) -> Argument:
    if isinstance(value, list) and isinstance(node.value, list):
        return [_number(*each) for each in zip(value, node.value, strict=True)]
    return _number(value, node) if isinstance(value, str) else value


def _number(value: float | str, node: Node) -> float | str:
    return node.value if isinstance(node.value, int | float) else value


def notebook_command(
    script: str, args: Mapping[str, Argument] | Sequence[int | float | str]
) -> tuple[str, ...]:
    """Give the command that executes a notebook into the output `notebook` with these parameters.

    Raises LaunchError for arguments that are no assignments.
    """
    name = script.rpartition("/")[2]
    words = (PROGRAM, script, f"${{outputs.{OUTPUT}}}/{name}")
    if not args:
        return words
    if not isinstance(args, Mapping):
        message = f"`args` of the notebook `{script}` are words, and a notebook has parameters"
        raise LaunchError(message, hint="args: {epochs: 3} sets `epochs` in its cells")
    parameters = {key.replace("-", "_"): value for key, value in args.items()}
    for key in parameters:
        if not key.isidentifier() or iskeyword(key):
            message = f"`args.{key}` of the notebook `{script}` is not the name of a variable"
            raise LaunchError(message, hint="args: {epochs: 3} sets `epochs` in its cells")
    return (*words, json.dumps(parameters))


def is_one_rank(command: Sequence[str], num_ranks: int) -> bool:
    """Tell whether the ranks of a command are as many as it can have: a notebook has one kernel."""
    return command[0] != PROGRAM or num_ranks == 1


def code_of(content: bytes, name: str) -> bytes:
    """Give the Python of a notebook's cells; lines of IPython's own are comments, in their places.

    A cell that is no Python even so is left out: who runs the notebook may never execute it.
    Raises LaunchError for what is no notebook.
    """
    try:
        cells: list[dict[str, Any]] = msgspec.json.decode(content)["cells"]
        texts = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
        message = f"`{name}` is not a notebook of Jupyter's format 4"
        raise LaunchError(message, hint="open it in Jupyter and save it") from None
    return "\n".join(map(_python_of, texts)).encode()


def _python_of(cell: str) -> str:
    """Give the Python of one cell; an empty text where it has none."""
    while magic := _CELL_MAGIC.match(cell):
        if magic[1] not in _PYTHON_MAGICS:
            return ""
        cell = cell[magic.end() :]
    if _is_python(cell):
        return cell
    without = _without_magics(dedent(cell))
    return without if _is_python(without) else ""


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of a cell's escapes
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_magics(cell: str) -> str:
    """Write IPython's own lines as comments behind a statement that does nothing."""
    lines: list[str] = []
    is_continued = is_magic = False
    for line in cell.split("\n"):
        if is_continued:
            lines.append(f"# {line}" if is_magic else line)
        elif magic := _MAGIC.fullmatch(line):
            indent, target, words = magic.groups()
            lines.append(f"{indent}{f'{target}None' if target else 'pass'}  # {words}")
            is_magic = True
        else:
            question = _HELP.fullmatch(line)
            lines.append(f"{question[1]}pass  # {question[2]}" if question else line)
            is_magic = False
        is_continued = line.endswith("\\")
    return "\n".join(lines)
