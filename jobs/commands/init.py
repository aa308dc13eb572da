"""`launch init`: write the job file of a script."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, job_options, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.jobfile.read import LoadedJob

DEFAULT_FILE = "job.yaml"
SUFFIXES = (".yaml", ".yml")


def init(
    *,
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT",
            help="A Python script, such as train.py.",
            autocompletion=completers.scripts,
        ),
    ],
    arguments: job_options.Arguments = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="FILE",
            parser=Path,
            help=f"The job file to write; else {DEFAULT_FILE} beside the script.",
        ),
    ] = None,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Write the job file of a script.

    The script is read, not executed: the frameworks that it imports decide image and launcher.
    """
    from jobs.jobfile.find import find_job
    from jobs.jobfile.read import load_tree
    from jobs.jobfile.written import is_script, write_job
    from jobs.jobfile.yaml_tree import parse_yaml

    path = find_job(script)
    if not is_script(path):
        message = f"`{script}` is not a Python script"
        raise LaunchError(message, hint="launch init train.py; `launch jobs` lists ready-made jobs")
    target = into or path.with_name(DEFAULT_FILE)
    if target.suffix not in SUFFIXES:
        message = f"`{target}` is not a valid name for a job file"
        raise LaunchError(message, hint=f"--into {target.with_suffix('.yaml')}")
    written = write_job(path, script, arguments or (), folder=target.parent)
    loaded = load_tree(parse_yaml(written.text, str(target)), str(target), target.parent)
    for sentence in written.sentences:
        console.say(sentence)
    _try_plan(loaded, stack, env)
    _write(target, written.text)
    console.out(str(target))
    stack_words = options.stack_words(stack, env)
    commands = [
        (what, shlex.join(["launch", verb, str(target), *stack_words]))
        for what, verb in (("show what would start", "plan"), ("start it", "run"))
    ]
    console.say(console.tree("next", commands))


def _try_plan(loaded: LoadedJob, stack: str, env: Path | None) -> None:
    """Plan the job; warn where the stack is not up or cannot take it, as another may."""
    from jobs.launching.plan import plan_job

    try:
        plan_job(loaded, options.open_engine(options.open_environment(stack, env)))
    except LaunchError as error:
        console.warn(f"stack `{stack}` cannot plan this job: {error.message}; hint: {error.hint}")


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        message = f"`{target}` exists"
        other = target.with_name(f"{target.stem}-2{target.suffix}")
        raise LaunchError(message, hint=f"--into {other}, or remove it first") from None
    except OSError as error:
        message = f"cannot write `{target}`: {error.strerror}"
        raise EnvironmentFailure(message, hint="--into FILE, in a folder that is there") from None


app = make_app({"init": init})
