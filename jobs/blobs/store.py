"""The environment's blob store: lists, reads, creates, sends and receives blobs.

The bytes go over the wire by azure-storage-blob (azure_store.py). A local store that has died is started again first,
by infra's own program, as a process.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from jobs.blobs.authority import Identity, SasFile, SharedKey, check_store
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container, is_loopback
from jobs.blobs.credentials import our_tokens
from jobs.blobs.files import BLOCK_BYTES, Blob, Copy, Incoming, Moved, Origin, Outgoing
from jobs.blobs.refusals import FIREWALL_HINT, StoreError, behind_firewall, explain_store
from jobs.contracts.errors import EnvironmentFailure, LaunchError, Refused
from jobs.contracts.spec import Environment, Storage
from jobs.host import console
from jobs.host.environment_file import known_environment
from jobs.host.project import project_root, require_trusted
from jobs.host.structs import prepared

__all__ = [
    "BLOCK_BYTES",
    "Blob",
    "BlobStore",
    "Copy",
    "Incoming",
    "Moved",
    "Origin",
    "Outgoing",
    "open_data_store",
    "open_runs_store",
]

KEY_FILE = "account.key"
DATA_ROLE = "az login, with an identity that has the role Storage Blob Data Contributor"


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

    def read_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> bytes | None:
        """Give these bytes (`end` is not among them), fewer at the blob's end.

        None where there is no such blob or range, or not of this version.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete many; one that is gone already is fine."""
        ...

    def copy(self, copies: Iterable[Copy], moved: Moved, *, origin: Origin | None = None) -> None:
        """Copy blobs inside the store, or from `origin`, over blobs of the same names; consumes lazily.

        `moved` hears of those that were made. A blob that is gone is left out, and so are all
        from the first that the store refuses: list and send what is missing.
        """
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
        self,
        files: Iterable[Incoming],
        moved: Moved,
        *,
        max_bytes_per_s: int | None = None,
        arrived: Callable[[Incoming], None] = lambda _: None,
    ) -> None:
        """Write blobs to files, each checked before it gets its name; makes their folders.

        `arrived` is told of each file that has its name: a blob may be left out (see Incoming).
        Consumes `files` lazily, calls `moved` from the calling thread. After a kill the blocks
        that arrived are not received again.
        """
        ...

    def as_origin(self, valid_s: int) -> Origin | None:
        """Let other stores copy from this one for some time; None where no service can."""
        ...

    def read_only_sas(self, prefix: str, valid_s: int) -> str:
        """Give a token that allows its holder to read and list the container until it expires."""
        ...


def open_data_store(environment: Environment, *, sas_file: Path | None = None) -> BlobStore:
    """Open the container `data`; raises EnvironmentFailure where it cannot be reached.

    `sas_file` holds a SAS of that container, which then stands in for key and identity.
    """
    return _open(environment, environment.storage.containers.data, sas_file)


def open_runs_store(environment: Environment) -> BlobStore:
    """Open the container `runs`; raises EnvironmentFailure where it cannot be reached."""
    return _open(environment, environment.storage.containers.runs, None)


def peek_data_store(environment: Environment) -> BlobStore | None:
    """Open the container `data` of a local store that is up; starts nothing, None for any other."""
    storage = environment.storage
    if storage.folder is None or not _is_up(storage):
        return None
    return _connect(environment, storage.containers.data, None)


def _open(environment: Environment, name: str, sas_file: Path | None) -> BlobStore:
    _revive(environment)
    return _connect(environment, name, sas_file)


def _connect(environment: Environment, name: str, sas_file: Path | None) -> BlobStore:
    storage = environment.storage
    if sas_file is not None:
        authority = _sas(sas_file)
    else:
        authority = _local_key(environment) if storage.folder else Identity(our_tokens())
    url = f"{storage.blob_endpoint.rstrip('/')}/{name}"
    container = Container(url, authority, waiting=partial(_say_waiting, storage.blob_endpoint))
    if sas_file is not None and not (environment.workspace.is_folder and container.is_loopback):
        check_store(url, f"the SAS in `{sas_file}`")
    return AzureStore(container, partial(_explain, environment, name, sas_file))


def _explain(
    environment: Environment, name: str, sas_file: Path | None, error: StoreError
) -> EnvironmentFailure:
    """Turn a store's error into one with a cause and a hint."""
    where = environment.storage.blob_endpoint
    stack = environment.stack
    if error.code == "ContainerNotFound":
        message = f"the store {where} has no container `{name}`"
        return EnvironmentFailure(message, hint=f"pulumi up -s {stack}")
    is_local = bool(environment.storage.folder)
    check = f"launch env check -s {stack}"
    of_sas = f"check that the SAS in `{sas_file}` is for this container and allows this"
    if error.code == "AuthorizationFailure" and sas_file is not None and not is_local:
        message = f"{behind_firewall(where)}, or the SAS does not allow this"
        return EnvironmentFailure(message, hint=f"{FIREWALL_HINT}; {of_sas}")
    role = check if is_local else DATA_ROLE
    if sas_file is not None:
        role = of_sas
    return explain_store(error, where, role=role, check=check, is_local=is_local)


