"""Opens the pictures of a packed dataset whose shards stay in the blob store.

The folder of such an input holds the index and the places files of the dataset. Where the shards are
is never said in there, since whoever made the dataset would say it: TRAINYARD_STREAMED_<NAME> names
the file that the run's own launcher wrote for the folder TRAINYARD_INPUT_<NAME>,

    {"schema": 1, "endpoint": ADDRESS OF THE FILES, "sas_file": PATH, "cache": FOLDER,
     "cache_bytes": N, "md5": {SHARD: BASE64}}

with "token_file" in place of "sas_file" where an identity's token opens the store.

docs/inputs.md says what is fetched when, and what is kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.sharding import WINDOW_SHARDS
from trainer.data.shards.index import INDEX_FILE, Split, read_index, read_places
from trainer.data.streaming.blocks import BLOCK_BYTES, NUM_FETCHERS, Blocks
from trainer.data.streaming.cache import BlockCache
from trainer.data.streaming.flow import Flow
from trainer.data.streaming.store import KeyKind, RangeStore, RemoteFile

SCHEMA = 1
_INPUT, _STREAMED = "TRAINYARD_INPUT_", "TRAINYARD_STREAMED_"


@dataclass(frozen=True, kw_only=True)
class StreamSource:
    """Address of the shards, key file of the store, folder and size of the cache."""

    endpoint: str
    key_file: Path
    kind: KeyKind
    cache: Path
    cache_bytes: int
    md5: Mapping[str, str]


def find_source(folder: Path, environ: Mapping[str, str] | None = None) -> StreamSource | None:
    """Find the remote shards of a run's input; None if they lie beside its index.

    Raises TrainingError where what the run was handed over cannot be read.
    """
    environ = os.environ if environ is None else environ
    for variable, path in environ.items():
        if variable.startswith(_STREAMED):
            given = environ.get(_INPUT + variable.removeprefix(_STREAMED))
            if given is not None and Path(given).resolve() == folder.resolve():
                return read_source(Path(path))
    return None


def read_source(path: Path) -> StreamSource:
    """Read the file that describes a run's streamed input; raises TrainingError."""
    try:
        found: Any = parse_json(path.read_bytes())
        if found["schema"] != SCHEMA:
            message = f"its schema is {found['schema']!r}, and {SCHEMA} is known here"
            raise ValueError(message)
        is_token = "token_file" in found
        return StreamSource(
            endpoint=str(found["endpoint"]).rstrip("/"),
            key_file=Path(found["token_file" if is_token else "sas_file"]),
            kind="token" if is_token else "signature",
            cache=Path(found["cache"]),
            cache_bytes=int(found["cache_bytes"]),
            md5={str(name): str(md5) for name, md5 in found["md5"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"`{path}` cannot be used: {error}"
        raise TrainingError(message, hint="start the run again: it is written for each") from None


def open_streamed(folder: Path, source: StreamSource, split: str) -> StreamedPictures:
    """Open one split of a packed dataset; nothing is fetched yet.

    Raises TrainingError where the folder has no such split.
    """
    index = read_index(folder)
    if index is None or split not in index.splits:
        message = f"`{folder}` has no packed split `{split}`"
        raise TrainingError(message, hint="launch data pack FOLDER --to DIR, and push that")
    return StreamedPictures(folder, source, split, index.classes, index.splits[split])


class StreamedPictures:
    """Pictures that are fetched when they are read, or before that where they were announced.

    `flow` has the rate at which this process gets them.
    """

    def __init__(
        self, folder: Path, source: StreamSource, name: str, classes: tuple[str, ...], split: Split
    ) -> None:
        self._folder = folder
        self._source = source
        self._split_name = name
        self.split = split
        self.classes = classes
        self.places = read_places(folder, name)
        self.labels: Sequence[int] = self.places.labels
        self.shard_sizes = tuple(shard.samples for shard in split.shards)
        self.flow = Flow(NUM_FETCHERS)
        self._blocks = self._open()

    def _open(self) -> Blocks:
        source = self._source
        # By what it holds, so that runs share what is there, whatever they call the dataset.
        content = (self._folder / INDEX_FILE).read_bytes()
        name = f"{hashlib.sha256(content).hexdigest()[:32]}-{BLOCK_BYTES}"
        files = [
            RemoteFile(path=shard.path, bytes=shard.bytes, md5=source.md5.get(shard.path))
            for shard in self.split.shards
        ]
        largest = max((file.bytes for file in files), default=0)
        window = min(WINDOW_SHARDS, len(files)) * -(-largest // BLOCK_BYTES)
        # The window that is being read stays in the cache, and some room for what others want.
        spare = source.cache_bytes // BLOCK_BYTES * 9 // 10 - window
        return Blocks(
            files,
            RangeStore(source.endpoint, source.key_file, kind=source.kind, flow=self.flow),
            BlockCache(source.cache, name, source.cache_bytes),
            name=self._split_name,
            window=window,
            max_ahead=max(2 * NUM_FETCHERS, min(window, spare)),
        )

    def name(self, index: int) -> str:
        """Give the shard's path and the picture's place in it."""
        shard = self.split.shards[self.places.shards[index]]
        return f"{shard.path}@{self.places.offsets[index]}"

    def file_range(self, index: int) -> None:
        """Give nothing: what is fetched is announced, counted and kept by this process."""

    def read(self, index: int) -> bytes:
        """Read the encoded file from the cache, or fetch it; waits while the store is away."""
        return self._blocks.read(*self._place(index))

    def announce(self, samples: Sequence[int]) -> None:
        """Begin to fetch what these samples will be read from; returns at once."""
        self._blocks.begin(map(self._place, samples))

    def _place(self, index: int) -> tuple[int, int, int]:
        places = self.places
        return places.shards[index], places.offsets[index], places.lengths[index]

    def __getstate__(self) -> dict[str, object]:
        """Leave connections and threads behind: they are another process's."""
        left = {"_blocks", "flow"}
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Open the store anew."""
        self.__dict__.update(state)
        self.flow = Flow(NUM_FETCHERS)
        self._blocks = self._open()
