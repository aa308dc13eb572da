"""Packing: equal folders give equal shards, whole or not at all, and a kill costs one shard."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.busy import wait_until
from trainer.common.errors import TrainingError
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder
from trainer.data.pack.program import main, pack, parse_size, plan_shards, shard_bounds
from trainer.data.pack.sources import Sample, Source
from trainer.data.pack.writer import sample_key
from trainer.data.pictures.splits import open_pictures
from trainer.data.shards.index import (
    Index,
    PlacesFile,
    Shard,
    Split,
    read_index,
    read_places,
    write_index,
)
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.stripes import make_pictures

NUM_TRAIN, NUM_VAL, NUM_CLASSES = 90, 15, 3
# Of equal input on any machine; a new value means that packed datasets get other digests.
SHA256_TAR = "92a74bb8cf56a19352a9d7f1a2c3cbd15480974fc35a19cc0d2f5ec475877465"
SHA256_TFRECORD = "b53b73b5e5f63033264656832b7ba52296de7412e8cc939774ac75d0740b9330"


def run_pack(folder, target, encoding="tar", shard_bytes=20_000):
    events = Events(as_json=True)
    pack(folder, target, encoding=encoding, shard_bytes=shard_bytes, events=events)
    return target


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "pictures"
    counts = {"num_classes": NUM_CLASSES, "num_train": NUM_TRAIN, "num_val": NUM_VAL}
    make_pictures(folder, **counts, size=24, seed=1)
    return folder


@pytest.fixture(scope="module", params=["tar", "tfrecord"])
def packed(request, pictures, tmp_path_factory):
    return run_pack(pictures, tmp_path_factory.mktemp("packed") / "shards", request.param)


def content(folder):
    """Each file below the folder with its digest."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_classes(folder, names=("a", "b")):
    """Class folders whose bytes hang on nothing but this: no encoder has a part in them."""
    for split, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                frame = b"\xff\xc0\0\x0b\x08\0\x10\0\x20\1"
                data = b"\xff\xd8" + frame + bytes([label, number]) * (300 * number) + b"\xff\xd9"
                (folder / split / name / f"{number}.jpg").write_bytes(data)
    return folder


def test_pretrained_weights_beside_the_pictures_come_along(tmp_path):
    folder = write_classes(tmp_path / "pictures")
    plain = content(run_pack(folder, tmp_path / "plain"))
    (folder / "resnet18.pth").write_bytes(b"weights")
    (folder / "notes.txt").write_bytes(b"no weights")
    packed = content(run_pack(folder, tmp_path / "shards"))
    assert packed == {**plain, "resnet18.pth": hashlib.sha256(b"weights").hexdigest()}


def test_weights_that_cannot_be_copied_are_named(tmp_path, monkeypatch, capsys):
    folder = write_classes(tmp_path / "pictures")
    (folder / "resnet18.pth").write_bytes(b"weights")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", refuse)
    assert main([str(folder), "--to", str(tmp_path / "shards")]) == 1
    path, hint = folder / "resnet18.pth", "free some space, or take the file out of the folder"
    message = f"the weights `{path}` cannot be copied to the shards: No space left on device"
    assert capsys.readouterr().err == f"error: {message} (hint: {hint})\n"
    assert not (tmp_path / "shards").exists()


def test_every_picture_is_read_back_at_its_place_with_its_label(pictures, packed):
    index = read_index(packed)
    for split, num_samples in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        expected = Counter(
            (path.read_bytes(), index.classes.index(path.parent.name))
            for path in (pictures / split).glob("*/*.jpg")
        )
        places = read_places(packed, split)
        shards = index.splits[split].shards
        found = Counter()
        for shard, offset, length, label in zip(
            places.shards, places.offsets, places.lengths, places.labels, strict=True
        ):
            data = (packed / shards[shard].path).read_bytes()
            found[data[offset : offset + length], label] += 1
        assert found == expected
        assert len(places) == num_samples


