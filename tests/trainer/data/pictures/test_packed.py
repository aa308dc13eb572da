"""A packed dataset gives its pictures by their places, whatever its format and however large."""

from __future__ import annotations

import gc
import io
import os
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.data.pictures import files
from trainer.data.pictures.splits import open_pictures, open_splits
from trainer.data.shards.index import (
    Index,
    Shard,
    Split,
    encode_places,
    write_index,
    write_places,
)

# Class and content of each picture, shard by shard.
SPLITS = {
    "train": [[(0, b"ant a"), (1, b"bee b")], [(1, b"bee c")], [(0, b""), (0, b"ant e")]],
    "val": [[(1, b"bee f"), (0, b"ant g")]],
}


def write_packed(folder: Path, *, kind: str = "pictures", encoding: str = "tar") -> Path:
    """Shards whose pictures have something before and after them, as those of any format."""
    splits = {}
    for name, contents in SPLITS.items():
        (folder / name).mkdir(parents=True)
        places: list[tuple[int, int, int]] = []
        shards: list[Shard] = []
        for number, samples in enumerate(contents):
            data = b""
            for label, content in samples:
                places.append((len(data) + 3, len(content), label))
                data += b"<<<" + content + b">>>"
            path = f"{name}/{name}-{number:06}.{encoding}"
            (folder / path).write_bytes(data)
            shards.append(Shard(path=path, samples=len(samples), bytes=len(data), sha256="0" * 64))
        splits[name] = Split(
            samples=sum(shard.samples for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
            places=write_places(folder, name, encode_places(*zip(*places, strict=True))),
            shards=tuple(shards),
        )
    index = Index(kind=kind, format=encoding, classes=("ants", "bees"), splits=splits)
    write_index(folder, index)
    return folder


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def samples(pictures) -> list[tuple[int, bytes]]:
    return [(label, pictures.read(index)) for index, label in enumerate(pictures.labels)]


@pytest.mark.parametrize("encoding", ["tar", "tfrecord"])
def test_pictures_are_what_lies_at_their_places(tmp_path, encoding):
    train, val = open_splits(write_packed(tmp_path, encoding=encoding))
    assert train.classes == val.classes == ("ants", "bees")
    assert samples(train) == [sample for shard in SPLITS["train"] for sample in shard]
    assert samples(val) == SPLITS["val"][0]
    assert (train.shard_sizes, val.shard_sizes) == ((2, 1, 2), (2,))
    assert train.name(1) == f"{tmp_path}/train/train-000000.{encoding}@14"


def test_pictures_go_to_another_process_and_are_read_there(tmp_path):
    train = open_pictures(write_packed(tmp_path), "train")
    found = samples(train)
    assert samples(pickle.loads(pickle.dumps(train))) == found


def test_few_files_stay_open_whatever_the_number_of_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_OPEN", 2)
    monkeypatch.setattr(files, "_open", {})
    train = open_pictures(write_packed(tmp_path), "train")
    before = num_open()
    with ThreadPoolExecutor(8) as threads:
        wanted = [index % 5 for index in range(1000)]
        found = list(threads.map(train.read, wanted))
    contents = [content for shard in SPLITS["train"] for _, content in shard]
    assert found == [contents[index] for index in wanted]
    assert num_open() == before + 2
    del threads
    files.close_shards()
    gc.collect()
    assert num_open() == before


@pytest.mark.parametrize("kind", ["packed", "tars"])
def test_a_shard_that_was_replaced_is_read_anew(tmp_path, kind):
    if kind == "packed":
        shard = write_packed(tmp_path) / "train/train-000000.tar"
    else:
        (tmp_path / "train").mkdir()
        shard = tmp_path / "train" / "only.tar"
        with tarfile.open(shard, "w") as tar:
            for name, content in (("1.jpg", b"ant a"), ("1.cls", b"0")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    assert open_pictures(tmp_path, "train").read(0) == b"ant a"
    (tmp_path / "new").write_bytes(shard.read_bytes().replace(b"ant a", b"ant b"))
    (tmp_path / "new").replace(shard)
    assert open_pictures(tmp_path, "train").read(0) == b"ant b"


class TestMistakes:
    def check(self, folder: Path, message: str) -> None:
        with pytest.raises(TrainingError) as error:
            open_splits(folder)
        assert str(error.value).replace(str(folder), "DIR").startswith(message)
        assert "hint: " in str(error.value)

    def test_a_shard_that_is_not_there(self, tmp_path):
        (write_packed(tmp_path) / "train/train-000001.tar").unlink()
        self.check(tmp_path, "`DIR/train/train-000001.tar` cannot be read: No such file")

    def test_a_shard_of_another_size(self, tmp_path):
        os.truncate(write_packed(tmp_path) / "val/val-000000.tar", 10)
        self.check(tmp_path, "`DIR/val/val-000000.tar` has 10 bytes, and `index.json` says 22")

    def test_a_shard_cut_short_later(self, tmp_path):
        train = open_pictures(write_packed(tmp_path), "train")
        os.truncate(tmp_path / "train/train-000000.tar", 12)
        with pytest.raises(TrainingError, match="the shard ends before it") as error:
            train.read(1)
        assert "train-000000.tar@14" in str(error.value)

    def test_a_split_that_was_not_packed(self, tmp_path):
        with pytest.raises(TrainingError, match="no packed pictures of `test`"):
            open_pictures(write_packed(tmp_path), "test")

    def test_a_packed_dataset_of_another_kind(self, tmp_path):
        self.check(write_packed(tmp_path, kind="coco"), "`DIR` is a packed dataset of kind coco")
