"""Writes a packed dataset of random bytes in place of pictures, and what a stream of it needs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.seeds import dice
from trainer.data.shards.index import (
    Index,
    Shard,
    Split,
    encode_places,
    write_index,
    write_places,
)

HEADER = b"=" * 512


def write_packed(
    folder: Path,
    *,
    num_shards: int = 2,
    samples_each: int = 20,
    largest: int = 300_000,
) -> list[bytes]:
    """Write train shards and a val shard; gives the train samples' content, in their order."""
    source = dice(0)
    samples: list[bytes] = []
    splits = {}
    for split, count in (("train", num_shards), ("val", 1)):
        shards, places = [], b""
        for number in range(count):
            contents = [source.randbytes(source.randint(1, largest)) for _ in range(samples_each)]
            path = f"{split}/{split}-{number:06}.tar"
            data, offsets = _lay_out(contents)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            labels = [source.randrange(3) for _ in contents]
            places += encode_places(offsets, [len(content) for content in contents], labels)
            shards.append(
                Shard(
                    path=path,
                    samples=len(contents),
                    bytes=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                )
            )
            samples += contents if split == "train" else []
        splits[split] = Split(
            samples=samples_each * count,
            bytes=sum(shard.bytes for shard in shards),
            places=write_places(folder, split, places),
            shards=tuple(shards),
        )
    write_index(
        folder, Index(kind="pictures", format="tar", classes=("a", "b", "c"), splits=splits)
    )
    return samples


def write_stream_input(
    folder: Path, packed: Path, *, endpoint: str, cache: Path, cache_bytes: int, sas: str
) -> Path:
    """Write what a run finds as the input: all of `packed` but its shards; beside it, its source."""
    md5: dict[str, str] = {}
    for file in sorted(packed.rglob("*")):
        name = file.relative_to(packed).as_posix()
        if file.suffix in (".tar", ".tfrecord"):
            md5[name] = base64.b64encode(hashlib.md5(file.read_bytes()).digest()).decode()
        elif file.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(file.read_bytes())
    (folder.parent / f"{folder.name}.sas").write_text(sas)
    source: Mapping[str, object] = {
        "schema": 1,
        "endpoint": endpoint,
        "sas_file": str(folder.parent / f"{folder.name}.sas"),
        "cache": str(cache),
        "cache_bytes": cache_bytes,
        "md5": md5,
    }
    source_file(folder).write_text(json.dumps(source))
    return folder


def source_file(folder: Path) -> Path:
    """Where the source of a streamed input lies: outside of the data."""
    return folder.parent / f"{folder.name}.stream.json"


def stream_variables(folder: Path) -> dict[str, str]:
    """What a rank finds in its environment for such an input."""
    return {
        "TRAINYARD_INPUT_DATA": str(folder),
        "TRAINYARD_STREAMED_DATA": str(source_file(folder)),
    }


def _lay_out(contents: list[bytes]) -> tuple[bytes, list[int]]:
    """Put samples behind one another with something between them, as in a tar file."""
    data, offsets = b"", []
    parts: list[bytes] = []
    at = 0
    for content in contents:
        parts += [HEADER, content]
        offsets.append(at + len(HEADER))
        at += len(HEADER) + len(content)
    return data.join(parts), offsets
