"""Records as TensorFlow writes and reads them."""

from __future__ import annotations

import json
import struct

import google_crc32c
import pytest
from PIL import Image

from trainer.data.disk.events import Events
from trainer.data.pack.program import pack
from trainer.data.shards.tfrecord import bytes_feature, float_feature, int_feature, record_parts
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.stripes import make_pictures

FEATURES = {
    "image/class/label": int_feature(999),
    "image/class/text": bytes_feature("bée".encode()),
    "ids": int_feature(0, 1, 127, 128, 2**40, -1),
    "shares": float_feature([0.5, -2.0]),
    "names": bytes_feature(b"", b"\0\xff"),
    "no ints": int_feature(),
    "no floats": float_feature([]),
    "no bytes": bytes_feature(),
}


def record(picture, features=FEATURES):
    parts, offset = record_parts(features, "image/encoded", picture)
    return b"".join(parts), offset


def test_an_example_is_the_bytes_that_the_wire_format_says():
    made, offset = record(b"JPEG", {"a": int_feature(300)})
    entry = bytes.fromhex("0a01 61 1206 1a04 0a02 ac02")  # key a, value Int64List of 300, packed
    picture = b"\x0a\x0dimage/encoded" + bytes.fromhex("1208 0a06 0a04") + b"JPEG"
    features = b"\x0a" + bytes([len(entry)]) + entry + b"\x0a" + bytes([len(picture)]) + picture
    example = b"\x0a" + bytes([len(features)]) + features
    assert made[12:-4] == example
    assert made[:8] == struct.pack("<Q", len(example))
    assert made[offset : offset + 4] == b"JPEG"


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 3_000_000])
def test_the_picture_lies_where_it_is_said_and_checksums_are_masked(size):
    picture = bytes(range(256)) * (size // 256) + bytes(size % 256)
    made, offset = record(picture)
    assert made[offset : offset + size] == picture
    assert len(made) == offset + size + 4
    for checked, stored in ((made[:8], made[8:12]), (made[12:-4], made[-4:])):
        checksum = google_crc32c.value(checked)
        masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32
        assert struct.unpack("<I", stored) == (masked,)


READER = "tests.trainer.programs.read_records"


@pytest.fixture(scope="module")
def read(tensorflow_zygote, tmp_path_factory):
    """What TensorFlow reads: FEATURES, packed class folders (twice), a packed COCO folder."""
    folder = tmp_path_factory.mktemp("records")
    (folder / "features").write_bytes(record(b"\xff\xd8 \xff\xd9")[0] + record(b"x" * 20_000)[0])
    make_pictures(folder / "small", num_classes=2, num_train=8, num_val=2, size=24, seed=1)
    make_coco(folder / "shapes", num_train=14, num_val=2, seed=1)
    shards = [folder / "features"]
    for name in ("small", "shapes"):
        target = folder / f"{name}-shards"
        pack(
            folder / name,
            target,
            encoding="tfrecord",
            shard_bytes=2**20,
            events=Events(as_json=True),
        )
        shards.append(target / "train/train-000000.tfrecord")
    printed = tensorflow_zygote.run(READER, *map(str, shards), folder=folder)
    return folder, json.loads(printed)


def test_tensorflow_reads_every_kind_of_feature(read):
    _, (features, *_) = read
    assert features == [
        {
            "image/class/label": [999],
            "image/class/text": ["bée".encode().hex()],
            "ids": [0, 1, 127, 128, 2**40, -1],
            "shares": [0.5, -2.0],
            "names": ["", "00ff"],
            "no ints": [],
            "no floats": [],
            "no bytes": [],
            "image/encoded": [picture.hex()],
        }
        for picture in (b"\xff\xd8 \xff\xd9", b"x" * 20_000)
    ]


def test_tensorflow_reads_packed_class_folders_as_they_were(read):
    folder, (_, rows, parsed, _) = read
    assert len(rows) == 8
    for row, (encoded, label, shape) in zip(rows, parsed, strict=True):
        (text,), (name,) = row["image/class/text"], row["image/filename"]
        path = folder / "small/train" / bytes.fromhex(text).decode() / bytes.fromhex(name).decode()
        with Image.open(path) as picture:
            width, height = picture.size
        assert row == {
            "image/encoded": [path.read_bytes().hex()],
            "image/height": [height],
            "image/width": [width],
            "image/channels": [3],
            "image/format": [b"JPEG".hex()],
            "image/filename": [path.name.encode().hex()],
            "image/class/label": [int(path.parent.name.removeprefix("class-"))],
            "image/class/text": [path.parent.name.encode().hex()],
        }
        assert [encoded, label, shape] == [
            row["image/encoded"][0],
            row["image/class/label"][0],
            [height, width, 3],
        ]


def test_tensorflow_reads_a_packed_coco_folder_with_all_that_is_known(read):
    folder, (*_, rows) = read
    found = json.loads((folder / "shapes/annotations/instances_train2017.json").read_bytes())
    names = {entry["id"]: entry["name"] for entry in found["categories"]}
    images = {entry["id"]: entry for entry in found["images"]}
    assert {int(bytes.fromhex(row["image/source_id"][0])) for row in rows} == set(images)
    assert any(not row["image/object/class/label"] for row in rows)
    for row in rows:
        image = images[int(bytes.fromhex(row["image/source_id"][0]))]
        objects = [each for each in found["annotations"] if each["image_id"] == image["id"]]
        labels = [each["category_id"] for each in objects]
        assert json.loads(bytes.fromhex(row["image/annotations/json"][0])) == {
            "image": image,
            "annotations": objects,
            "categories": [{"id": n, "name": names[n]} for n in sorted(set(labels))],
        }
        assert row["image/object/class/label"] == labels
        assert [bytes.fromhex(text).decode() for text in row["image/object/class/text"]] == [
            names[label] for label in labels
        ]
        assert row["image/object/is_crowd"] == [each["iscrowd"] for each in objects]
        lefts = [each["bbox"][0] / image["width"] for each in objects]
        assert row["image/object/bbox/xmin"] == pytest.approx(lefts)
        bottoms = [(each["bbox"][1] + each["bbox"][3]) / image["height"] for each in objects]
        assert row["image/object/bbox/ymax"] == pytest.approx(bottoms)
        assert row["image/encoded"] == [
            (folder / "shapes/train2017" / image["file_name"]).read_bytes().hex()
        ]