def test_the_index_tells_the_truth_of_each_shard_and_nothing_else_is_there(packed):
    index = read_index(packed)
    assert index.classes == tuple(f"class-{number:04}" for number in range(NUM_CLASSES))
    named = {"index.json"}
    for split in index.splits.values():
        for file in (split.places, *split.shards):
            data = (packed / file.path).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
            named.add(file.path)
    assert set(content(packed)) == named
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]


def test_shards_are_even_and_each_holds_several_classes(packed):
    split = read_index(packed).splits["train"]
    sizes = [shard.bytes for shard in split.shards]
    assert len(sizes) > 4
    assert max(sizes) < 1.3 * min(sizes)
    places = read_places(packed, "train")
    seen = set(zip(places.shards, places.labels, strict=True))
    assert min(Counter(shard for shard, _ in seen).values()) > 1


def test_loaders_open_what_was_packed(pictures, packed):
    loaded = open_pictures(packed, "train")
    found = Counter((loaded.read(i), label) for i, label in enumerate(loaded.labels))
    folders = open_pictures(pictures, "train")
    assert found == Counter((folders.read(i), label) for i, label in enumerate(folders.labels))
    assert loaded.classes == folders.classes


def test_a_tar_shard_is_what_gnu_tar_and_webdataset_expect(pictures, tmp_path):
    shards = run_pack(pictures, tmp_path / "shards")
    members = []
    for path in sorted((shards / "train").glob("*.tar")):
        listed = subprocess.run(["tar", "tf", path], capture_output=True, text=True, check=True)
        with tarfile.open(path, "r:") as shard:
            members += (inside := shard.getmembers())
            assert listed.stdout.split() == [member.name for member in inside]
        assert listed.stderr == ""
    keys = [member.name.partition(".")[0] for member in members]
    assert [member.name.partition(".")[2] for member in members] == ["jpg", "cls"] * NUM_TRAIN
    assert keys[0::2] == keys[1::2]
    assert len(set(keys)) == NUM_TRAIN
    facts = {(m.mode, m.uid, m.gid, m.uname, m.gname, m.mtime, m.type) for m in members}
    assert facts == {(0o644, 0, 0, "", "", 0, tarfile.REGTYPE)}


def test_equal_folders_give_equal_bytes_however_they_were_made(tmp_path):
    one = write_classes(tmp_path / "one")
    other = tmp_path / "other"
    # Another order of directory entries, other times, other rights.
    for path in sorted(one.rglob("*.jpg"), reverse=True):
        target = other / path.relative_to(one)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o600)
        os.utime(target, (1, 1))
    for encoding, expected in (("tar", SHA256_TAR), ("tfrecord", SHA256_TFRECORD)):
        first = content(run_pack(one, tmp_path / f"one-{encoding}", encoding, 4000))
        assert content(run_pack(other, tmp_path / f"other-{encoding}", encoding, 4000)) == first
        assert hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest() == expected


def test_several_processes_write_the_same_bytes_as_one(tmp_path, monkeypatch):
    folder = write_classes(tmp_path / "pictures")
    alone = content(run_pack(folder, tmp_path / "alone", shard_bytes=2000))
    monkeypatch.setattr("trainer.data.pack.program._BYTES_WORTH_A_PROCESS", 1)
    monkeypatch.setattr("trainer.data.pack.program.num_cores", lambda: 2)
    assert content(run_pack(folder, tmp_path / "both", shard_bytes=2000)) == alone


