"""The environment's blob store: lists, reads, creates, sends and receives blobs.

The only module that loads azure-storage-blob. A local store that has died is started again
first, by infra's own program, as a process.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from jobs.errors import EnvironmentFailure
from jobs.spec import Environment

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

KEY_FILE = "account.key"
# What one transfer holds in memory.
BLOCK_BYTES = 8 << 20
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60


class Blob(Struct, frozen=True, kw_only=True):
    """What a listing says of one blob; `md5` is None where it was written without one."""

    name: str
    bytes: int
    md5: bytes | None
    etag: str


class Outgoing(Struct, frozen=True, kw_only=True):
    """A file to send; `block_md5s` of each BLOCK_BYTES, empty where it fits into one block."""

    name: str
    path: Path
    bytes: int
    md5: bytes
    block_md5s: tuple[bytes, ...] = ()


class Incoming(Struct, frozen=True, kw_only=True):
    """A blob to write to `path`; its content must have this size and SHA-256 (hex)."""

    name: str
    path: Path
    bytes: int
    sha256: str
    mode: int


# Told how many files were finished, and bytes moved, since the last call.
Moved = Callable[[int, int], None]


class Source(Protocol):
    """What a blob's content is read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Give up to `size` bytes; empty at the end."""
        ...


class BlobStore(Protocol):
    """One container. Every method blocks on the network and raises EnvironmentFailure."""

    def list(self, prefix: str) -> Iterator[Blob]:
        """Yield the blobs whose names begin so, in the order of names; one page in memory."""
        ...

    def read(self, name: str) -> bytes | None:
        """Give a small blob whole, or None where there is none."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a small blob; False, and nothing written, where that name is taken."""
        ...

    def content(self, name: str) -> Iterator[bytes]:
        """Yield one blob's content in chunks; raises NotFound where there is none."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete many; one that is gone already is fine."""
        ...

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """Write files over whatever had their names, each checked by its MD5 on the way.

        Consumes `files` lazily, calls `moved` from the calling thread. After a kill the blocks
        that arrived are not sent again. Raises LaunchError for a file that changed.
        """
        ...

    def receive(
        self, files: Iterable[Incoming], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """Write blobs to files, each checked before it gets its name; makes their folders.

        Consumes `files` lazily, calls `moved` from the calling thread. After a kill the blocks
        that arrived are not received again.
        """
        ...

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """Give a token that lets its holder read and list the container for so long."""
        ...


def open_data_store(environment: Environment, *, sas_file: Path | None = None) -> BlobStore:
    """Open the container `data`; raises EnvironmentFailure where it cannot be reached."""
    del sas_file
    storage = environment.storage
    if environment.engine == "local":
        _revive(environment)
    credential = _local_key(environment) if storage.folder else _identity()
    try:
        from azure.storage.blob import ContainerClient
    except ImportError as error:
        message = f"azure-storage-blob cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint="uv sync --extra azure") from None
    client = ContainerClient(
        storage.blob_endpoint,
        storage.containers.data,
        credential=credential,
        connection_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retry_total=4,
        # The SDK's first pause is 15 s, which a person takes for a hang.
        initial_backoff=1,
        increment_base=2,
        max_single_put_size=BLOCK_BYTES,
        max_block_size=BLOCK_BYTES,
    )
    return AzureStore(client, environment)


class AzureStore:
    """A container of Azure Storage, or of Azurite."""

    def __init__(self, client: ContainerClient, environment: Environment) -> None:
        self._client = client
        self._environment = environment

    def list(self, prefix: str) -> Iterator[Blob]:
        """See BlobStore; asks for one page at a time."""
        with self._explained():
            for found in self._client.list_blobs(name_starts_with=prefix):
                md5 = found.content_settings.content_md5
                yield Blob(
                    name=found.name,
                    bytes=found.size,
                    md5=bytes(md5) if md5 else None,
                    etag=found.etag.strip('"'),
                )

    def read(self, name: str) -> bytes | None:
        """See BlobStore."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._explained():
            try:
                return self._client.download_blob(name).readall()
            except ResourceNotFoundError as error:
                if _code(error) == "ContainerNotFound":
                    raise
                return None

    def create(self, name: str, content: bytes) -> bool:
        """See BlobStore; one request with If-None-Match."""
        from azure.core.exceptions import ResourceExistsError

        with self._explained():
            try:
                self._client.upload_blob(name, content, overwrite=False, validate_content=True)
            except ResourceExistsError:
                return False
        return True

    def content(self, name: str) -> Iterator[bytes]:
        """See BlobStore."""
        with self._explained():
            yield from self._client.download_blob(name).chunks()

    def delete(self, names: Iterable[str]) -> None:
        """See BlobStore."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._explained():
            for name in names:
                with suppress(ResourceNotFoundError):
                    self._client.delete_blob(name)

    def send(
        self, files: Iterable[Outgoing], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        from azure.storage.blob import ContentSettings

        del max_bytes_per_s
        with self._explained():
            for file in files:
                with file.path.open("rb") as source:
                    self._client.upload_blob(
                        file.name,
                        source,
                        length=file.bytes,
                        overwrite=True,
                        validate_content=True,
                        content_settings=ContentSettings(content_md5=bytearray(file.md5)),
                    )
                moved(1, file.bytes)

    def receive(
        self, files: Iterable[Incoming], moved: Moved, *, max_bytes_per_s: int | None = None
    ) -> None:
        """See BlobStore."""
        del max_bytes_per_s
        with self._explained():
            for file in files:
                file.path.parent.mkdir(parents=True, exist_ok=True)
                partial = file.path.with_name(f".trainyard-{os.getpid()}.part")
                with partial.open("wb") as sink:
                    for chunk in self._client.download_blob(file.name).chunks():
                        sink.write(chunk)
                with partial.open("rb") as source:
                    digest = hashlib.file_digest(source, "sha256").hexdigest()
                if digest != file.sha256:
                    partial.unlink()
                    message = f"`{file.path}` came from the store with another content"
                    raise EnvironmentFailure(message, hint="pull again")
                partial.chmod(file.mode)
                partial.replace(file.path)
                moved(1, file.bytes)

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """See BlobStore."""
        raise NotImplementedError

    @contextmanager
    def _explained(self) -> Generator[None]:
        from azure.core.exceptions import AzureError

        try:
            yield
        except AzureError as error:
            raise _explain(error, self._environment) from error


def _explain(error: Any, environment: Environment) -> EnvironmentFailure:
    """Say what an SDK's error means here, and what to do about it."""
    where = environment.storage.blob_endpoint
    stack = environment.stack
    status = getattr(error, "status_code", None)
    code = _code(error)
    if status is None:
        message = f"the store {where} cannot be reached: {_first_line(error)}"
        return EnvironmentFailure(message, hint=f"launch env check -s {stack}")
    if code == "ContainerNotFound":
        message = f"the store {where} has no container `{environment.storage.containers.data}`"
        return EnvironmentFailure(message, hint=f"pulumi up -s {stack}")
    if status == 403 and code == "AuthorizationFailure":
        message = f"the firewall of the store {where} does not let this machine's address in"
        hint = "connect by VPN or peering, or have the address added to `allowed_ips` of the stack"
        return EnvironmentFailure(message, hint=hint)
    if status in (401, 403):
        message = f"the store {where} refuses us: {code or _first_line(error)}"
        hint = (
            f"launch env check -s {stack}"
            if environment.storage.folder
            else "az login, with an identity that has the role Storage Blob Data Contributor"
        )
        return EnvironmentFailure(message, hint=hint)
    message = f"the store {where} answered {status}: {code or _first_line(error)}"
    return EnvironmentFailure(message, hint=f"launch env check -s {stack}")


def _code(error: Any) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _identity() -> Any:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        message = f"azure-identity cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint="uv sync --extra azure") from None
    return DefaultAzureCredential()


def _local_key(environment: Environment) -> dict[str, str]:
    assert environment.storage.folder is not None
    path = Path(environment.storage.folder, KEY_FILE)
    try:
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        message = f"the store's key `{path}` cannot be read: {error.strerror}"
        raise EnvironmentFailure(message, hint=f"pulumi up -s {environment.stack}") from None
    return {"account_name": environment.storage.account, "account_key": key}


def _revive(environment: Environment) -> None:
    """Start Azurite again where nothing listens at its endpoint."""
    storage = environment.storage
    if storage.folder is None or _listens(storage.blob_endpoint):
        return
    # -P: a folder `infra` where `launch` was typed must not stand in for ours.
    program = [sys.executable, "-P", "-m", "infra.local.azurite_server", "start", storage.folder]
    done = subprocess.run(
        program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("error: ") or f"exit code {done.returncode}"
        message = f"the local store is down and does not start: {said}"
        hint = f"launch env repair -s {environment.stack}, then pulumi up -s {environment.stack}"
        raise EnvironmentFailure(message, hint=hint)


def _listens(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5):
            return True
    except OSError:
        return False
