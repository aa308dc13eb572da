"""`launch data`: a dataset's folder, pushed as a version, listed, pulled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, data_options, data_programs, data_versions, options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.datasets.pull import Confirm, Surplus
    from jobs.datasets.push import Pushed
    from jobs.datasets.records import DatasetRecord


def bytes_per_s(text: str) -> int:
    """The type of `--limit-rate`: 500k, 20M, 1.5G."""
    number, factor = text, 1
    units = {"k": 1000, "m": 1000**2, "g": 1000**3}
    if text[-1:].lower() in units:
        number, factor = text[:-1], units[text[-1].lower()]
    try:
        rate = int(float(number) * factor)
    except (ValueError, OverflowError):
        rate = 0
    if rate < 1:
        message = f"`{text}` is no rate: bytes a second, as in 500k or 20M"
        raise typer.BadParameter(message)
    return rate


LimitRate = Annotated[
    int | None,
    typer.Option(
        metavar="RATE",
        parser=bytes_per_s,
        help="No more bytes a second than this, as in 500k or 20M.",
    ),
]


def push(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=Path, help="The folder to send.")],
    name: data_options.Name,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")
    ] = False,
    limit_rate: LimitRate = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
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
        data_options.tell_azure_ml(record, environment)
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
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="One; all without it.", autocompletion=completers.datasets
        ),
    ] = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """List datasets and their versions, the newest of each first."""
    from jobs.datasets.records import check_name

    if name is not None:
        check_name(name)
    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    records = datasets.versions(name)
    if name is not None and not records:
        datasets.resolve(name)  # says what there is instead
    if json:
        console.out_json([data_options.record_fields(record) for record in records])
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
    *,
    ref: data_options.Ref,
    to: options.To,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Take away what the version does not have, after showing it."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before deleting.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be received, and write nothing.")
    ] = False,
    limit_rate: LimitRate = None,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
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


app = make_app(
    {
        "prepare": data_programs.prepare,
        "pack": data_programs.pack,
        "synthesize": data_programs.synthesize,
        "push": push,
        "pull": pull,
        "ls": list_versions,
        "show": data_versions.show,
        "diff": data_versions.diff,
        "rm": data_versions.remove,
        "register": data_versions.register,
    }
)
