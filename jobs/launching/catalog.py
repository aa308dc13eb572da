"""List the jobs of the catalog: what each does, what it needs and whether that is there."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Environment, JobFile
from jobs.engines.base import Engine
from jobs.host import console
from jobs.jobfile.arguments import Argument, to_argv
from jobs.jobfile.program_options import Option
from jobs.jobfile.read import LoadedJob
from jobs.jobfile.resolve import resolve

WIDTH = 80
# The words behind `launch data prepare` that make the folder of a dataset; docs/prepare.md.
PREPARED = {
    "coco2017": ("coco", "--from", "archives", "--download"),
    "digits": ("digits",),
    "hymenoptera": ("hymenoptera", "--from", "archives", "--download"),
    "imagenet": ("imagenet", "--from", "archives"),
    "mnist": ("mnist", "--from", "archives", "--download"),
}


class Need(Struct, frozen=True, kw_only=True):
    """A thing that a job needs; `is_there` is None where that is not known.

    `commands` get it, each behind a word on what it does.
    """

    kind: Literal["image", "dataset"]
    name: str
    is_there: bool | None
    commands: tuple[tuple[str, str], ...]


class ProgramOption(Struct, frozen=True, kw_only=True):
    """An option of a job's program; `default` is None where it has none, `kind` names its type."""

    name: str
    kind: str
    text: str
    default: bool | int | float | str | None
    choices: tuple[str, ...]


class CatalogJob(Struct, frozen=True, kw_only=True):
    """A job of the catalog, as `launch jobs --json` gives it."""

    name: str
    description: str
    module: str
    launcher: str
    nodes: int | str
    processes_per_node: int | str
    needs: tuple[Need, ...]
    args: dict[str, Argument]
    options: tuple[ProgramOption, ...]
    outputs: tuple[str, ...]


def describe_job(
    loaded: LoadedJob,
    engine: Engine | None,
    datasets: set[str] | None,
    options: Iterable[Option],
    stack: Sequence[str],
) -> CatalogJob:
    """Describe a job; `datasets` are the names that the store has, None where nobody knows.

    `stack` are the words that name the stack in the commands.
    """
    job = loaded.job
    references = (each.dataset or "" for each in job.inputs.values())
    names = dict.fromkeys(each.partition("@")[0] for each in references)
    return CatalogJob(
        name=job.name,
        description=job.description or "",
        module=job.module or "",
        launcher=job.launcher,
        nodes=job.nodes,
        processes_per_node=job.processes_per_node,
        needs=(_image(loaded, engine, stack), *(_dataset(name, datasets, stack) for name in names)),
        args=job.args if isinstance(job.args, dict) else {},
        options=tuple(map(_program_option, options)),
        outputs=tuple(job.outputs),
    )


def dataset_names(environment: Environment) -> set[str] | None:
    """List the datasets of the store; None where it cannot be asked. Starts no local store."""
    from jobs.blobs.store import open_data_store, peek_data_store
    from jobs.datasets.datasets import Datasets

    is_local = environment.storage.folder is not None
    try:
        store = (peek_data_store if is_local else open_data_store)(environment)
        return {each.name for each in Datasets(store).versions(damaged=[])} if store else None
    except LaunchError:
        return None


def jobs_text(jobs: Sequence[CatalogJob]) -> str:
    """Lay out the jobs: what each does, needs and takes, a line of at most WIDTH columns each."""
    indent = max(len(job.name) for job in jobs) + 2
    return "\n".join(_block(job, indent) for job in jobs)


def job_text(job: CatalogJob) -> str:
    """Lay out one job as names and values, and below them the options of its program."""
    size = f"nodes {job.nodes}, processes per node {job.processes_per_node}"
    described = console.fields(
        [
            ("job", job.name),
            ("about", job.description),
            ("program", job.module),
            *[(need.kind, _need_text(need, with_kind=False)) for need in job.needs],
            ("launcher", job.launcher),
            ("size", size),
            *([("args", shlex.join(to_argv(job.args)))] if job.args else []),
            ("outputs", ", ".join(job.outputs)),
        ]
    )
    return "\n".join([described, "options", *_option_lines(job.options)])


