"""The environment's blob store: lists, reads, creates, sends and receives blobs.

The only module that loads azure-storage-blob. A local store that has died is started again
first, by infra's own program, as a process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast
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


class Source(Protocol):
    """What a blob's content is read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Give up to `size` bytes; empty at the end."""
        ...


class BlobStore(Protocol):
    """One container. Every method blocks on the network and raises EnvironmentFailure."""

    def list(self, prefix: str) -> Iterator[Blob]:
        """Yield the blobs whose names begin so, in the order of names."""
        ...

    def read(self, name: str) -> bytes | None:
        """Give a small blob whole, or None where there is none."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a small blob; False, and nothing written, where that name is taken."""
        ...

    def send(self, name: str, source: Source, size: int, md5: bytes) -> None:
        """Write `size` bytes, checked on their way; over whatever had that name.

        Where reading raises, nothing is left under that name.
        """
        ...

    def receive(self, name: str) -> Iterator[bytes]:
        """Yield a blob's content in chunks."""
        ...


def open_data_store(environment: Environment) -> BlobStore:
    """Open the container `data`; raises EnvironmentFailure where it cannot be reached."""
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
                yield Blob(name=found.name, bytes=found.size, md5=bytes(md5) if md5 else None)

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

    def send(self, name: str, source: Source, size: int, md5: bytes) -> None:
        """See BlobStore; the MD5 is kept with the blob, and that of each request is checked."""
        from azure.storage.blob import ContentSettings

        with self._explained():
            # Read to its end before the one request, or before the list of blocks is committed:
            # a source that fails leaves no blob.
            self._client.upload_blob(
                name,
                cast("IO[bytes]", source),
                length=size,
                overwrite=True,
                validate_content=True,
                content_settings=ContentSettings(content_md5=bytearray(md5)),
            )

    def receive(self, name: str) -> Iterator[bytes]:
        """See BlobStore."""
        with self._explained():
            yield from self._client.download_blob(name).chunks()

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
