"""A blob store in memory, with what a test may want to go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

from jobs.errors import EnvironmentFailure
from jobs.store import Blob, Source


class MemoryStore:
    """Behaves as one container; `sent` counts the files that were transferred to it.

    `before_create` runs before each conditional write, outside the lock: a test races there.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.sent: list[str] = []
        self.received: list[str] = []
        self.before_create: Callable[[str], None] = lambda _: None
        self._md5: dict[str, bytes] = {}
        self._lock = Lock()

    def list(self, prefix: str) -> Iterator[Blob]:
        """See BlobStore."""
        for name in sorted(self.blobs):
            if name.startswith(prefix):
                yield Blob(name=name, bytes=len(self.blobs[name]), md5=self._md5.get(name))

    def read(self, name: str) -> bytes | None:
        """See BlobStore."""
        return self.blobs.get(name)

    def create(self, name: str, content: bytes) -> bool:
        """See BlobStore."""
        self.before_create(name)
        with self._lock:
            if name in self.blobs:
                return False
            self.blobs[name] = content
            return True

    def send(self, name: str, source: Source, size: int, md5: bytes) -> None:
        """See BlobStore."""
        content = source.read(4)
        while len(content) < size:
            content += source.read(4)
        with self._lock:
            self.blobs[name] = content
            self._md5[name] = md5
            self.sent.append(name)

    def receive(self, name: str) -> Iterator[bytes]:
        """See BlobStore."""
        if name not in self.blobs:
            message = f"the store answered 404: {name}"
            raise EnvironmentFailure(message)
        with self._lock:
            self.received.append(name)
        content = self.blobs[name]
        yield from (content[start : start + 3] for start in range(0, len(content), 3))
