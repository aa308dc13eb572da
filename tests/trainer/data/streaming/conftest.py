"""A packed dataset behind a store, streamed into a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.packed_dataset import source_file, write_packed, write_stream_input
from tests.fakes.range_server import RangeServer
from trainer.data.streaming.source import StreamedPictures, open_streamed, read_source

LARGE = 1 << 30


@dataclass
class Streaming:
    """A packed dataset, a store that serves it, and inputs that read from there."""

    folder: Path
    packed: Path
    samples: list[bytes]
    server: RangeServer

    def open(self, split: str = "train", cache_bytes: int = LARGE) -> StreamedPictures:
        """Open it as one more process would, with the cache that all of them share."""
        folder = write_stream_input(
            self.folder / "input",
            self.packed,
            endpoint=self.server.endpoint,
            cache=self.cache,
            cache_bytes=cache_bytes,
            sas=self.server.sas,
        )
        return open_streamed(folder, read_source(source_file(folder)), split)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def sas_file(self) -> Path:
        return self.folder / "input.sas"

    @property
    def train_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.packed / "train").glob("*.tar"))

    def blocks(self) -> list[Path]:
        """The blocks in the cache."""
        return sorted(file for file in self.cache.rglob("train-*") if file.is_file())


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[Streaming]:
    packed = tmp_path / "packed"
    samples = write_packed(packed)
    server = RangeServer(packed)
    yield Streaming(folder=tmp_path, packed=packed, samples=samples, server=server)
    server.stop()


def read_all(pictures: StreamedPictures, order: list[int] | None = None) -> list[bytes]:
    return [pictures.read(index) for index in order or range(len(pictures.labels))]
