"""Writes and reads checkpoints that a crash cannot break: a new folder each, its manifest last.

    checkpoints/step-000000120-1f3a9c0e/
        model.safetensors  ...      whatever files the program keeps; they are opaque here
        manifest.json               format, step, and size and sha256 of every file; last

A folder without a whole manifest is no checkpoint. Nothing is renamed and nothing overwritten, so
the same protocol holds on a disk and on a blob mount, where a rename is a copy and a delete.
docs/checkpoints.md says what is promised.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainer.common.errors import TrainingError
from trainer.common.manifest import (
    FORMAT,
    MANIFEST,
    BrokenCheckpoint,
    FileEntry,
    Manifest,
    UnknownFormat,
    Unreadable,
    parse_manifest,
    require_file_name,
)

CHUNK_BYTES = 1 << 20
NAME = re.compile(r"step-(\d{9,})-[0-9a-f]{8}")
# A mount of a blob store may know no fsync of a folder.
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint: its files' contents, checked against the manifest as they were read."""

    name: str
    step: int
    about: Mapping[str, Any]
    files: Mapping[str, bytes]


class CheckpointFolder:
    """The checkpoints of one run. One process writes; any number may read.

    Keeps the newest `keep_last` whole checkpoints and, with `keep_every`, those whose step is a
    multiple of it.
    """

    def __init__(self, root: Path, *, keep_last: int = 3, keep_every: int | None = None) -> None:
        self.root = root
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._broken: set[str] = set()

    # --- writing -------------------------------------------------------------------------------

    def write(self, step: int, files: Mapping[str, bytes], about: Mapping[str, Any]) -> Path:
        """Write one checkpoint and sync it to the disk; gives its folder. Blocks.

        `about` is JSON that readers get back. Raises OSError where the disk refuses; what was
        there before stays whole, and what was begun is taken away as far as it goes. So is what
        a killed writer left unfinished: it may take the very space that is needed.
        """
        for name in files:
            require_file_name(name)
        self._make_root()
        self._remove_unfinished()
        folder = self._new_folder(step)
        try:
            manifest = Manifest(
                step=step,
                saved=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                about=about,
                files={name: _write_file(folder / name, data) for name, data in files.items()},
            )
            _sync_folder(folder)
            _write_file(folder / MANIFEST, manifest.encode())
            _sync_folder(folder)
            _sync_folder(self.root)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(folder)
            raise
        return folder

    def remove_old(self, say: Callable[[str], None]) -> None:
        """Delete what is not to be kept; a kill in between leaves the kept ones whole.

        Broken checkpoints do not count among the kept ones, and go once a newer one is whole;
        those of an unknown format, or that the disk cannot read now, stay. Says what the disk
        does not let go.
        """
        num_whole = 0
        for name in self.names():
            if num_whole >= self._keep_last and self._is_kept_for_good(name):
                continue
            is_whole = self._looks_whole(name)
            if is_whole and num_whole < self._keep_last:
                num_whole += 1
            elif is_whole is not None and num_whole:
                self._let_go(name, say)

    def _is_kept_for_good(self, name: str) -> bool:
        return self._keep_every is not None and _step(name) % self._keep_every == 0

    def _let_go(self, name: str, say: Callable[[str], None]) -> None:
        try:
            _remove(self.root / name)
        except OSError as error:
            say(f"checkpoint {name} could not be removed: {error}")

    def _make_root(self) -> None:
        missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync_folder(path.parent)

    def _remove_unfinished(self) -> None:
        claimed = set(self.names())
        for name in list(self._entries()):
            if name not in claimed:
                with contextlib.suppress(OSError):  # it is only in the way if space is short
                    _remove(self.root / name)

    def _new_folder(self, step: int) -> Path:
        while True:
            folder = self.root / f"step-{step:09d}-{secrets.token_hex(4)}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder

    def _looks_whole(self, name: str) -> bool | None:
        """Tell whether manifest and sizes are right; None if that cannot be read."""
        if name in self._broken:
            return False
        folder = self.root / name
        try:
            manifest = parse_manifest(_read_file(folder / MANIFEST))
            for file, entry in manifest.files.items():
                if (folder / file).stat().st_size != entry.bytes:
                    return False
        except (UnknownFormat, Unreadable):
            return None
        except BrokenCheckpoint:
            return False
        except OSError as error:
            return False if isinstance(error, FileNotFoundError) else None
        return True

    # --- reading -------------------------------------------------------------------------------

    def newest(self, say: Callable[[str], None]) -> Checkpoint | None:
        """Read the newest whole checkpoint; None where none was ever finished.

        Says of each newer one that is broken which file is wrong and how. Raises TrainingError
        where all are broken, and for a format that this version does not know: to begin anew, or
        from an older one, would lose what they hold.
        """
        try:
            names = self.names()
        except OSError as error:
            message = f"the checkpoints in `{self.root}` cannot be listed: {error.strerror}"
            raise TrainingError(
                message, hint="correct the folder, or choose another --checkpoint-dir"
            ) from None
        self._mention_unfinished(names, say)
        for name in names:
            try:
                return self.read(name)
            except BrokenCheckpoint as error:
                if not isinstance(error, Unreadable):
                    self._broken.add(name)
                older = "an older one is tried" if name != names[-1] else "there is no older one"
                say(f"checkpoint {name} is broken ({error}); {older}")
        if names:
            message = f"no checkpoint in `{self.root}` is whole, of {len(names)}"
            raise TrainingError(
                message,
                hint="delete them to start from scratch, or choose another --checkpoint-dir",
            )
        return None

    def _mention_unfinished(self, names: list[str], say: Callable[[str], None]) -> None:
        newest = _step(names[0]) if names else -1
        for name in sorted(set(self._entries()) - set(names)):
            if _step(name) > newest:
                say(f"checkpoint {name} was never finished: it has no manifest, and is left out")

    def read(self, name: str) -> Checkpoint:
        """Read one checkpoint whole; raises BrokenCheckpoint, or TrainingError for its format."""
        folder = self.root / name
        try:
            manifest = parse_manifest(_read_file(folder / MANIFEST))
        except UnknownFormat as error:
            message = f"checkpoint {name} has format {error.number}; this program reads {FORMAT}"
            hint = "use the image that wrote it or a newer one, or choose another --checkpoint-dir"
            raise TrainingError(message, hint=hint) from None
        files = {file: _read_file(folder / file, entry) for file, entry in manifest.files.items()}
        return Checkpoint(name=name, step=manifest.step, about=manifest.about, files=files)

    def names(self) -> list[str]:
        """List the folders that claim to be checkpoints, newest step first."""
        found: list[tuple[int, int, str]] = []
        for name in self._entries():
            written_ns = self._written_ns(name)
            if written_ns is not None:
                found.append((_step(name), written_ns, name))
        return [name for _, _, name in sorted(found, reverse=True)]

    def _entries(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name):
                    yield entry.name

    def _written_ns(self, name: str) -> int | None:
        """Give the manifest's time of writing; None while there is none, or an empty one."""
        try:
            found = (self.root / name / MANIFEST).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # it is there, and reading it will tell what is wrong
            return 0
        return found.st_mtime_ns if found.st_size else None


