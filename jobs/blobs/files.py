"""Describe blobs and their local files; count moved files and bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

from msgspec import Struct

# Larger files go in blocks of this size.
BLOCK_BYTES = 8 << 20


class Blob(Struct, frozen=True, kw_only=True):
    """A blob as a listing names it; `md5` is None if it was written without one."""

    name: str
    bytes: int
    md5: bytes | None
    etag: str


class Copy(Struct, frozen=True, kw_only=True):
    """A blob to be made of another one, of `bytes` bytes; the service compares an `md5`."""

    source: str
    name: str
    bytes: int
    md5: bytes | None = None


class Origin(Struct, frozen=True, kw_only=True):
    """Another container on Azure, which `sas` allows to read; a SAS is a secret."""

    url: str
    sas: str


class Moved(Protocol):
    """Told how many files and bytes are over since the last call.

    `num_found` of the bytes were there already, from an earlier try: no rate comes of them.
    """

    def __call__(self, files: int, num_bytes: int, num_found: int = 0, /) -> None:
        """Take the counts of files and bytes that were moved, and of those found in place."""
        ...


class Outgoing(Struct, frozen=True, kw_only=True):
    """A file to send; `block_md5s` of each BLOCK_BYTES, empty where it fits into one block."""

    name: str
    path: Path
    bytes: int
    md5: bytes
    block_md5s: tuple[bytes, ...] = ()


def outgoing(name: str, path: Path) -> tuple[Outgoing, bytes]:
    """Read a file that is to become the blob `name`; gives its SHA-256, too. Raises OSError."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    blocks: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            sha256.update(block)
            md5.update(block)
            blocks.append(hashlib.md5(block, usedforsecurity=False).digest())
            size += len(block)
    of_blocks = tuple(blocks) if len(blocks) > 1 else ()
    made = Outgoing(name=name, path=path, bytes=size, md5=md5.digest(), block_md5s=of_blocks)
    return made, sha256.digest()


class Digest(Protocol):
    """A digest of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""
        ...

    def digest(self) -> bytes:
        """Give the digest of all that was taken."""
        ...

    def hexdigest(self) -> str:
        """Give the digest in hex."""
        ...


class Incoming(Struct, frozen=True, kw_only=True):
    """A blob to write to `path`; its content must have this size and SHA-256 (hex).

    Where its SHA-256 is not known it is of the version `etag`, and has the MD5 that is given. It
    is left out where the store has another version by now, or none.
    """

    name: str
    path: Path
    bytes: int
    mode: int
    sha256: str = ""
    etag: str = ""
    md5: bytes | None = None

    def new_digest(self) -> Digest:
        """Begin the digest that tells whether a content is the right one."""
        return hashlib.sha256() if self.sha256 else hashlib.md5(usedforsecurity=False)

    def fault(self, digest: Digest) -> str:
        """Say what is wrong with a content of this digest; empty where nothing is."""
        found = digest.hexdigest()
        if self.sha256:
            return "" if found == self.sha256 else f"its SHA-256 is {found}"
        return f"its MD5 is {found}" if self.md5 not in (None, digest.digest()) else ""


class Tally:
    """Counts of moved files and bytes since the last report."""

    def __init__(self, moved: Moved) -> None:
        self._moved = moved
        self._files = 0
        self._bytes = 0
        self._found = 0

    def add(self, files: int, count: int) -> None:
        """Count files and bytes that were moved."""
        self._files += files
        self._bytes += count

    def find(self, count: int) -> None:
        """Count bytes that an earlier try moved."""
        self._bytes += count
        self._found += count

    def tell(self) -> None:
        """Report the counts since the last report, if there are any."""
        if self._files or self._bytes:
            files, count, found = self._files, self._bytes, self._found
            self._files = self._bytes = self._found = 0
            self._moved(files, count, found)