def next_commands(job: CatalogJob, stack: Sequence[str]) -> str:
    """Give the commands that get what is missing, and those that start the job."""
    missing = [each for need in job.needs if need.is_there is False for each in need.commands]
    start = shlex.join(["launch", "run", job.name, *stack])
    branches = [*missing, ("start it", start)]
    if assignment := _assignment(job):
        another = shlex.join(["launch", "run", job.name, *stack, "--set", assignment])
        branches.append(("change an argument", another))
    return console.tree("next", branches)


def _program_option(option: Option) -> ProgramOption:
    default = option.default if isinstance(option.default, bool | int | float | str) else None
    return ProgramOption(
        name=option.name,
        kind=option.kind,
        text=option.text,
        default=default,
        choices=option.choices,
    )


def _option_lines(options: Sequence[ProgramOption]) -> list[str]:
    """Lay out the options, in lines of at most WIDTH columns."""
    indent = max((len(option.name) for option in options), default=0) + 4
    lines: list[str] = []
    for option in options:
        text = textwrap.wrap(_option_text(option), WIDTH - indent)
        lines += [f"  {option.name}".ljust(indent) + text[0]]
        lines += [" " * indent + line for line in text[1:]]
    return lines


def _option_text(option: ProgramOption) -> str:
    default = str(option.default).lower() if isinstance(option.default, bool) else option.default
    asides = [", ".join(option.choices)] if option.choices else []
    asides += [] if default is None else [f"default {default}"]
    return f"{option.text} ({'; '.join(asides)})" if asides else option.text


def _assignment(job: CatalogJob) -> str | None:
    """Write an argument that the program takes: its epochs, else its first one with a value."""
    known = {each.name: each.default for each in job.options if each.default is not None}
    values = known | {key: value for key, value in job.args.items() if not isinstance(value, list)}
    key = next((each for each in ("epochs", *job.args, *known) if each in values), None)
    return None if key is None else f"args.{key}={_value_text(values[key])}"


def _image(loaded: LoadedJob, engine: Engine | None, stack: Sequence[str]) -> Need:
    image = loaded.job.image
    if engine is None or engine.environment.registry is None:
        commands = (("install the image", f"launch image install {shlex.quote(image)}"),)
    else:
        commands = (("push the image", shlex.join(["launch", "image", "push", image, *stack])),)
    is_there = None if engine is None else _is_ready(loaded, engine)
    return Need(kind="image", name=image, is_there=is_there, commands=commands)


def _is_ready(loaded: LoadedJob, engine: Engine) -> bool:
    # Neither data nor size decide whether there is an image.
    job: JobFile = structs.replace(loaded.job, inputs={}, nodes=1, processes_per_node=1)
    try:
        engine.require_ready(
            resolve(
                job,
                environment=engine.environment,
                datasets={},
                code=loaded.code,
                image_reference=engine.image_reference,
            )
        )
    except LaunchError:
        return False
    return True


def _dataset(name: str, datasets: set[str] | None, stack: Sequence[str]) -> Need:
    folder = f"data/{name}"
    prepare = ["launch", "data", "prepare", *PREPARED.get(name, (name,)), "--to", folder]
    commands = (
        ("make the dataset", shlex.join(prepare)),
        ("send it", shlex.join(["launch", "data", "push", folder, name, *stack])),
    )
    is_there = None if datasets is None else name in datasets
    return Need(kind="dataset", name=name, is_there=is_there, commands=commands)


def _need_text(need: Need, *, with_kind: bool = True) -> str:
    name = f"{need.kind} {need.name}" if with_kind else need.name
    return {True: name, False: f"{name} (missing)", None: f"{name} (?)"}[need.is_there]


def _block(job: CatalogJob, indent: int) -> str:
    needs = ", ".join(map(_need_text, job.needs))
    takes = " ".join(f"{key}={_value_text(value)}" for key, value in job.args.items())
    margin, width = " " * indent, WIDTH - indent
    lines = [
        job.description,
        *textwrap.wrap(f"needs {needs}", width, subsequent_indent=" " * len("needs ")),
    ]
    if takes:
        taken = f"takes {takes}"
        lines.append(textwrap.shorten(taken, width, placeholder=" ...", break_on_hyphens=False))
    name = console.styled(job.name, "bold") + margin[len(job.name) :]
    return "\n".join([f"{name}{lines[0]}", *(f"{margin}{line}" for line in lines[1:])])


def _value_text(value: Argument) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
