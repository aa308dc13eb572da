"""The index of a packed dataset: written and read back, and refused where it does not fit."""

from __future__ import annotations

import json
import struct

import pytest

from trainer.common.errors import TrainingError
from trainer.data.shards.index import (
    Index,
    Shard,
    Split,
    encode_places,
    read_index,
    read_places,
    room_for_shards,
    write_index,
    write_places,
)

BIG = 5 * 2**32 + 7


def write(folder, *, labels=(0, 1, 1), kind="pictures", **changes):
    data = encode_places((512, BIG, 512), (3, 4, 5), labels)
    shards = (
        Shard(path="train/train-000000.tar", samples=2, bytes=BIG + 4, sha256="aa"),
        Shard(path="train/train-000001.tar", samples=1, bytes=2048, sha256="bb"),
    )
    split = {
        "samples": 3,
        "bytes": BIG + 4 + 2048,
        "places": write_places(folder, "train", data),
        "shards": shards,
    }
    index = Index(
        kind=kind, format="tar", classes=("ant", "bée"), splits={"train": Split(**split | changes)}
    )
    write_index(folder, index)
    return index


def test_an_index_is_read_as_it_was_written(tmp_path):
    index = write(tmp_path)
    assert read_index(tmp_path) == index
    assert read_index(tmp_path / "elsewhere") is None


def test_the_files_are_as_others_read_them(tmp_path):
    write(tmp_path)
    found = json.loads((tmp_path / "index.json").read_bytes())
    assert found["schema"] == 1
    assert found["kind"] == "pictures"
    assert found["format"] == "tar"
    assert found["classes"] == ["ant", "bée"]
    assert found["splits"]["train"]["samples"] == 3
    assert found["splits"]["train"]["shards"][1] == {
        "path": "train/train-000001.tar",
        "samples": 1,
        "bytes": 2048,
        "sha256": "bb",
    }
    assert found["splits"]["train"]["places"]["path"] == "train/places.bin"
    places = (tmp_path / "train/places.bin").read_bytes()
    assert list(struct.iter_unpack("<QII", places)) == [(512, 3, 0), (BIG, 4, 1), (512, 5, 1)]


def test_places_are_columns_with_the_shard_of_each_sample(tmp_path):
    write(tmp_path)
    places = read_places(tmp_path, "train")
    assert len(places) == 3
    assert list(places.shards) == [0, 0, 1]
    assert list(places.offsets) == [512, BIG, 512]
    assert list(places.lengths) == [3, 4, 5]
    assert list(places.labels) == [0, 1, 1]


def test_the_last_column_of_a_coco_dataset_is_any_image_id(tmp_path):
    write(tmp_path, kind="coco", labels=(581_929, 9, 25))
    assert list(read_places(tmp_path, "train").labels) == [581_929, 9, 25]


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path):
    write(tmp_path)
    with pytest.raises(TrainingError, match="no packed split `val`: only train"):
        read_places(tmp_path, "val")
    with pytest.raises(TrainingError, match="no packed split `train`: no index"):
        read_places(tmp_path / "elsewhere", "train")


@pytest.mark.parametrize("schema", [2, None, "1", True])
def test_another_schema_is_named(tmp_path, schema):
    (tmp_path / "index.json").write_text(json.dumps({"schema": schema}))
    with pytest.raises(TrainingError, match=f"of schema {json.dumps(schema)}, and 1 is known"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"schema": 1}', '{"schema": 1, "kind": "pictures", "splits": {}}']
)
def test_what_is_no_index_is_refused(tmp_path, content):
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(TrainingError, match=r"index\.json"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("path", "../outside.tar", "is not a path below the folder"),
        ("path", "/etc/passwd", "is not a path below the folder"),
        ("path", "train/./x.tar", "is not a path below the folder"),
        ("path", "train\\x.tar", "is not a path below the folder"),
        ("path", "train/\n.tar", "is not a path below the folder"),
        ("path", "", "is not a path below the folder"),
        ("samples", -1, "-1 is not a count"),
        ("samples", 1.0, "1.0 is not a count"),
        ("samples", 1, "its shards hold 2 samples"),
        ("bytes", True, "True is not a count"),
        ("bytes", 5, "its shards hold 3 samples and 2053 bytes"),
        ("sha256", None, "None is not text"),
    ],
)
def test_a_shard_of_another_place_or_count_is_refused(tmp_path, key, value, said):
    write(tmp_path)
    found = json.loads((tmp_path / "index.json").read_bytes())
    found["splits"]["train"]["shards"][0][key] = value
    (tmp_path / "index.json").write_text(json.dumps(found))
    with pytest.raises(TrainingError, match="not an index of shards") as error:
        read_index(tmp_path)
    assert said in str(error.value)


