"""`launch data`: a dataset's folder, pushed as a version, listed, pulled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands import completers as completion
from jobs.commands import data_options, data_programs, data_versions, options
from jobs.commands.parser import CommandParser
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.errors import LaunchError
    from jobs.datasets.pull import Confirm, Surplus
    from jobs.datasets.push import Pushed
    from jobs.datasets.records import DatasetRecord


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    data_programs.configure(parser)
    _configure_push(parser)
    _configure_pull(parser)
    listed = parser.add_command(
        "ls", "List datasets and their versions, the newest of each first.", list_versions
    )
    name = listed.add_argument("name", metavar="NAME", nargs="?", help="One; all without it.")
    completion.offer(name, completion.datasets)
    data_options.add_store(listed)
    data_versions.configure(parser)


def _configure_push(parser: CommandParser) -> None:
    sent = parser.add_command(
        "push",
        "Send a folder to the store as a new version of a dataset; equal content is not sent.",
        push,
    )
    folder = sent.add_argument("folder", metavar="DIR", type=Path, help="The folder to send.")
    completion.offer(folder, completion.files)
    name = sent.add_argument("name", metavar="NAME", help="The dataset's name.")
    completion.offer(name, completion.datasets)
    _add_transfer(sent, "Say what would be sent, and send nothing.")
    data_options.add_store(sent)


def _configure_pull(parser: CommandParser) -> None:
    pulled = parser.add_command(
        "pull", "Write a dataset's files into a folder; those that are there and equal stay.", pull
    )
    ref = pulled.add_argument("ref", metavar="NAME[@N]", help="A dataset, or one version.")
    completion.offer(ref, completion.dataset_versions)
    options.add_to(pulled)
    pulled.add_argument(
        "--delete",
        action="store_true",
        help="Take away what the version does not have, after showing it.",
    )
    pulled.add_argument("-y", "--yes", action="store_true", help="Do not ask before deleting.")
    _add_transfer(pulled, "Say what would be received, and write nothing.")
    data_options.add_store(pulled)


def _add_transfer(parser: CommandParser, dry_run: str) -> None:
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument(
        "--limit-rate",
        metavar="RATE",
        type=bytes_per_s,
        help="No more bytes a second than this, as in 500k or 20M.",
    )


def bytes_per_s(text: str) -> int:
    """The type of `--limit-rate`: 500k, 20M, 1.5G."""
    from jobs.host.units import RATE_UNITS, parse_bytes

    rate = parse_bytes(text, RATE_UNITS)
    if rate is None:
        from argparse import ArgumentTypeError

        message = f"`{text}` is no rate: bytes a second, as in 500k or 20M"
        raise ArgumentTypeError(message)
    return rate


def push(
    *,
    folder: Path,
    name: str,
    dry_run: bool,
    limit_rate: int | None,
    sas: Path | None,
    stack: str,
    env: Path | None,
    json: bool,
) -> None:
    """Send a folder to the store as a new version of a dataset; equal content is not sent."""
    from jobs.datasets.push import Reports
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    lines = ProgressLines()
    reports = Reports(
        reading=lines.open("reading", after_s=1.0),
        copying=lines.open("copying", after_s=1.0),
        sending=lines.open("sending"),
        warn=console.warn,
    )
    with lines:
        pushed = data_options.open_datasets(environment, sas).push(
            folder, name, reports, is_dry=dry_run, max_bytes_per_s=limit_rate
        )
    record = pushed.dataset
    if not dry_run:
        data_options.register_dataset(record, environment)
    if json:
        console.out_json(
            {
                **data_options.record_fields(record),
                "already": pushed.already,
                "files_sent": pushed.files_sent,
                "bytes_sent": pushed.bytes_sent,
                "files_copied": pushed.files_copied,
                "bytes_copied": pushed.bytes_copied,
                **({"dry_run": True} if dry_run else {}),
            }
        )
        return
    files, size = console.count_text(record.files, "file"), console.size_text(record.bytes)
    if pushed.already:
        console.say(f"the store has this content already, as {record.ref}")
    elif dry_run:
        missing = console.size_text(pushed.bytes_sent)
        copied = f", and copy {_copied_text(pushed)}" if pushed.files_copied else ""
        console.say(
            f"would send {pushed.files_sent} of {files} ({missing} of {size}) "
            f"as {record.ref}{copied}"
        )
    else:
        copied = f", copied {_copied_text(pushed)}" if pushed.files_copied else ""
        console.say(f"{record.ref}: {files}, {size}, digest {record.digest[:12]}{copied}")
    if not dry_run:
        console.out(record.ref)


def _copied_text(pushed: Pushed) -> str:
    size = console.size_text(pushed.bytes_copied)
    return f"{console.count_text(pushed.files_copied, 'file')} ({size}) inside the store"


def list_versions(
    *, name: str | None, sas: Path | None, stack: str, env: Path | None, json: bool
) -> None:
    """List datasets and their versions, the newest of each first."""
    from jobs.datasets.records import check_name

    if name is not None:
        check_name(name)
    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    damaged: list[LaunchError] = []
    records = datasets.versions(name, damaged=damaged)
    if name is not None and not records:
        datasets.resolve(name)  # says what there is instead
    console.warn_damaged(damaged)
    if json:
        console.out_json([data_options.record_fields(record) for record in records])
        return
    if not records:
        if damaged:
            return
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
    *,
    ref: str,
    to: Path,
    delete: bool,
    yes: bool,
    dry_run: bool,
    limit_rate: int | None,
    sas: Path | None,
    stack: str,
    env: Path | None,
    json: bool,
) -> None:
    """Write a dataset's files into a folder; those that are there and equal stay."""
    from jobs.host.progress import ProgressLines

    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    record = datasets.resolve(ref)
    with ProgressLines() as lines:
        pulled = datasets.pull(
            record.pinned(),
            to,
            lines.open("receiving"),
            is_dry=dry_run,
            delete=_confirm_deleting(record, to, is_agreed=yes or dry_run) if delete else None,
            max_bytes_per_s=limit_rate,
        )
    if json:
        console.out_json(
            {
                **data_options.record_fields(record),
                "folder": str(to.absolute()),
                "files_received": pulled.files_received,
                "bytes_received": pulled.bytes_received,
                "files_deleted": pulled.files_deleted,
                **({"dry_run": True} if dry_run else {}),
            }
        )
        return
    if dry_run:
        size = console.size_text(pulled.bytes_received)
        text = f"would receive {console.count_text(pulled.files_received, 'file')} ({size})"
        if delete:
            text += f" and delete {console.count_text(pulled.files_deleted, 'file')}"
        console.say(text)
        return
    if pulled.files_deleted:
        console.say(f"deleted {console.count_text(pulled.files_deleted, 'file')} from {to}")
    elif not pulled.files_received:
        console.say(f"{record.ref} is there already")
    console.out(str(to))


def _confirm_deleting(record: DatasetRecord, folder: Path, *, is_agreed: bool) -> Confirm:
    def confirm(surplus: Surplus) -> bool:
        files = console.count_text(surplus.count, "file")
        console.say(f"{files} of {folder} that {record.ref} does not have:")
        for path in surplus.first:
            console.say(f"  {path if path.isprintable() else ascii(path)}")
        if surplus.count > len(surplus.first):
            console.say(f"  ... and {surplus.count - len(surplus.first)} more")
        return is_agreed or console.confirm(f"Delete {files} from {folder}?")

    return confirm
