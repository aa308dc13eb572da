"""Writes the job file of a script that has none: what it uses decides, `--` brings its arguments."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.jobfile.arguments import Argument, split_argv, to_argv
from jobs.jobfile.notebook import SUFFIX as NOTEBOOK
from jobs.jobfile.notebook import is_notebook
from jobs.jobfile.script import Reading, read_script
from jobs.jobfile.yaml_tree import plain_scalar

SUFFIXES = (".py", NOTEBOOK)
REQUIREMENTS = "requirements.txt"
_PLAIN = re.compile(r"[A-Za-z0-9./_][A-Za-z0-9./_+-]*")
_COMMENT_COLUMN = 28


@dataclass(frozen=True, kw_only=True)
class WrittenJob:
    """Text of a job file, and the sentences that tell how it came about."""

    text: str
    sentences: tuple[str, ...]


def is_script(path: Path) -> bool:
    """Tell whether the file is a script, or a notebook, by its name."""
    return path.suffix in SUFFIXES


def write_job(
    path: Path, name: str, arguments: Sequence[str] = (), *, folder: Path | None = None
) -> WrittenJob:
    """Write the job file that runs the script with these arguments from the script's own folder.

    `name` is the script in messages, `folder` the job file's, by default the script's. Raises
    LaunchError for a script that cannot be read, and for one that lies in the user's home or in `/`.
    """
    refuse_home(path.parent.resolve(), name, "move the script into a folder of its own")
    reading = read_script(path, name)
    place = (folder or path.parent).resolve()
    script = Path(os.path.relpath(path.parent.resolve() / path.name, place))
    lines, sentences = _lines(script, reading, arguments), reading.sentences
    if path.with_name(REQUIREMENTS).is_file():
        requirements = script.with_name(REQUIREMENTS).as_posix()
        lines.append(_with_comment(f"requirements: {_scalar(requirements)}", "over the image"))
        sentences += (f"{REQUIREMENTS}: installed over the image; else --set requirements=null",)
    elif is_notebook(name):
        message = f"the image of `{name}` cannot execute notebooks, and there is no {REQUIREMENTS}"
        needed = path.with_name(REQUIREMENTS)
        raise LaunchError(
            message, hint=f"printf 'nbclient\\nipykernel\\n' > {shlex.quote(str(needed))}"
        )
    return WrittenJob(text="\n".join([*lines, ""]), sentences=sentences)


def refuse_home(code: Path, source: str, hint: str) -> None:
    """Refuse a folder that nobody named as code and that holds everything: the home, and `/`."""
    if code in (Path.home().resolve(), Path(code.anchor)):
        message = f"{source}: without `code:` all files of `{code}` would be copied"
        raise LaunchError(message, hint=hint)


def _lines(script: Path, reading: Reading, arguments: Sequence[str]) -> list[str]:
    kind = reading.kind
    size = ("gpu", "one per GPU; without GPUs, the cluster's own number")
    launcher = kind.launcher
    if is_notebook(script.name):
        launcher, size = "none", ("1", "a notebook has one kernel, which has all GPUs of the node")
    elif kind.launcher == "none":
        size = ("1", "or gpu: one per GPU")
    servers = ["parameter_servers: 1", "chief: true"] if kind.has_parameter_servers else []
    return [
        _with_comment(f"name: {_scalar(_name(script.stem))}", "in `launch ls`"),
        _with_comment(f"image: {reading.image}", f"the script uses {kind.uses}"),
        _with_comment(f"launcher: {launcher}", "horovod, torch, tensorflow, mpi or none"),
        *_program(script, arguments),
        _with_comment(f"processes_per_node: {size[0]}", size[1]),
        *servers,
        _with_comment("outputs: {model: {}}", "a folder: TRAINYARD_OUTPUT_MODEL"),
    ]


def _program(script: Path, arguments: Sequence[str]) -> list[str]:
    """Write script and arguments: by their names where options say the same, else word by word."""
    code = f"code: {_scalar(script.parent.as_posix())}"
    lines = [
        f"script: {_scalar(script.as_posix())}",
        _with_comment(code, "this folder travels, except files in .gitignore"),
    ]
    write = _scalar
    if is_notebook(script.name):
        arguments, write = _without_equals(arguments), _parameter
    words, args = split_argv(["python", script.name, *arguments])
    if len(words) > 2:
        return [*lines, f"args: [{', '.join(map(_scalar, arguments))}]"]
    given = [f"  {_scalar(key)}: {_value(value, write)}" for key, value in args.items()]
    return [*lines, *(["args:"] if given else []), *given]


def _without_equals(arguments: Sequence[str]) -> list[str]:
    """Write `--epochs=3` as the two words `--epochs 3`: a notebook has no words that could differ.

    One with another value behind it stays, and is refused with the rest.
    """
    words: list[str] = []
    for word, following in zip(arguments, (*arguments[1:], "--"), strict=False):
        key, equals, value = word.partition("=")
        is_joined = key.startswith("--") and equals and following.startswith("--")
        words += to_argv({key.removeprefix("--"): value}) if is_joined else [word]
    return words


def _name(stem: str) -> str:
    """Name a job after its script, in the letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:63] or "script"


def _value(value: Argument, write: Callable[[str], str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(write(str(each)) for each in value)}]"
    return "true" if value is True else write(str(value))


def _parameter(text: str) -> str:
    """Write a notebook's parameter, which is a value in its cells: `false` is no text there."""
    return text if isinstance(plain_scalar(text), bool) else _scalar(text)


def _scalar(text: str) -> str:
    """Write a text or a number so that YAML gives it back as it is."""
    plain = plain_scalar(text)
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    is_plain = is_number or (isinstance(plain, str) and _PLAIN.fullmatch(text))
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{_COMMENT_COLUMN - 1}} # {comment}"
