"""Files on their way to a store over real HTTP and back, as tests word them."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from jobs.blobs.authority import SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.files import BLOCK_BYTES, Incoming, Outgoing
from jobs.blobs.refusals import StoreError
from jobs.contracts.errors import EnvironmentFailure
from tests import seeds

LARGE = 2 * BLOCK_BYTES + 12_345  # three blocks
TWO_BLOCKS = BLOCK_BYTES + 12_345


class Moved:
    def __init__(self) -> None:
        self.files = self.bytes = self.found = 0

    def __call__(self, files: int, count: int, found: int = 0, /) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.files += files
        self.bytes += count
        self.found += found


def explain(error: StoreError) -> EnvironmentFailure:
    return EnvironmentFailure(f"{error.status} {error.code or error.text}")


def store_of(url: str) -> AzureStore:
    return AzureStore(Container(url, SharedKey("account", "a2V5")), explain)


def outgoing(path: Path, name: str) -> Outgoing:
    content = path.read_bytes()
    pieces = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
    md5s = tuple(hashlib.md5(piece).digest() for piece in pieces)
    return Outgoing(
        name=name,
        path=path,
        bytes=len(content),
        md5=hashlib.md5(content).digest(),
        block_md5s=md5s if len(content) > BLOCK_BYTES else (),
    )


def incoming(content: bytes, path: Path, name: str) -> Incoming:
    digest = hashlib.sha256(content).hexdigest()
    return Incoming(name=name, path=path, bytes=len(content), sha256=digest, mode=0o444)


def contents_of_all_sizes() -> dict[str, bytes]:
    sizes = {
        "empty": 0,
        "small": 110_000,
        "one block": BLOCK_BYTES,
        "a byte more": BLOCK_BYTES + 1,
        "sub/ü #%?&+日本": LARGE,
    }
    return {name: seeds.content(size) for name, size in sizes.items()}