def _step(name: str) -> int:
    found = NAME.fullmatch(name)
    assert found, name
    return int(found[1])


def _write_file(path: Path, data: bytes) -> FileEntry:
    """Write a file to the disk; gives its manifest entry."""
    digest = hashlib.sha256(data).hexdigest()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:  # a full disk shortens a write before it refuses one
            view = view[os.write(fd, view[:CHUNK_BYTES]) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return FileEntry(bytes=len(data), sha256=digest)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(fd)


def _read_file(path: Path, entry: FileEntry | None = None) -> bytes:
    """Read a file whole; raises BrokenCheckpoint where it is not what `entry` says."""
    try:
        # Not to wait for a writer where somebody put a pipe in the file's place.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BrokenCheckpoint(path.name, "no regular file")
            if entry is not None and found.st_size != entry.bytes:
                raise BrokenCheckpoint(path.name, f"{found.st_size} bytes, not {entry.bytes}")
            data = file.read()
    except FileNotFoundError:
        raise BrokenCheckpoint(path.name, "it is missing") from None
    except OSError as error:
        raise Unreadable(path.name, error.strerror or str(error)) from None
    if entry is not None and hashlib.sha256(data).hexdigest() != entry.sha256:
        raise BrokenCheckpoint(path.name, "its sha256 is not the manifest's")
    return data


def _remove(folder: Path) -> None:
    """Take a checkpoint away, its manifest first: a half-deleted one is none."""
    if folder.is_symlink():
        folder.unlink()
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            Path(entry.path).unlink()
    folder.rmdir()