def test_a_coco_folder_keeps_each_images_record(tmp_path):
    make_coco(tmp_path / "shapes", num_train=14, num_val=3, seed=1)
    shards = run_pack(tmp_path / "shapes", tmp_path / "shards")
    index = read_index(shards)
    assert (index.kind, index.classes) == ("coco", ("disc", "box", "triangle"))
    found = json.loads((tmp_path / "shapes/annotations/instances_train2017.json").read_bytes())
    pictures, records = {}, {}
    for path in sorted((shards / "train").glob("*.tar")):
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                key, _, suffix = member.name.partition(".")
                store = pictures if suffix == "jpg" else records
                store[key] = shard.extractfile(member).read()
    parsed = {key: json.loads(record) for key, record in records.items()}
    by_id = {entry["image"]["id"]: entry for entry in parsed.values()}
    assert [by_id[image["id"]]["image"] for image in found["images"]] == found["images"]
    annotations = [each for entry in parsed.values() for each in entry["annotations"]]
    assert sorted(annotations, key=lambda each: each["id"]) == found["annotations"]
    for key, entry in parsed.items():
        path = tmp_path / "shapes/train2017" / entry["image"]["file_name"]
        assert pictures[key] == path.read_bytes()
        named = {each["category_id"] for each in entry["annotations"]}
        assert {each["id"] for each in entry["categories"]} == named
    assert sorted(read_places(shards, "train").labels) == sorted(by_id)


def test_names_that_webdataset_could_not_take_are_changed(tmp_path):
    folder = write_classes(tmp_path / "pictures", ("ünï cøde.d", "b"))
    odd = folder / "train" / "b"
    (odd / "0.jpg").rename(odd / "a.b.c d.jpg")
    (odd / "1.jpg").rename(odd / ("long" * 60 + ".JPEG"))
    (odd / "2.jpg").rename(os.fsdecode(os.fsencode(odd) + b"/\xff.jpg"))
    shards = run_pack(folder, tmp_path / "shards")
    names = set()
    for path in (shards / "train").glob("*.tar"):
        with tarfile.open(path, "r:") as shard:
            names |= {name.partition("-")[2] for name in shard.getnames()}
    assert {"a_b_c_d.jpg", "a_b_c_d.cls", f"{'long' * 16}.jpg"} <= names
    assert read_index(shards).classes == ("b", "ünï cøde.d")
    assert run_pack(folder, tmp_path / "records", "tfrecord").is_dir()


def test_what_a_picture_is_decides_its_suffix(tmp_path):
    folder = write_classes(tmp_path / "pictures")
    buffer = io.BytesIO()
    Image.new("L", (3, 3)).save(buffer, "PNG")
    (folder / "val/a/0.jpg").write_bytes(buffer.getvalue())
    shards = run_pack(folder, tmp_path / "shards")
    with tarfile.open(shards / "val/val-000000.tar") as shard:
        suffixes = Counter(name.partition(".")[2] for name in shard.getnames())
    assert suffixes == {"jpg": 3, "png": 1, "cls": 4}


def test_a_folder_without_validation_is_packed(tmp_path):
    folder = write_classes(tmp_path / "pictures")
    shutil.rmtree(folder / "val")
    assert list(read_index(run_pack(folder, tmp_path / "shards")).splits) == ["train"]