def _say_waiting(endpoint: str, reason: str) -> None:
    # A line that moves is written anew by whoever moves it.
    start = "\r\x1b[K" if console.is_terminal(sys.stderr) else ""
    console.say(f"{start}waiting for the store {endpoint}: {reason}")


def _sas(path: Path) -> SasFile:
    given = SasFile(path)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        console.warn(f"`{path}` can be read by others; chmod 600 {path}")
    return given


def _local_key(environment: Environment) -> SharedKey:
    assert environment.storage.folder is not None
    path = Path(environment.storage.folder, KEY_FILE)
    try:
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        message = f"the store's key `{path}` cannot be read: {error.strerror}"
        raise EnvironmentFailure(message, hint=f"pulumi up -s {environment.stack}") from None
    return SharedKey(environment.storage.account, key)


def _revive(environment: Environment) -> None:
    """Start Azurite again where it does not serve its endpoint, and the store is our project's."""
    storage = environment.storage
    if storage.folder is None or _is_up(storage):
        return
    import subprocess

    tools = _tools_of_own(environment)
    # -P: a folder `infra` where `launch` was typed must not stand in for ours.
    program = [sys.executable, "-P", "-m", "infra.local.azurite_server"]
    program += ["start", storage.folder, tools.node, tools.azurite]
    done = subprocess.run(
        program,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("error: ") or f"exit code {done.returncode}"
        message = f"the local store is down and cannot be started: {said}"
        hint = f"launch env repair -s {environment.stack}, then pulumi up -s {environment.stack}"
        raise EnvironmentFailure(message, hint=hint)


class _Tools(Struct, frozen=True, kw_only=True):
    """Node and Azurite as set-up wrote them down."""

    node: str
    azurite: str


def _tools_of_own(environment: Environment) -> _Tools:
    """Give the project's own programs for its own store; an environment's file starts nothing.

    Raises EnvironmentFailure for a store that no stack of the project has made, Refused where the
    project is not trusted.
    """
    try:
        known = known_environment(environment.stack)
    except Refused:
        raise
    except LaunchError:  # `launch` came without a project
        known = None
    if known is None or known.storage != environment.storage:
        message = (
            f"the local store {environment.storage.blob_endpoint} is down, and is not of a stack "
            "of this project, which would be started again"
        )
        raise EnvironmentFailure(message, hint=f"pulumi up -s {environment.stack}")
    root = project_root()
    require_trusted(root)
    file = root / ".trainyard" / "tools.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=prepared(_Tools))
    except (OSError, msgspec.DecodeError) as error:
        message = f"the local store is down, and {file} does not say what it runs on: {error}"
        raise EnvironmentFailure(message, hint="make setup") from error


def _is_up(storage: Storage) -> bool:
    """Tell whether the local store of `storage` serves; one beyond loopback is taken to be up.

    Raises EnvironmentFailure where another user of this machine holds its port.
    """
    parts = urlsplit(storage.blob_endpoint)
    host = parts.hostname or ""
    if storage.folder is None or not is_loopback(host):
        return True
    from jobs.host.local_server import (
        is_serving,  # it reads /proc, and this module serves Windows, too
    )

    port = parts.port or (443 if parts.scheme == "https" else 80)
    return is_serving(Path(storage.folder), ("127.0.0.1" if host == "localhost" else host, port))
