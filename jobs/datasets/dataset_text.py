"""Word dataset versions, transfers and comparisons for `launch data`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from jobs.datasets.compare import Change, Share
from jobs.datasets.making import Pushed
from jobs.datasets.pull import Pulled
from jobs.datasets.records import DatasetRecord
from jobs.host import console

# The most changes that are printed; `--json` gives all.
NUM_CHANGES = 20


def record_fields(record: DatasetRecord) -> dict[str, Any]:
    """Give a version as `--json` prints it."""
    fields: dict[str, Any] = {
        "name": record.name,
        "version": record.version,
        "digest": record.digest,
        "files": record.files,
        "bytes": record.bytes,
        "created": record.created,
    }
    if record.prefix is not None:
        fields["prefix"] = record.prefix
    if record.copied_from is not None:
        fields["copied_from"] = msgspec.to_builtins(record.copied_from)
    return fields


def size_of(record: DatasetRecord) -> str:
    """Word a version's files and bytes."""
    return f"{console.count_text(record.files, 'file')}, {console.size_text(record.bytes)}"


def versions_table(records: Sequence[DatasetRecord]) -> str:
    """Lay out versions, one a row."""
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
    return console.table(header, rows, right=(1, 2, 3), gives_way=(2, 4))


def version_text(record: DatasetRecord, places: Iterable[tuple[str, str]]) -> str:
    """Lay out a version's facts, one a line, then its places."""
    rows = [
        ("dataset", record.ref),
        ("files", str(record.files)),
        ("size", console.size_text(record.bytes)),
        ("created", record.created),
        ("digest", record.digest),
        *origin_rows(record),
        *((name.replace("_", " "), place) for name, place in places),
    ]
    return console.fields(rows)


def origin_rows(record: DatasetRecord) -> list[tuple[str, str]]:
    """Give the row that names the version of which a version is a copy; none for an original."""
    origin = record.copied_from
    return [] if origin is None else [("copied from", origin.text(record.name))]


def shares_table(title: str, shares: Iterable[Share]) -> str:
    """Lay out folders or kinds of files with their sizes."""
    rows = [(each.name, str(each.files), console.size_text(each.bytes)) for each in shares]
    return console.table((title, "FILES", "SIZE"), rows, right=(1, 2))


def pushed_fields(pushed: Pushed, *, is_dry: bool) -> dict[str, Any]:
    """Give a push as `--json` prints it."""
    return {
        **record_fields(pushed.dataset),
        "already": pushed.already,
        "files_sent": pushed.files_sent,
        "bytes_sent": pushed.bytes_sent,
        "files_copied": pushed.files_copied,
        "bytes_copied": pushed.bytes_copied,
        **({"dry_run": True} if is_dry else {}),
    }


def pushed_text(pushed: Pushed, *, is_dry: bool) -> str:
    """Word the result of a push, or of a dry one."""
    record = pushed.dataset
    if pushed.already:
        return f"the store has this content already, as {record.ref}"
    copied = ""
    if pushed.files_copied:
        size = console.size_text(pushed.bytes_copied)
        copied = f"{console.count_text(pushed.files_copied, 'file')} ({size}) inside the store"
    if is_dry:
        files, size = console.count_text(record.files, "file"), console.size_text(record.bytes)
        missing = console.size_text(pushed.bytes_sent)
        also = f", and copy {copied}" if copied else ""
        told = f"would send {pushed.files_sent} of {files} ({missing} of {size})"
        return f"{told} as {record.ref}{also}"
    also = f", copied {copied}" if copied else ""
    return f"{record.ref}: {size_of(record)}, digest {record.digest[:12]}{also}"


def copied_text(pushed: Pushed, source: str, target: str, *, is_dry: bool) -> str:
    """Word the result of a copy between stacks, or of a dry one; `source` names version and stack."""
    made = pushed.dataset
    if pushed.already:
        return f"stack {target} has the content of {source} already, as {made.ref}"
    if is_dry:
        missing = pushed.files_sent + pushed.files_copied
        size = console.size_text(pushed.bytes_sent + pushed.bytes_copied)
        told = f"{missing} of {console.count_text(made.files, 'file')} ({size})"
        return f"would copy {told} of {source} to stack {target} as {made.ref}"
    text = f"{source} is {made.ref} of stack {target}: {size_of(made)}, digest {made.digest[:12]}"
    if pushed.files_copied:
        inside = console.count_text(pushed.files_copied, "file")
        text += f"; {inside} ({console.size_text(pushed.bytes_copied)}) copied by the service"
    return text


def pulled_text(pulled: Pulled, *, deletes: bool) -> str:
    """Word the result of a dry pull."""
    size = console.size_text(pulled.bytes_received)
    text = f"would receive {console.count_text(pulled.files_received, 'file')} ({size})"
    if deletes:
        text += f" and delete {console.count_text(pulled.files_deleted, 'file')}"
    return text


def comparison_text(
    ours: DatasetRecord, theirs: DatasetRecord, counts: Counter[str], found: Iterator[Change]
) -> str:
    """Lay out two versions side by side, then the first of their changes."""
    if not counts:
        return f"{ours.ref} and {theirs.ref} have the same content"
    header = ("", ours.ref, theirs.ref)
    rows = [
        ("files", str(ours.files), str(theirs.files)),
        ("size", console.size_text(ours.bytes), console.size_text(theirs.bytes)),
        ("digest", ours.digest[:12], theirs.digest[:12]),
    ]
    lines = [console.table(header, rows), ""]
    lines.append(", ".join(f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed")))
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for number, change in enumerate(found):
        if number == NUM_CHANGES:
            lines.append(f"  ... and {counts.total() - number} more; --json lists all")
            break
        sizes = [console.size_text(size) for size in (change.a, change.b) if size is not None]
        lines.append(f"  {signs[change.kind]} {change.path}  {' -> '.join(sizes)}")
    return "\n".join(lines)


def stream_json(head: dict[str, Any], name: str, items: Iterable[Any]) -> None:
    """Print one object whose last member is a long list, of which one item is in memory."""
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
