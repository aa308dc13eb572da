"""Brings what a job writes to the storage while it runs: logs by appending, folders by copying."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from azure.core.exceptions import AzureError

from tests.fakes.azureml.blobs import Blobs

ARTIFACTS = "azureml"  # the container of the datastore workspaceartifactstore
LARGEST_APPEND = 4 << 20


class Log:
    """One append blob and the file that grows into it."""

    def __init__(self, blobs: Blobs, account: str, name: str, path: Path) -> None:
        self._client = blobs.open(account, ARTIFACTS).get_blob_client(name)
        self._folder = blobs.open(account, ARTIFACTS)
        self._name, self._path = name, path
        self._offset = 0
        self._is_there = False

    def ship(self) -> None:
        """Append what has come since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        if not self._is_there:
            self._client.create_append_blob()
            self._is_there = True
        for at in range(0, len(content), LARGEST_APPEND):
            self._client.append_block(content[at : at + LARGEST_APPEND])
        self._offset += len(content)

    def begin_anew(self, *, keep: int | None) -> None:
        """Go on in an empty log; `keep` what there was in a folder of that number, as a restart."""
        if not self._is_there:
            return
        if keep is not None:
            folder, _, name = self._name.rpartition("/")
            old = self._client.download_blob().readall()
            self._folder.upload_blob(f"{folder}/retry_{keep:03}/{name}", old, overwrite=True)
        self._client.create_append_blob()


@dataclass(kw_only=True)
class Mirror:
    """A folder whose files go to a prefix."""

    folder: Path
    account: str
    container: str
    prefix: str
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def ship(self, blobs: Blobs) -> None:
        """Put what is new or changed; take away what was put and is gone."""
        if not self.folder.is_dir():
            return
        found: dict[str, tuple[int, int]] = {}
        for path in self.folder.rglob("*"):
            try:
                status = path.stat()
                if path.is_file():
                    inner = path.relative_to(self.folder).as_posix()
                    found[inner] = (status.st_mtime_ns, status.st_size)
            except FileNotFoundError:
                continue
        client = blobs.container(self.account, self.container) if found or self.seen else None
        for inner, mark in found.items():
            if self.seen.get(inner) != mark and client is not None:
                try:
                    content = (self.folder / inner).read_bytes()
                except FileNotFoundError:
                    continue
                client.upload_blob(f"{self.prefix}{inner}", content, overwrite=True)
                self.seen[inner] = mark
        for inner in self.seen.keys() - found.keys():
            if client is not None:
                client.delete_blob(f"{self.prefix}{inner}")
            del self.seen[inner]


class Shipper:
    """Ships every `interval_s`, and once more at its end; `look` sees each round's logs first."""

    def __init__(self, blobs: Blobs, interval_s: float, look: Callable[[], None]) -> None:
        self.logs: list[Log] = []
        self.mirrors: list[Mirror] = []
        self._blobs, self._interval_s, self._look = blobs, interval_s, look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Block until all is shipped."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            is_last = self._ended.wait(self._interval_s)
            try:
                self._look()
                for log in self.logs:
                    log.ship()
                for mirror in self.mirrors:
                    mirror.ship(self._blobs)
            except AzureError:
                if is_last:
                    raise
            if is_last:
                return
