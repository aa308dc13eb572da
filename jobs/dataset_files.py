"""The local side of a dataset: which files it may hold, their digests, reading and writing them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from msgspec import Struct

from jobs.console import size_text
from jobs.errors import EnvironmentFailure, LaunchError
from jobs.parallel import parallel

# A blob's name may have 1,024 characters, and a dataset's name and digest come before it.
LONGEST_PATH = 890
_CHUNK = 1 << 20
_SHORTER, _OTHER = "it became shorter", "its content is another"
# Kept free on a disk beside what is written to it.
_SPARE_BYTES = 64 << 20


class DatasetFile(Struct, frozen=True, kw_only=True):
    """One file of a version: its path inside the dataset, and what its content must be."""

    path: str
    bytes: int
    sha256: str
    md5: str


def scan_folder(folder: Path) -> list[DatasetFile]:
    """Read every file of a folder; raises LaunchError for what cannot be a dataset."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        message = f"`{folder}` {what}"
        raise LaunchError(message, hint="launch data push DIR NAME")
    try:
        paths = sorted(_walk(folder))
        for path in paths:
            check_path(path)
        files = parallel(lambda path: _read_file(folder, path), paths)
    except OSError as error:
        message = f"`{error.filename}` cannot be read: {error.strerror}"
        raise LaunchError(message, hint="see who may read it, and push again") from None
    if not files:
        message = f"`{folder}` holds no file"
        raise LaunchError(message, hint="launch data prepare digits --to DIR makes a first one")
    return files


def _walk(folder: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for here, folders, names in os.walk(folder, onerror=fail):
        for name in folders:
            path = Path(here, name)
            if path.is_symlink():
                message = f"`{path}` is a link to a folder, which a dataset cannot hold"
                raise LaunchError(message, hint="put the folder itself there, or push its target")
        for name in names:
            path = Path(here, name)
            if not path.is_file():
                message = f"`{path}` is neither a file nor a folder"
                raise LaunchError(message, hint="take it away, and push again")
            yield path.relative_to(folder).as_posix()


def _read_file(folder: Path, path: str) -> DatasetFile:
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with (folder / path).open("rb") as source:
        while chunk := source.read(_CHUNK):
            sha256.update(chunk)
            md5.update(chunk)
            size += len(chunk)
    return DatasetFile(path=path, bytes=size, sha256=sha256.hexdigest(), md5=md5.hexdigest())


def check_path(path: str) -> None:
    """Raise LaunchError for a name that is not the same file on every machine and store."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        reason = "it is absolute or leads outside its folder"
    elif "\\" in path or not path.isprintable():
        reason = "it holds a backslash or a character that cannot be shown"
    elif len(path) > LONGEST_PATH:
        reason = "it is longer than a blob's name may be"
    else:
        return
    message = f"the file name {path!a} cannot be used in a dataset: {reason}"
    raise LaunchError(message, hint="rename the file, and push again")


def inside(folder: Path, path: str) -> Path:
    """Give the place of a dataset's file in a folder; raises LaunchError where it is outside."""
    check_path(path)
    target = folder / path
    # A link among the parents may lead out of the folder, too.
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        message = f"`{path}` would be written outside `{folder}`, through a link"
        raise LaunchError(message, hint="name an empty folder")
    return target


def digest_of(files: Iterable[DatasetFile]) -> str:
    """The digest of a version: SHA-256 over `SHA256 BYTES PATH`, a line a file, by path."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(f"{file.sha256} {file.bytes} {file.path}\n".encode())
    return digest.hexdigest()


class CheckedReader:
    """A file being sent; its last read fails where the content is no longer what was scanned.

    So a store never gets the end of a wrong content, and never keeps one.
    """

    def __init__(self, path: Path, expected: DatasetFile) -> None:
        self._path = path
        self._expected = expected
        self._sha256 = hashlib.sha256()
        self._left = expected.bytes
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise self._changed(error.strerror or "it is gone") from None

    def read(self, size: int = -1) -> bytes:
        """Give up to `size` bytes, never more than were scanned."""
        chunk = self._file.read(self._left if size < 0 else min(size, self._left))
        self._sha256.update(chunk)
        self._left -= len(chunk)
        if not chunk and self._left:
            raise self._changed(_SHORTER)
        if self._left == 0 and self._sha256.hexdigest() != self._expected.sha256:
            raise self._changed(_OTHER)
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _changed(self, how: str) -> LaunchError:
        message = f"`{self._path}` changed while it was being sent: {how}"
        return LaunchError(message, hint="push again when nobody writes to the folder")


def is_equal(path: Path, file: DatasetFile) -> bool:
    """Whether the file is there and has this content."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest() == file.sha256


def write_checked(target: Path, chunks: Iterable[bytes], file: DatasetFile, mode: int) -> None:
    """Write to a name of its own, compare, then rename: nobody sees half a file."""
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(prefix=".trainyard-", suffix=".part", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as sink:
            for chunk in chunks:
                digest.update(chunk)
                sink.write(chunk)
        if digest.hexdigest() != file.sha256:
            message = f"`{file.path}` came from the store with another content than was pushed"
            raise EnvironmentFailure(
                message, hint="pull again; push it again where that fails, too"
            )
        partial.chmod(mode)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_space(folder: Path, wanted: int, what: str) -> None:
    """Raise EnvironmentFailure where the folder's disk has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if wanted and wanted + _SPARE_BYTES > free:
        message = (
            f"{what} needs {size_text(wanted)} in `{folder}`, where {size_text(free)} are free"
        )
        raise EnvironmentFailure(message, hint="make room on that disk, or name a folder elsewhere")


@contextmanager
def disk_errors(path: Path) -> Generator[None]:
    """Turn the disk's errors (full, read-only, a file in the way) into EnvironmentFailure."""
    try:
        yield
    except OSError as error:
        message = f"`{error.filename or path}` cannot be written: {error.strerror}"
        raise EnvironmentFailure(
            message, hint="see who may write there, and what is free"
        ) from None
