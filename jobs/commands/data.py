"""`launch data`: push a folder as a version, list versions, pull one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import completion, console
from jobs.command_parser import CommandParser
from jobs.commands import data_programs, options

if TYPE_CHECKING:
    from jobs.data import DatasetRecord


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    data_programs.configure(parser)

    sent = parser.add_command(
        "push",
        "Send a folder to the store as a new version of a dataset; equal content is not sent.",
        push,
    )
    folder = sent.add_argument("folder", metavar="DIR", type=Path, help="The folder to send.")
    completion.offer(folder, completion.files)
    name = sent.add_argument("name", metavar="NAME", help="The dataset's name.")
    completion.offer(name, completion.datasets)
    options.add_json(sent)
    options.add_environment(sent)

    listed = parser.add_command(
        "ls", "List datasets and their versions, the newest of each first.", list_versions
    )
    name = listed.add_argument("name", metavar="NAME", nargs="?", help="One; all without it.")
    completion.offer(name, completion.datasets)
    options.add_json(listed)
    options.add_environment(listed)

    pulled = parser.add_command(
        "pull", "Write a dataset's files into a folder; those that are there and equal stay.", pull
    )
    ref = pulled.add_argument("ref", metavar="NAME[@N]", help="A dataset, or one version.")
    completion.offer(ref, completion.datasets)
    options.add_to(pulled)
    options.add_json(pulled)
    options.add_environment(pulled)


def push(*, folder: Path, name: str, stack: str, env: Path | None, json: bool) -> None:
    """Send a folder to the store as a new version of a dataset; equal content is not sent."""
    from jobs.data import Datasets
    from jobs.progress import ProgressLine

    datasets = Datasets.of(options.open_environment(stack, env))
    pushed = datasets.push(folder, name, ProgressLine("sending"))
    record = pushed.dataset
    if json:
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


def list_versions(*, name: str | None, stack: str, env: Path | None, json: bool) -> None:
    """List datasets and their versions, the newest of each first."""
    from jobs.data import Datasets, check_name

    if name is not None:
        check_name(name)
    datasets = Datasets.of(options.open_environment(stack, env))
    records = datasets.versions(name)
    if name is not None and not records:
        datasets.resolve(name)  # says what there is instead
    if json:
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


def pull(*, ref: str, to: Path, stack: str, env: Path | None, json: bool) -> None:
    """Write a dataset's files into a folder; those that are there and equal stay."""
    from jobs.data import Datasets
    from jobs.progress import ProgressLine

    datasets = Datasets.of(options.open_environment(stack, env))
    record = datasets.resolve(ref)
    pulled = datasets.pull(record.pinned(), to, ProgressLine("receiving"))
    if json:
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