def test_a_places_file_that_was_changed_cut_or_lost_is_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "train/places.bin"
    whole = path.read_bytes()
    for content in (whole[:-16], whole[:-1] + b"\7", whole + whole):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=r"it is not the file that `index\.json`"):
            read_places(tmp_path, "train")
    path.unlink()
    with pytest.raises(TrainingError, match="No such file"):
        read_places(tmp_path, "train")


def test_a_place_outside_of_its_shard_and_an_unknown_label_are_refused(tmp_path):
    write(tmp_path, labels=(0, 2, 1))
    with pytest.raises(TrainingError, match="it names label 2, and there are 2 classes"):
        read_places(tmp_path, "train")
    shards = (
        Shard(path="train/a.tar", samples=2, bytes=BIG + 3, sha256="aa"),
        Shard(path="train/b.tar", samples=1, bytes=2048, sha256="bb"),
    )
    write(tmp_path, shards=shards, bytes=BIG + 3 + 2048)
    with pytest.raises(TrainingError, match=r"after the end of `train/a\.tar`"):
        read_places(tmp_path, "train")


def test_places_are_some_twenty_bytes_a_sample_in_memory(tmp_path):
    import tracemalloc

    count = 200_000
    data = encode_places(range(count), [1] * count, [0] * count)
    split = Split(
        samples=count,
        bytes=2 * count,
        places=write_places(tmp_path, "train", data),
        shards=(Shard(path="train/a.tar", samples=count, bytes=2 * count, sha256="aa"),),
    )
    write_index(
        tmp_path, Index(kind="pictures", format="tar", classes=("a",), splits={"train": split})
    )
    tracemalloc.start()
    places = read_places(tmp_path, "train")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(places) == count
    assert kept < 21 * count


@pytest.mark.parametrize("splits", [("train",), ("train", "val")])
def test_as_many_shards_are_read_as_there_is_room_for_and_hardly_more(
    tmp_path, monkeypatch, splits
):
    monkeypatch.setattr("trainer.data.shards.index.MOST_INDEX_BYTES", 60_000)
    classes = tuple(f"é{number}" for number in range(1000))
    paths = {name: f"{name}/{name}-{0:06}.tfrecord" for name in splits}
    room = room_for_shards("coco", "tfrecord", classes, paths)

    def written(num_shards):
        """Puts all of them into the first split, and as many digits into each number as there can be."""
        listed = {}
        for name in splits:
            shards = (Shard(path=paths[name], samples=10**17, bytes=10**17, sha256="f" * 64),)
            shards = shards * num_shards if name == splits[0] else ()
            total = 10**17 * len(shards)
            places = write_places(tmp_path, name, b"")
            listed[name] = Split(samples=total, bytes=total, places=places, shards=shards)
        write_index(tmp_path, Index(kind="coco", format="tfrecord", classes=classes, splits=listed))
        return read_index(tmp_path)

    assert len(written(room).splits["train"].shards) == room > 150
    with pytest.raises(TrainingError, match="it has more than 60,000 bytes: pack larger shards"):
        written(room + room // 20)
    names = tuple("n" * 250 for _ in range(300))
    assert room_for_shards("pictures", "tar", names, paths) == 0
