"""Unpacks one archive into a staging folder: safely, checked in the same pass, going on after a kill.

A file is written once, straight to its place. What was there before the program was interrupted is
left as it is, but the archive is read from its beginning all the same: its checksum is over all of
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.common.errors import TrainingError
from trainer.data.archives.file import ArchiveFile
from trainer.data.archives.tar import Member
from trainer.data.disk.durability import BackgroundSync, sync_files_of
from trainer.data.disk.events import Events
from trainer.data.prepare.published import Checksum
from trainer.data.prepare.staging import Staging, Unpacked

# Gives an archive's files under their paths in the data set's folder; leaves out what it holds not.
Files = Callable[[ArchiveFile], Iterator[Member]]


@dataclass(kw_only=True)
class Progress:
    """Counts the bytes read of all archives of a data set."""

    events: Events
    archives_bytes: int
    bytes_before: int = 0
    files_before: int = 0

    def tell(self, num_files: int, num_bytes: int) -> None:
        """Print the progress of the current archive."""
        self.events.progress(
            "extracting",
            files_done=self.files_before + num_files,
            bytes_done=self.bytes_before + num_bytes,
            bytes_total=self.archives_bytes,
        )

    def passed(self, unpacked: Unpacked) -> None:
        """Count an archive that is done."""
        self.files_before += unpacked.num_files
        self.bytes_before += unpacked.archive_bytes


def unpack(
    staging: Staging,
    path: Path,
    *,
    files: Files,
    roots: tuple[str, ...],
    expected: Checksum,
    progress: Progress,
) -> None:
    """Unpack the archive at `path`, whose files all lie in `roots`, unless that was done before.

    Raises TrainingError where the archive is unsafe, cut off, damaged or not the expected one;
    what is unpacked by then never gets further than the staging folder, and the next try removes it.
    """
    known, num_trusted = staging.begin(path, roots)
    if not known.is_done:
        with ArchiveFile(path, expected.algorithm) as source:
            try:
                written = _write_all(
                    staging,
                    files(source),
                    known,
                    num_trusted,
                    lambda n: progress.tell(n, source.position),
                )
                found = source.digest()
                if found != expected.digest:
                    raise other_archive(path, found, expected)
            except OSError as error:
                raise _unwritten(staging, error) from None
            except TrainingError:
                # Got again it has the same size, and from a server the same time.
                staging.forget(path)
                raise
        sync_files_of(staging.folder)
        known = replace(written, is_done=True, checksum=f"{expected.algorithm}:{found}")
        staging.note(known)
    progress.passed(known)


def other_archive(path: Path, found: str, expected: Checksum) -> TrainingError:
    """Give the error for an archive with another checksum than it must have."""
    message = (
        f"`{path}` is not the archive that {expected.origin}: its {expected.algorithm.upper()} "
        f"is {found}, not {expected.digest}"
    )
    hint = (
        "get it again; for an archive you packed yourself give --checksums FILE, "
        "written by md5sum or sha256sum"
    )
    return TrainingError(message, hint=hint)


def _write_all(
    staging: Staging,
    files: Iterator[Member],
    known: Unpacked,
    num_trusted: int | None,
    tell: Callable[[int], None],
) -> Unpacked:
    """Write the missing files; gives the archive's record with all files counted."""
    root = os.fspath(staging.folder)
    sync = BackgroundSync(staging.folder)
    num_files = num_bytes = 0
    for file in files:
        is_trusted = num_trusted is None or num_files < num_trusted
        if _write(f"{root}/{file.name}", file, is_trusted=is_trusted):
            sync.wrote(file.bytes, num_files + 1)
        num_files += 1
        num_bytes += file.bytes
        if sync.num_durable > known.num_files:
            known = replace(known, num_files=sync.num_durable)
            staging.note(known)
        tell(num_files)
    return replace(known, num_files=num_files, num_bytes=num_bytes)


def _write(path: str, file: Member, *, is_trusted: bool) -> bool:
    """Write a file unless it is there whole; says whether."""
    try:
        descriptor = _create(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - a million files
        descriptor = _create(path)
    except FileExistsError:
        if is_trusted and os.lstat(path).st_size == file.bytes:
            return False
        os.unlink(path)  # noqa: PTH108
        descriptor = _create(path)
    try:
        for piece in file.content:
            rest = piece
            while rest:
                rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
    return True


def _create(path: str) -> int:
    # The archive's own modes and owners say nothing about who may read a data set.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)


def _unwritten(staging: Staging, error: OSError) -> TrainingError:
    message = f"`{error.filename or staging.folder}` cannot be written: {error.strerror}"
    return TrainingError(message, hint="correct this, then type the same again to continue")
