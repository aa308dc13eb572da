"""Lists of a dataset's files that lie on disk, a line a file: however many, few are in memory."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.blobs.store import BLOCK_BYTES, BlobStore, Outgoing
from jobs.contracts.errors import EnvironmentFailure, NotFound
from jobs.contracts.spec import DatasetVersion
from jobs.datasets.paths import DatasetFile, check_path, disk_errors
from jobs.datasets.scan import digest_blocks
from jobs.datasets.scan_cache import SMALL_CACHE, WORK_PREFIX, cache_folder, lock_work, sweep
from jobs.host.structs import prepared

_READ_BYTES = 1 << 20
# What is encoded or decoded at a time.
_BATCH, _PIECE_BYTES = 500, 100_000


class FileList(Struct, frozen=True, kw_only=True):
    """A list on disk with what it comes to; `digest` is that of docs/data.md."""

    path: Path
    digest: str
    files: int
    bytes: int

    def __iter__(self) -> Iterator[DatasetFile]:
        decode = msgspec.json.Decoder(prepared(DatasetFile)).decode_lines
        with self.path.open("rb") as file:
            while lines := file.readlines(_PIECE_BYTES):
                yield from decode(b"".join(lines))


def write_list(path: Path, files: Iterable[DatasetFile]) -> FileList:
    """Write files, which come by path, one a line."""
    encode, digest, left = msgspec.json.Encoder().encode_lines, Digest(), iter(files)
    with disk_errors(path), path.open("wb") as lines:
        while batch := list(islice(left, _BATCH)):
            digest.add(batch)
            lines.write(encode(batch))
    return digest.list(path)


class Digest:
    """Sums a list up: SHA-256 over `SHA256 BYTES PATH`, a line a file, by path."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._files = 0
        self._bytes = 0

    def add(self, files: Sequence[DatasetFile]) -> None:
        """Take the next files; files come by path."""
        lines = [f"{file.sha256} {file.bytes} {file.path}\n" for file in files]
        self._sha256.update("".join(lines).encode())
        self._files += len(files)
        self._bytes += sum(file.bytes for file in files)

    def list(self, path: Path) -> FileList:
        """Give the list that was added, at its place."""
        return FileList(
            path=path, digest=self._sha256.hexdigest(), files=self._files, bytes=self._bytes
        )


def fetch_list(store: BlobStore, dataset: DatasetVersion, folder: Path) -> FileList:
    """Bring a version's list into a folder, and check every line of it.

    Raises EnvironmentFailure for one that is missing or not the version's, LaunchError for a
    name that would leave the folder it is pulled to.
    """
    blob = list_name(dataset.name, dataset.digest)
    # Not by the version's name, which nobody has checked who passed it on.
    with (
        disk_errors(folder),
        tempfile.NamedTemporaryFile(dir=folder, suffix=".jsonl", delete=False) as sink,
    ):
        path = Path(sink.name)
        for chunk in _content(store, blob, dataset):
            sink.write(chunk)
    digest = Digest()
    fetched = FileList(path=path, digest="", files=0, bytes=0)
    before = ""
    try:
        for file in fetched:
            check_path(file.path)
            if file.path <= before:
                message = f"`{blob}` is not sorted by path"
                raise EnvironmentFailure(message, hint=_hint(dataset))
            before = file.path
            bytes.fromhex(file.md5)  # which the digest does not cover
            digest.add([file])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"`{blob}` cannot be read: {error}"
        raise EnvironmentFailure(message, hint=_hint(dataset)) from None
    fetched = digest.list(path)
    if fetched.digest != dataset.digest:
        message = f"`{blob}` does not have the digest of `{dataset.ref}`"
        raise EnvironmentFailure(message, hint=_hint(dataset))
    return fetched


def send_list(store: BlobStore, name: str, files: FileList) -> None:
    """Send a version's list; equal digests give equal bytes, whoever sends them."""
    with files.path.open("rb") as source:
        _, md5, block_md5s, num_bytes = digest_blocks(iter(lambda: source.read(_READ_BYTES), b""))
    blob = list_name(name, files.digest)
    outgoing = Outgoing(
        name=blob,
        path=files.path,
        bytes=num_bytes,
        md5=md5,
        block_md5s=split_md5s(block_md5s) if num_bytes > BLOCK_BYTES else (),
    )
    store.send([outgoing], lambda _files, _bytes, _found=0: None)


def split_md5s(joined: bytes) -> tuple[bytes, ...]:
    """Split MD5s of blocks that were joined."""
    return tuple(joined[start : start + 16] for start in range(0, len(joined), 16))


def list_name(name: str, digest: str) -> str:
    """Name the blob of a version's list."""
    return f"_datasets/{name}/{digest}.files.jsonl"


@contextmanager
def work_folder() -> Generator[Path]:
    """Make a folder for the lists of one command; on a disk, since `/tmp` may be memory."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweep()
        made = tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=cache)
    except OSError:
        made = tempfile.TemporaryDirectory(prefix="trainyard-")
    with made as folder, lock_work(Path(folder)):
        yield Path(folder)


@contextmanager
def work_table(path: Path, schema: str) -> Generator[sqlite3.Connection]:
    """Make a table on disk for as long as the context; its errors are those of the disk."""
    path.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {SMALL_CACHE}; {schema}; BEGIN"
            )
            yield database
    except sqlite3.Error as error:
        message = f"`{path}` cannot be written: {error}"
        raise EnvironmentFailure(message, hint="see what is free on that disk") from None


def _content(store: BlobStore, blob: str, dataset: DatasetVersion) -> Iterator[bytes]:
    try:
        yield from store.content(blob)
    except NotFound:
        message = f"the list of files of `{dataset.ref}` is missing: `{blob}`"
        raise EnvironmentFailure(message, hint=_hint(dataset)) from None


def _hint(dataset: DatasetVersion) -> str:
    # A push alone may say that the content is there already.
    return f"launch data rm {dataset.ref}, then push it again"
