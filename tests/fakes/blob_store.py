"""A blob store in memory, with what a test may want to go wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock

from jobs.blobs.store import BLOCK_BYTES, Blob, Copy, Incoming, Moved, Origin, Outgoing
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from tests.fakes.http_blobs import etag_of


class MemoryStore:
    """Behaves as one container; counts files `sent`, `received` and `copied`, and requests.

    `before_create`, `before_send`, `before_copy` and `before_receive` run before each conditional
    write and each file, outside the lock: a test races there. `most_copies` are made, and no more. `forgets` are
    files that it takes once and does not keep, as Azurite does when it is killed. `order` is that
    of its listings. A store with a `url` lets those copy from it that have it among their `origins`.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.sent: list[str] = []
        self.received: list[str] = []
        self.copied: list[str] = []
        self.requests: list[str] = []
        self.before_create: Callable[[str], None] = lambda _: None
        self.before_send: Callable[[str], None] = lambda _: None
        self.before_copy: Callable[[str], None] = lambda _: None
        self.before_receive: Callable[[str], None] = lambda _: None
        self.url: str | None = None
        self.origins: dict[str, MemoryStore] = {}
        self.most_copies: int | None = None
        self.forgets: set[str] = set()
        self.order: Callable[[str], object] = lambda name: name
        self.max_bytes_per_s: int | None = None
        self._md5: dict[str, bytes] = {}
        self._versions = Counter[str]()
        self._num_writes = 0
        self._lock = Lock()
        self._kill: tuple[int, type[BaseException]] | None = None

    def kill_before_write(self, number: int | None, how: type[BaseException]) -> None:
        """Let the write (or deletion) of that number from now on raise; None for none."""
        self._kill = None if number is None else (number, how)

    def _write(self) -> None:
        if self._kill is not None:
            left, how = self._kill
            if left == 0:
                raise how
            self._kill = left - 1, how

    def _keep(self, name: str, content: bytes, md5: bytes | None) -> None:
        self.blobs[name] = content
        self._num_writes += 1
        self._versions[name] = self._num_writes
        if md5 is not None:
            self._md5[name] = md5

    def _etag(self, name: str, content: bytes) -> str:
        return etag_of(content, self._versions[name])

    def list(self, prefix: str) -> Iterator[Blob]:
        """See BlobStore."""
        self.requests.append(f"list {prefix}")
        with self._lock:
            names = sorted((n for n in self.blobs if n.startswith(prefix)), key=self.order)
        for name in names:
            content = self.blobs.get(name)
            if content is not None:
                etag = self._etag(name, content)
                yield Blob(name=name, bytes=len(content), md5=self._md5.get(name), etag=etag)

    def read(self, name: str) -> bytes | None:
        """See BlobStore."""
        self.requests.append(f"read {name}")
        return self.blobs.get(name)

    def create(self, name: str, content: bytes) -> bool:
        """See BlobStore."""
        self.requests.append(f"create {name}")
        self._write()
        self.before_create(name)
        with self._lock:
            if name in self.blobs:
                return False
            self._keep(name, content, hashlib.md5(content).digest())
            return True

    def content(self, name: str) -> Iterator[bytes]:
        """See BlobStore."""
        if name not in self.blobs:
            message = f"there is no blob `{name}`"
            raise NotFound(message)
        content = self.blobs[name]
        yield from (content[start : start + 50] for start in range(0, len(content), 50))

    def read_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> bytes | None:
        """See BlobStore."""
        self.requests.append(f"range {name} {start} {end}")
        content = self.blobs.get(name)
        if content is None or start >= len(content):
            return None
        if etag not in (None, self._etag(name, content)):
            return None
        return content[start:end]

    def delete(self, names: Iterable[str]) -> None:
        """See BlobStore."""
        for name in names:
            self.requests.append(f"delete {name}")
            self._write()
            with self._lock:
                self.blobs.pop(name, None)

    def copy(self, copies: Iterable[Copy], moved: Moved, *, origin: Origin | None = None) -> None:
        """See BlobStore."""
        theirs = self if origin is None else self.origins[origin.url]
        for copy in copies:
            self.before_copy(copy.name)
            if self.most_copies is not None and len(self.copied) >= self.most_copies:
                return
            self._write()
            with self._lock:
                content = theirs.blobs.get(copy.source)
                if content is None:
                    continue
                # Inside of a store nothing is compared.
                found = hashlib.md5(content).digest()
                if origin is not None and copy.md5 not in (None, found):
                    continue
                assert len(content) == copy.bytes
                self.copied.append(copy.name)
                if copy.name in self.forgets:
                    self.forgets.remove(copy.name)
                else:
                    self._keep(copy.name, content, theirs._md5.get(copy.source))
            moved(1, copy.bytes)

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        self.max_bytes_per_s = max_bytes_per_s
        for file in files:
            self.before_send(file.name)
            self._write()
            content = file.path.read_bytes()
            if (len(content), hashlib.md5(content).digest()) != (file.bytes, file.md5):
                message = f"`{file.path}` changed while it was being sent"
                raise LaunchError(message, hint="push again when no program writes to the folder")
            blocks = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
            md5s = tuple(hashlib.md5(block).digest() for block in blocks)
            assert file.block_md5s == (md5s if len(blocks) > 1 else ())
            with self._lock:
                if not file.name.startswith("_datasets/"):
                    self.sent.append(file.name)
                if file.name in self.forgets:
                    self.forgets.remove(file.name)
                else:
                    self._keep(file.name, content, file.md5)
            moved(1, file.bytes)

    def receive(
        self,
        files: Iterable[Incoming],
        moved: Moved,
        *,
        max_bytes_per_s: int | None = None,
        arrived: Callable[[Incoming], None] = lambda _: None,
    ) -> None:
        """See BlobStore."""
        self.max_bytes_per_s = max_bytes_per_s
        for file in files:
            self.requests.append(f"receive {file.name}")
            self.before_receive(file.name)
            content = self.blobs.get(file.name)
            found = None if content is None else self._etag(file.name, content)
            if file.etag and found != file.etag:
                continue
            if content is None:
                message = f"the store answered 404: {file.name}"
                raise EnvironmentFailure(message)
            digest = file.new_digest()
            digest.update(content)
            if how := file.fault(digest):
                message = f"`{file.path}` came from the store with another content: {how}"
                raise EnvironmentFailure(message)
            with self._lock:
                self.received.append(file.name)
            file.path.parent.mkdir(parents=True, exist_ok=True)
            partial = file.path.with_name(f".trainyard-{len(self.received)}.part")
            partial.write_bytes(content)
            partial.chmod(file.mode)
            partial.replace(file.path)
            moved(1, file.bytes)
            arrived(file)

    def as_origin(self, valid_s: int) -> Origin | None:
        """See BlobStore."""
        del valid_s
        return None if self.url is None else Origin(url=self.url, sas="sig=of-memory")

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """See BlobStore; a token that opens nothing."""
        return f"sp=rl&sr=c&sig=of-{prefix}-{valid_s}"
