"""`launch data show|diff|rm|register`: what a version holds, what parts two, its end, its adoption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.commands import completers, data_options, options
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment
    from jobs.datasets.compare import Change, Share
    from jobs.datasets.datasets import Datasets
    from jobs.datasets.file_list import FileList
    from jobs.datasets.records import DatasetRecord

# Changes that are printed; `--json` gives all.
NUM_CHANGES = 20
# Runs that are looked at before a version is removed, the newest first.
NUM_RUNS = 200


def show(
    *,
    ref: data_options.Ref,
    files: Annotated[bool, typer.Option("--files", help="List the files, one a line.")] = False,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show a version: its size, its largest folders, where it lies."""
    from jobs.datasets.compare import shares_of

    environment = options.open_environment(stack, env)
    datasets = data_options.open_datasets(environment, sas)
    record = datasets.resolve(ref)
    with datasets.files(record.pinned()) as (listed,):
        if files:
            _print_files(record, listed, is_json=json)
            return
        shares = shares_of(listed)
    places = _places(record, environment)
    if json:
        fields = data_options.record_fields(record)
        console.out_json({**fields, **places, "folders": shares.folders, "kinds": shares.kinds})
        return
    rows = [
        ("dataset", record.ref),
        ("files", str(record.files)),
        ("size", console.size_text(record.bytes)),
        ("created", record.created),
        ("digest", record.digest),
        *((name.replace("_", " "), place) for name, place in places.items()),
    ]
    console.out(console.fields(rows))
    for title, largest in (("FOLDER", shares.folders), ("KIND", shares.kinds)):
        console.out()
        console.out(_shares_table(title, largest))


def _shares_table(title: str, shares: Iterable[Share]) -> str:
    rows = [(each.name, str(each.files), console.size_text(each.bytes)) for each in shares]
    return console.table((title, "FILES", "SIZE"), rows, right=(1, 2))


def _places(record: DatasetRecord, environment: Environment) -> dict[str, str]:
    storage, prefix = environment.storage, record.pinned().content_prefix
    places = {"url": f"{storage.blob_endpoint.rstrip('/')}/{storage.containers.data}/{prefix}"}
    if environment.engine != "local":
        from jobs.datasets.asset import datastore_uri

        places["datastore"] = datastore_uri(record.pinned(), environment)
    return places


def _print_files(record: DatasetRecord, files: FileList, *, is_json: bool) -> None:
    if is_json:
        _stream_json(data_options.record_fields(record) | {"listed": files.files}, "list", files)
        return
    for file in files:
        console.out(f"{file.bytes:>12}  {file.path}")


def diff(
    *,
    a: data_options.Ref,
    b: data_options.Ref,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show which files part two versions."""
    from jobs.datasets.compare import changes

    datasets = data_options.open_datasets(options.open_environment(stack, env), sas)
    records = datasets.resolve(a), datasets.resolve(b)
    with datasets.files(*(record.pinned() for record in records)) as (ours, theirs):
        counts: Counter[str] = Counter(each.kind for each in changes(ours, theirs))
        found = changes(ours, theirs)
        if json:
            _stream_json(
                {
                    "a": data_options.record_fields(records[0]),
                    "b": data_options.record_fields(records[1]),
                    **{kind: counts[kind] for kind in ("added", "removed", "changed")},
                },
                "changes",
                found,
            )
        else:
            _print_changes(records, counts, found)


def _print_changes(
    records: tuple[DatasetRecord, DatasetRecord], counts: Counter[str], found: Iterator[Change]
) -> None:
    ours, theirs = records
    if not counts:
        console.out(f"{ours.ref} and {theirs.ref} have the same content")
        return
    header = ("", ours.ref, theirs.ref)
    rows = [
        ("files", str(ours.files), str(theirs.files)),
        ("size", console.size_text(ours.bytes), console.size_text(theirs.bytes)),
        ("digest", ours.digest[:12], theirs.digest[:12]),
    ]
    console.out(console.table(header, rows))
    console.out()
    console.out(", ".join(f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed")))
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for number, change in enumerate(found):
        if number == NUM_CHANGES:
            console.out(f"  ... and {counts.total() - number} more; all with --json")
            return
        sizes = [console.size_text(size) for size in (change.a, change.b) if size is not None]
        console.out(f"  {signs[change.kind]} {change.path}  {' -> '.join(sizes)}")


def _stream_json(head: dict[str, Any], name: str, items: Iterable[Any]) -> None:
    """One object whose last member is a long list, of which one item is in memory."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(head), indent=2).decode()
    console.out(f"{text[:-2]},\n  {msgspec.json.encode(name).decode()}: [")
    before = ""
    for item in items:
        if before:
            console.out(f"    {before},")
        before = msgspec.json.encode(item).decode()
    if before:
        console.out(f"    {before}")
    console.out("  ]\n}")


def remove(
    *,
    ref: Annotated[
        str,
        typer.Argument(
            metavar="NAME@N",
            help="A dataset's version.",
            autocompletion=completers.dataset_versions,
        ),
    ],
    yes: options.Yes = False,
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Remove a version; its number is never used again."""
    from jobs.contracts.errors import Refused
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    datasets = data_options.open_datasets(environment, sas)
    removal = datasets.plan_removal(ref)
    record = removal.dataset
    user = _run_that_uses(record, environment)
    if user is not None:
        message = f"the run {user} reads `{record.ref}` and is not over"
        raise Refused(message, hint=f"launch wait {user}, or launch cancel {user}")
    files, size = console.count_text(record.files, "file"), console.size_text(record.bytes)
    stays = f"; its files stay, {removal.content_stays}" if removal.content_stays else ""
    console.say(f"{record.ref}: {files}, {size}, pushed {record.created[:10]}{stays}")
    if not yes and not console.confirm(f"Remove {record.ref} for good?"):
        console.say("nothing was removed")
        return
    with ProgressLines() as lines:
        datasets.remove(removal, lines.open("removing", after_s=1.0))
    data_options.archive_asset(record, environment)
    if json:
        console.out_json({**data_options.record_fields(record), "removed": True})
    else:
        console.say(f"{record.ref} is removed; the next version is a new number")


def _run_that_uses(record: DatasetRecord, environment: Environment) -> str | None:
    if environment.engine != "local":
        return None
    store = options.open_store(environment)
    for status in store.list(NUM_RUNS):
        if status.state.is_terminal():
            continue
        inputs = store.record(store.handle(status.id)).plan.spec.inputs.values()
        if any(
            (each.dataset.name, each.dataset.digest) == (record.name, record.digest)
            for each in inputs
        ):
            return status.id
    return None


def register(
    *,
    name: data_options.Name,
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX", help="The folder in the container `data`, as in raw/photos."
        ),
    ],
    sas: data_options.Sas = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Make a version of data that is in the store already, where it lies."""
    from jobs.host.progress import ProgressLines

    environment = options.open_environment(stack, env)
    datasets: Datasets = data_options.open_datasets(environment, sas)
    with ProgressLines() as lines:
        done = datasets.register(name, prefix, lines.open("reading"))
    record = done.dataset
    data_options.tell_azure_ml(record, environment)
    if json:
        console.out_json({**data_options.record_fields(record), "already": done.already})
        return
    if done.already:
        console.say(f"the store has this content already, as {record.ref}")
    else:
        files, size = console.count_text(record.files, "file"), console.size_text(record.bytes)
        console.say(f"{record.ref}: {files}, {size}, where they lie: {prefix}")
    console.out(record.ref)
