"""`launch data`: prepare a dataset's folder, push it as a version, list versions, pull one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs import completion, console
from jobs.commands.options import DEFAULT_STACK, EnvFile, Json, Stack, open_environment

if TYPE_CHECKING:
    from jobs.data import DatasetRecord

Folder = Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder to write to.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    data = typer.Typer(help="Prepare, push, list and pull datasets.", no_args_is_help=True)
    data.command("prepare")(prepare)
    data.command("push")(push)
    data.command("ls")(list_versions)
    data.command("pull")(pull)
    app.add_typer(data, name="data")


def prepare(
    dataset: Annotated[str, typer.Argument(metavar="digits", help="Which dataset to make.")],
    to: Folder,
    as_json: Json = False,
) -> None:
    """Make a dataset's folder: digits (1,797 handwritten digits, as MNIST's IDX files)."""
    from jobs.prepared_data import run_prepare

    done = run_prepare(dataset, to, tell=console.say)
    if as_json:
        console.out_json(done)
    else:
        console.out(str(done["folder"]))
        console.say(console.tree("next", [("send it", f"launch data push {to} {dataset}")]))


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to send.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The dataset's name.", autocompletion=completion.datasets
        ),
    ],
    stack: Stack = DEFAULT_STACK,
    env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Send a folder to the store as a new version of a dataset; equal content is not sent."""
    from jobs.data import Datasets
    from jobs.progress import ProgressLine

    datasets = Datasets.of(open_environment(stack, env_file))
    pushed = datasets.push(folder, name, ProgressLine("sending"))
    record = pushed.dataset
    if as_json:
        console.out_json(
            {
                **_fields(record),
                "already": pushed.already,
                "files_sent": pushed.files_sent,
                "bytes_sent": pushed.bytes_sent,
            }
        )
        return
    if pushed.already:
        console.say(f"the store has this content already, as {record.ref}")
    else:
        size = console.size_text(record.bytes)
        console.say(f"{record.ref}: {record.files} files, {size}, digest {record.digest[:12]}")
    console.out(record.ref)


def list_versions(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="One dataset; all without it.", autocompletion=completion.datasets
        ),
    ] = None,
    stack: Stack = DEFAULT_STACK,
    env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List datasets and their versions, the newest of each first."""
    from jobs.data import Datasets, check_name

    if name is not None:
        check_name(name)
    datasets = Datasets.of(open_environment(stack, env_file))
    records = datasets.versions(name)
    if name is not None and not records:
        datasets.resolve(name)  # says what there is instead
    if as_json:
        console.out_json([_fields(record) for record in records])
        return
    if not records:
        console.say("no dataset yet\n\nhint: launch data push DIR NAME")
        return
    rows = [
        (
            record.name,
            str(record.version),
            str(record.files),
            console.size_text(record.bytes),
            record.created[:16].replace("T", " "),
            record.digest[:12],
        )
        for record in records
    ]
    header = ("NAME", "VERSION", "FILES", "SIZE", "CREATED (UTC)", "DIGEST")
    console.out(console.table(header, rows, right=(1, 2, 3)))


def pull(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@N]",
            help="A dataset, or one version.",
            autocompletion=completion.datasets,
        ),
    ],
    to: Folder,
    stack: Stack = DEFAULT_STACK,
    env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Write a dataset's files into a folder; those that are there and equal stay."""
    from jobs.data import Datasets
    from jobs.progress import ProgressLine

    datasets = Datasets.of(open_environment(stack, env_file))
    record = datasets.resolve(ref)
    pulled = datasets.pull(record.pinned(), to, ProgressLine("receiving"))
    if as_json:
        console.out_json(
            {
                **_fields(record),
                "folder": str(to.absolute()),
                "files_received": pulled.files_received,
                "bytes_received": pulled.bytes_received,
            }
        )
        return
    if not pulled.files_received:
        console.say(f"{record.ref} is there already")
    console.out(str(to))


def _fields(record: DatasetRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "version": record.version,
        "digest": record.digest,
        "files": record.files,
        "bytes": record.bytes,
        "created": record.created,
    }