def test_all_pictures_that_cannot_be_packed_are_named_at_once(tmp_path, capsys):
    folder = write_classes(tmp_path / "pictures")
    for number in (1, 3, 5):
        path = folder / f"train/a/{number}.jpg"
        path.write_bytes(path.read_bytes()[:-2])
    assert main([str(folder), "--to", str(tmp_path / "shards"), "--shard-size", "2kB"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: 3 pictures: ")
    assert [f"train/a/{number}.jpg` cannot be packed" in err for number in (1, 3, 5)] == [True] * 3
    assert not (tmp_path / "shards").exists()
    for number in (1, 3):
        (folder / f"train/a/{number}.jpg").unlink()
    with pytest.raises(TrainingError, match=r"5\.jpg` cannot be packed: the JPEG has no end"):
        run_pack(folder, tmp_path / "shards")


def test_of_many_pictures_that_cannot_be_packed_each_has_a_line_before_the_error(tmp_path, capsys):
    folder = write_classes(tmp_path / "pictures")
    names = sorted(str(folder / f"train/a/x{number}.jpg") for number in range(12))
    for name in names:
        Path(name).write_bytes(b"RIFF\0\0\0\0WEBP")
    assert main([str(folder), "--to", str(tmp_path / "shards"), "--shard-size", "2kB"]) == 1
    *lines, error = capsys.readouterr().err.splitlines()
    assert lines == [f"`{name}` cannot be packed: it is neither a JPEG nor a PNG" for name in names]
    assert error == (
        f"error: 12 pictures: {'; '.join(lines[:5])}; and 7 more (hint: get them again, or take them out)"
    )


@dataclass(frozen=True)
class SameFile:
    """So many samples of one file."""

    path: str
    number: int

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return Sample(path=self.path, label=0)


@pytest.mark.parametrize("encoding", ["tar", "tfrecord"])
def test_more_shards_than_an_index_can_list_are_refused_before_the_first(tmp_path, encoding):
    (tmp_path / "a.jpg").write_bytes(bytes(3000))
    samples = {name: SameFile(str(tmp_path / "a.jpg"), 30_000) for name in ("train", "val")}
    source = Source(kind="pictures", classes=("a",), splits=samples)
    with pytest.raises(
        TrainingError, match=r"^60000 shards are more than the [0-9]+ that"
    ) as error:
        plan_shards(source, encoding, 4096)
    wanted = re.fullmatch(r"--shard-size ([0-9]+KiB), or larger", error.value.hint)
    plan = plan_shards(source, encoding, parse_size(wanted[1]))
    # As large as sizes come to be: what is planned can be read.
    places = PlacesFile(path="train/places.bin", bytes=2**40, sha256="f" * 64)
    splits = {}
    for split in plan.splits:
        shards = tuple(
            Shard(
                path=f"{split.name}/{split.name}-{number:06}.{encoding}",
                samples=2,
                bytes=10**9,
                sha256="f" * 64,
            )
            for number in range(split.num_shards)
        )
        number = len(shards)
        splits[split.name] = Split(
            samples=2 * number, bytes=10**9 * number, places=places, shards=shards
        )
    index = Index(kind="pictures", format=encoding, classes=("a",), splits=splits)
    write_index(tmp_path, index)
    assert read_index(tmp_path) == index
    assert plan.num_shards > 30_000


def test_names_of_classes_that_fill_an_index_are_refused(tmp_path):
    (tmp_path / "a.jpg").write_bytes(bytes(3000))
    classes = tuple(f"{number:0250}" for number in range(33_000))
    source = Source(
        kind="pictures", classes=classes, splits={"train": SameFile(str(tmp_path / "a.jpg"), 3)}
    )
    with pytest.raises(TrainingError, match="the names of 33000 classes do not fit into an index"):
        plan_shards(source, "tar", 4096)


def test_what_is_left_out_of_class_folders_is_told(tmp_path, capsys):
    folder = write_classes(tmp_path / "pictures")
    (folder / "train/a/x.webp").touch()
    (folder / "val/b/more").mkdir()
    run_pack(folder, tmp_path / "shards")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["text"] for event in events if event["event"] == "note"][:-1] == [
        f"`{folder}/train`: 1 file that is neither .jpeg, .jpg nor .png (.webp 1) is left out",
        f"`{folder}/val`: 1 folder in class folders is left out",
    ]


def rename_both(folder):
    for split in ("train", "val"):
        (folder / split / "b").rename(os.fsdecode(os.fsencode(folder / split) + b"/\xff"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: shutil.rmtree(folder / "train"), "no folder `.*train`"),
        (lambda folder: shutil.rmtree(folder / "val/b"), "other classes in train than in val: b"),
        (lambda folder: os.mkfifo(folder / "train/a/x.jpg"), r"x\.jpg` is not a file"),
        (lambda folder: (folder / "train/a/x.jpg").symlink_to("no"), r"x\.jpg` cannot be read"),
        (
            lambda folder: (folder / "train/a/x.jpg").touch(),
            r"x\.jpg` cannot be packed: it is empty",
        ),
        (
            lambda folder: (folder / "annotations").mkdir(),
            "no `annotations/instances_train2017.json`",
        ),
        (lambda folder: (folder / "train/b").rename(folder / "train/\n"), "other classes"),
        (rename_both, r"class folder '\\udcff' has a name that cannot be written"),
        (shutil.rmtree, "no folder `"),
    ],
)
def test_a_folder_that_cannot_be_packed_is_refused(tmp_path, change, message):
    folder = write_classes(tmp_path / "pictures")
    change(folder)
    with pytest.raises(TrainingError, match=message):
        run_pack(folder, tmp_path / "shards")
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"categories": []}, "annotation 1"),
        ({"images": []}, "it lists no images"),
        ({"annotations": [{"image_id": 1}]}, "KeyError"),
        (
            {"annotations": [{"image_id": 1, "category_id": 2.0, "bbox": [0, 0, 1, 1]}]},
            "annotation",
        ),
        ({"annotations": [{"image_id": 1, "category_id": 2, "bbox": [0, 0, 1]}]}, "annotation"),
        ({"annotations": [{"image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1e300]}]}, "annot"),
        ({"annotations": [{"image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1]}]}, "of image 1,"),
        ({"images": [{"id": 1, "file_name": "../x.jpg"}], "annotations": []}, "x.jpg"),
        ({"images": [{"id": 2**32, "file_name": "x.jpg"}], "annotations": []}, "4294967296"),
        ({"annotations": {}}, None),
        ({"categories": [{"id": 1, "name": "\ud800"}], "annotations": []}, "not in COCO's format"),
        (
            {"images": [{"id": 1, "file_name": "x.jpg", "url": "\ud800"}], "annotations": []},
            "what the annotations say of `.*x.jpg` is not text: surrogates not allowed",
        ),
    ],
)
def test_annotations_that_are_not_cocos_are_refused(tmp_path, change, message):
    make_coco(tmp_path / "shapes", num_train=3, num_val=1, seed=1)
    path = tmp_path / "shapes/annotations/instances_train2017.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    if message is None:
        assert run_pack(tmp_path / "shapes", tmp_path / "shards").is_dir()
        return
    with pytest.raises(TrainingError, match=message):
        run_pack(tmp_path / "shapes", tmp_path / "shards")


def test_shards_are_not_packed_again_and_what_is_there_is_not_written_over(packed, tmp_path):
    with pytest.raises(TrainingError, match="holds shards already"):
        run_pack(packed, tmp_path / "again")
    folder = write_classes(tmp_path / "pictures")
    before = content(packed)
    with pytest.raises(TrainingError, match="is there already"):
        run_pack(folder, packed)
    assert content(packed) == before


@pytest.mark.parametrize("inside", ["packed", "train/packed", "link/packed"])
def test_shards_do_not_go_into_the_folder_that_is_packed(tmp_path, inside):
    folder = write_classes(tmp_path / "pictures")
    (tmp_path / "link").symlink_to(folder / "train")
    target = (tmp_path if inside.startswith("link") else folder) / inside
    before = content(folder)
    with pytest.raises(TrainingError) as error:
        run_pack(folder, target)
    assert str(error.value) == (
        f"`{target}` is inside `{folder}`, and would be taken for a part of it "
        "(hint: a folder beside it)"
    )
    assert content(folder) == before


def test_an_empty_folder_becomes_the_dataset(tmp_path):
    (tmp_path / "shards").mkdir()
    folder = write_classes(tmp_path / "pictures")
    assert read_index(run_pack(folder, tmp_path / "shards")) is not None


def test_two_packers_of_one_folder_do_not_meet(tmp_path):
    folder = write_classes(tmp_path / "pictures")
    with PartialFolder(tmp_path / "shards"):
        with pytest.raises(TrainingError, match="another program is working on"):
            run_pack(folder, tmp_path / "shards")


def test_without_room_nothing_is_begun(tmp_path, monkeypatch):
    folder = write_classes(tmp_path / "pictures")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(TrainingError, match="MB are needed"):
        run_pack(folder, tmp_path / "shards")


def start_pack(folder, target):
    program = [sys.executable, "-m", "trainer.data.pack", str(folder), "--to", str(target)]
    return subprocess.Popen([*program, "--shard-size", "100kB"], stdout=subprocess.DEVNULL)


# Goes no further once so many shards are recorded: a kill that looks at the clock may come too late.
UP_TO = """
import sys, time
from trainer.data.pack import program
write = program.write_shard
def write_few(task):
    written = write(task)
    while len(list(task.record.parent.glob("*.json"))) >= int(sys.argv[1]):
        time.sleep(1)
    return written
program.write_shard = write_few
program.main(sys.argv[2:])
"""


def test_after_kills_whole_shards_stay_and_the_end_is_the_same(pictures, tmp_path):
    big = tmp_path / "big"
    for path in pictures.rglob("*.jpg"):
        target = big / path.relative_to(pictures)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The end that a decoder stops at is the first one; what follows makes the file longer.
        target.write_bytes(path.read_bytes() + bytes(40_000))
    whole = content(run_pack(big, tmp_path / "whole", shard_bytes=100_000))
    target, state = tmp_path / "shards", tmp_path / ".shards.partial" / "state"
    for num_wanted in (1, 8, 16):
        words = [str(num_wanted), str(big), "--to", str(target), "--shard-size", "100kB"]
        started = subprocess.Popen([sys.executable, "-c", UP_TO, *words])
        wait_until(lambda num=num_wanted: len([*state.glob("*.json")]) >= num, 60)
        started.kill()
        started.wait()
        assert not target.exists()
    recorded = {path.stem for path in state.glob("*.json")}
    shards = (state.parent / "data").glob("*/*.tar")
    # A shard that was damaged meanwhile is noticed and written again.
    damaged, *stay = (path for path in sorted(shards) if path.name in recorded)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    times = {path.name: path.stat().st_mtime_ns for path in stay}
    assert start_pack(big, target).wait() == 0
    assert content(target) == whole
    ended = {path.name: path.stat().st_mtime_ns for path in target.glob("*/*.tar")}
    assert {name: ended[name] for name in times} == times
    assert not state.parent.exists()


def test_what_was_begun_of_other_files_is_dropped(tmp_path, capsys):
    folder = write_classes(tmp_path / "pictures")
    with PartialFolder(tmp_path / "shards") as partial:
        (partial.state / "plan").write_text("another")
        (partial.data / "stale").touch()
    assert "stale" not in content(run_pack(folder, tmp_path / "shards"))
    assert "packing starts again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("128MiB", 128 << 20),
        ("100 MB", 10**8),
        ("4096", 4096),
        ("1.5kib", 1536),
        ("2GB", 2 * 10**9),
    ],
)
def test_sizes_are_read_with_their_unit(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "MiB", "-1", "0", "1TB", "1 2", "1e9", "0.1"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(TrainingError, match="invalid size"):
        parse_size(text)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200), st.integers(1, 50_000))
def test_shards_follow_each_other_without_a_gap_and_are_even(sizes, shard_bytes):
    bounds = shard_bounds(sizes, shard_bytes)
    assert (bounds[0], bounds[-1]) == (0, len(sizes))
    assert bounds == sorted(set(bounds))
    wanted = sum(sizes) / min(len(sizes), max(1, round(sum(sizes) / shard_bytes)))
    largest = max(sum(sizes[a:b]) for a, b in pairwise(bounds))
    assert largest <= wanted + max(sizes)


def test_a_key_has_no_dot_and_is_of_one_sample_only():
    assert sample_key(7, "/x/n01440764_10026.JPEG") == "00000007-n01440764_10026"
    assert sample_key(8, "/x/a.b/c.d.jpg") == "00000008-c_d"
    assert Path(sample_key(9, "/x/../y.jpg")).name == "00000009-y"
