"""Shows the part of a container below a prefix as a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from jobs.blobs.files import Blob, Copy, Incoming, Moved, Origin, Outgoing
from jobs.blobs.store import BlobStore


class Below:
    """The blobs of `store` whose names begin with `prefix`, under the rest of their names."""

    def __init__(self, store: BlobStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def full_name(self, name: str) -> str:
        """Give the name that a blob has in its container."""
        return self._prefix + name

    def list(self, prefix: str) -> Iterator[Blob]:
        """See BlobStore."""
        for blob in self._store.list(self._prefix + prefix):
            yield replace(blob, name=blob.name.removeprefix(self._prefix))

    def read(self, name: str) -> bytes | None:
        """See BlobStore."""
        return self._store.read(self._prefix + name)

    def create(self, name: str, content: bytes) -> bool:
        """See BlobStore."""
        return self._store.create(self._prefix + name, content)

    def content(self, name: str) -> Iterator[bytes]:
        """See BlobStore."""
        return self._store.content(self._prefix + name)

    def read_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> bytes | None:
        """See BlobStore."""
        return self._store.read_range(self._prefix + name, start, end, etag=etag)

    def delete(self, names: Iterable[str]) -> None:
        """See BlobStore."""
        self._store.delete(self._prefix + name for name in names)

    def copy(self, copies: Iterable[Copy], moved: Moved, *, origin: Origin | None = None) -> None:
        """See BlobStore; sources in another container are named as its `origin` has them."""
        self._store.copy(
            (
                replace(
                    copy,
                    name=self._prefix + copy.name,
                    source=copy.source if origin else self._prefix + copy.source,
                )
                for copy in copies
            ),
            moved,
            origin=origin,
        )

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        self._store.send(
            (replace(file, name=self._prefix + file.name) for file in files),
            moved,
            max_bytes_per_s=max_bytes_per_s,
        )

    def receive(
        self,
        files: Iterable[Incoming],
        moved: Moved,
        *,
        max_bytes_per_s: int | None = None,
        arrived: Callable[[Incoming], None] = lambda _: None,
    ) -> None:
        """See BlobStore."""
        self._store.receive(
            (replace(file, name=self._prefix + file.name) for file in files),
            moved,
            max_bytes_per_s=max_bytes_per_s,
            arrived=lambda file: arrived(replace(file, name=file.name.removeprefix(self._prefix))),
        )

    def as_origin(self, valid_s: int) -> Origin | None:
        """See BlobStore."""
        origin = self._store.as_origin(valid_s)
        return origin and replace(origin, url=f"{origin.url}/{self._prefix.rstrip('/')}")

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """See BlobStore."""
        return self._store.read_only_sas(self._prefix + prefix, valid_s)
