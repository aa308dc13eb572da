"""The checkpoints of a run: which are whole, and how another run begins with them.

Only the layout is known here (docs/run-directory.md): a folder a step, its `manifest.json` written
last. A folder without one is what a save left that was cut off, and no checkpoint. Whether the
files of a whole one are as they were written, the trainer finds out from their checksums.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.host.untrusted import parse_json, read_small
from jobs.rank.folder import copy_content

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
# As trainer/common/checkpoint.py names one, whose files nobody writes to again.
_NEVER_WRITTEN_AGAIN = re.compile(r"step-\d{9,}-[0-9a-f]{8}")


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A whole checkpoint; `saved` is ISO 8601 in UTC."""

    name: str
    step: int
    saved: str | None
    bytes: int


class _Manifest(Struct, frozen=True, kw_only=True):
    """The part of `manifest.json` that is read; a trainer writes more."""

    step: int
    saved: str | None = None


def whole_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """List the checkpoints that have a manifest, newest first."""
    found: list[Checkpoint] = []
    for manifest in run_dir.glob(f"{FOLDER}/*/{MANIFEST}"):
        try:
            content = read_small(manifest)
            size = _size(manifest.parent)
        except OSError:  # removed meanwhile
            continue
        checkpoint = checkpoint_of(manifest.parent.name, content, size)
        if checkpoint is not None:
            found.append(checkpoint)
    return sorted(found, key=lambda each: (each.step, each.saved or "", each.name), reverse=True)


def has_files(run_dir: Path) -> bool:
    """Tell whether a run has left anything among its checkpoints, whole or not."""
    return any((run_dir / FOLDER).glob("*"))


def checkpoint_of(name: str, manifest: bytes, size: int) -> Checkpoint | None:
    """Read a checkpoint's manifest; None where it was cut off. `size` is of all files."""
    try:
        read = parse_json(manifest, _Manifest)
    except msgspec.DecodeError:
        return None
    return Checkpoint(name=name, step=read.step, saved=read.saved, bytes=size)


def hand_on_checkpoints(source_run: Path, run_dir: Path) -> None:
    """Let a run that has not started yet begin with all whole checkpoints of another.

    All of them, so that the trainer may fall back on an older one as it would in its own run. Files
    of our trainers are linked where that can be, others copied: a script may write to the same
    folder again. Links among the checkpoints stay links. LaunchError for what is no part of a
    checkpoint, OSError where one cannot be had; what is there then has no manifest, or is whole.
    """
    source, target = source_run / FOLDER, run_dir / FOLDER
    target.mkdir()
    # Oldest first: what is cut off between two of them still ends with a whole one.
    whole = [each.name for each in reversed(whole_checkpoints(source_run))]
    for name in whole:
        if (source / name).is_symlink():
            _hand_on_link(source, name, target, whole)
        else:
            _hand_on_folder(source, name, target, whole)


def _size(folder: Path) -> int:
    """Add up the files below a folder."""
    states = (entry.stat(follow_symlinks=False) for _, entry in _entries(folder))
    return sum(each.st_size for each in states if stat.S_ISREG(each.st_mode))


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all that is below a folder, with its path from there, folders first; follows no link."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(folder / prefix) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            yield prefix + entry.name, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{prefix}{entry.name}/")


def _hand_on_folder(source: Path, name: str, target: Path, whole: list[str]) -> None:
    is_linked = _NEVER_WRITTEN_AGAIN.fullmatch(name) is not None
    (target / name).mkdir()
    for below, entry in sorted(_entries(source / name), key=lambda each: each[0] == MANIFEST):
        path = f"{name}/{below}"
        if entry.is_symlink():
            _hand_on_link(source, path, target, whole)
        elif entry.is_dir(follow_symlinks=False):
            (target / path).mkdir()
        else:
            _hand_on_file(source / path, target / path, is_linked=is_linked)


def _hand_on_link(source: Path, name: str, target: Path, whole: list[str]) -> None:
    """Make a link to the same place among the new run's checkpoints."""
    root, link = source.resolve(), source / name
    try:
        aim = link.resolve(strict=True).relative_to(root)
    except (OSError, RuntimeError, ValueError):  # leads nowhere, round in a circle, or out of here
        aim = Path()
    if not aim.parts or aim.parts[0] not in whole:
        raise _refused(link, "is a link to what is part of none")
    (target / name).symlink_to(os.path.relpath(root / aim, root / Path(name).parent))


def _hand_on_file(source: Path, target: Path, *, is_linked: bool) -> None:
    try:
        # No link that took its place is followed, and no pipe waited for.
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        message = f"cannot read `{source}` of a checkpoint to begin with: {error.strerror}"
        raise LaunchError(message, hint=f"ls -l {shlex.quote(str(source))}") from error
    with open(descriptor, "rb") as read:  # noqa: PTH123 (a descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(source, "is neither a file nor a folder")
        if is_linked:
            try:
                os.link(source, target)
                return
            except OSError:  # another file system, or one without links
                pass
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            copy_content(read.fileno(), written)
        finally:
            os.close(written)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _refused(path: Path, what: str) -> LaunchError:
    message = f"`{path}` of a checkpoint to begin with {what}"
    hint = f"put the file itself there, or remove it: rm {shlex.quote(str(path))}"
    return LaunchError(message, hint=hint)
