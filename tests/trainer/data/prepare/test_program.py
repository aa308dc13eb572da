"""`python -m trainer.data.prepare coco|mnist|hymenoptera`: archives become what trainers read."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import struct
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.jobfile.read import load_job
from tests import seeds
from tests.folders import read_folder, read_prepared
from trainer.common.errors import TrainingError
from trainer.data.disk.events import Events
from trainer.data.pictures import coco
from trainer.data.pictures.idx import MNIST_FILES, read_idx
from trainer.data.pictures.splits import open_splits
from trainer.data.prepare import zipped_sets
from trainer.data.prepare.program import main, prepare_archives
from trainer.data.prepare.published import (
    HYMENOPTERA,
    WEIGHTS,
    Archive,
    Checksum,
    expected_checksums,
    read_checksums,
)
from trainer.data.prepare.weights import weights_name
from trainer.data.synthesize.coco import make_coco


class Quiet(SimpleHTTPRequestHandler):
    """Serves files; says nothing."""

    def log_message(self, *_: object) -> None:
        pass


def write_sums(folder: Path) -> Path:
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()} *{path.name}\n"
        for path in sorted(folder.iterdir())
    )
    (folder / "SUMS").write_text(sums)
    return folder / "SUMS"


def prepare(dataset: str, archives: Path, target: Path, *more: str) -> int:
    sums = str(archives / "SUMS")
    arguments = ["--from", str(archives), "--to", str(target), "--checksums", sums]
    return main([dataset, *arguments, *more])


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted({name.rpartition("/")[0] for name in members} - {""}):
            archive.writestr(f"{name}/", b"")
        for number, (name, content) in enumerate(members.items()):
            kind = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            archive.writestr(name, content, compress_type=kind)


def test_coco_becomes_the_folder_that_its_reader_reads(tmp_path):
    made, archives = tmp_path / "made", tmp_path / "archives"
    archives.mkdir()
    make_coco(made, num_train=6, num_val=4, seed=1)
    expected = read_folder(made)
    for split in ("train2017", "val2017"):
        pictures = {name: content for name, content in expected.items() if split in name.split("/")}
        write_zip(archives / f"{split}.zip", pictures)
    annotations = {name: content for name, content in expected.items() if "annotations" in name}
    others = {"annotations/captions_val2017.json": b"{}", "annotations/person.json": b"{}"}
    write_zip(archives / "annotations_trainval2017.zip", annotations | others)
    write_sums(archives)
    assert prepare("coco", archives, tmp_path / "coco", "--no-weights") == 0
    kept = {name for name in expected if name.partition("/")[0] in {*splits(), "annotations"}}
    assert read_prepared(tmp_path / "coco") == {name: expected[name] for name in kept}
    found = [coco.read_split(tmp_path / "coco", split) for split in splits()]
    assert [len(each.pictures) for each in found] == [6, 4]


def splits() -> tuple[str, str]:
    return "train2017", "val2017"


def test_ants_and_bees_become_class_folders_without_what_is_no_picture(tmp_path):
    archives = tmp_path / "archives"
    archives.mkdir()
    pictures = {
        f"{split}/{name}/{number}.jpg": seeds.content(2000)
        for split in ("train", "val")
        for name in ("ants", "bees")
        for number in range(3)
    }
    pictures["train/ants/formica.JPEG"] = b"x"
    others = {"train/ants/imageNotFound.gif": b"gif", "train/bees/._1.jpg": b"", ".DS_Store": b""}
    members = {f"hymenoptera_data/{name}": content for name, content in (pictures | others).items()}
    write_zip(archives / "hymenoptera_data.zip", members)
    write_sums(archives)
    assert prepare("hymenoptera", archives, tmp_path / "set", "--no-weights") == 0
    assert read_prepared(tmp_path / "set") == pictures
    train, val = open_splits(tmp_path / "set")
    assert (train.classes, len(train.labels), len(val.labels)) == (("ants", "bees"), 7, 6)


def test_folders_in_other_letters_are_none_of_the_sets(tmp_path, capsys):
    """They were unpacked, and then removed as what is left of another program."""
    archives = tmp_path / "archives"
    archives.mkdir()
    members = {f"hymenoptera_data/{split}/ants/1.jpg": b"picture" for split in ("Train", "Val")}
    write_zip(archives / "hymenoptera_data.zip", members)
    write_sums(archives)
    assert prepare("hymenoptera", archives, tmp_path / "set", "--no-weights") == 1
    assert "`hymenoptera_data.zip` holds none of the expected files" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


def test_a_gzip_file_needs_the_room_that_it_says(tmp_path):
    """Each of the four stood for the most that is unpacked of one: 1.3 GB for 55 MB."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(7_840_016)))
    (tmp_path / "b.gz").write_bytes(b"no")
    sizes = [zipped_sets.mnist_files(tmp_path / name).unpacked_bytes for name in ("a.gz", "b.gz")]
    assert sizes == [7_840_016, int.from_bytes(b"no", "little")]


@pytest.fixture
def insects(tmp_path: Path) -> Path:
    """A folder with the archive of ants and bees, and with its list of checksums."""
    archives = tmp_path / "archives"
    archives.mkdir()
    names = [f"{split}/{name}/1.jpg" for split in ("train", "val") for name in ("ants", "bees")]
    members = {f"hymenoptera_data/{name}": b"picture" for name in names}
    write_zip(archives / "hymenoptera_data.zip", members)
    write_sums(archives)
    return archives


RESNET18 = WEIGHTS["hymenoptera"]
URL = "https://download.pytorch.org/models/resnet18-f37072fd.pth"
BY_HAND = f"get {URL} (SHA-256 {RESNET18.checksum.digest}) into"


def test_weights_that_are_missing_are_named_before_anything_is_unpacked(insects, tmp_path, capsys):
    assert prepare("hymenoptera", insects, tmp_path / "set") == 1
    assert capsys.readouterr().err == (
        f"error: `{insects}` holds no `{RESNET18.name}`, the pretrained weights (hint: --download "
        f"gets it; or {BY_HAND} {insects}; or --no-weights)\n"
    )
    (insects / RESNET18.name).write_bytes(b"others")
    assert prepare("hymenoptera", insects, tmp_path / "set") == 1
    assert capsys.readouterr().err == (
        f"error: the SHA256 of `{insects / RESNET18.name}` is "
        f"{hashlib.sha256(b'others').hexdigest()}, and that of {RESNET18.name} "
        f"{RESNET18.checksum.digest} (hint: take it away, and --download gets it; or {BY_HAND} "
        f"{insects})\n"
    )
    assert not (tmp_path / "set").exists()


def test_weights_come_to_lie_beside_the_pictures_also_of_an_older_folder(insects, tmp_path, capsys):
    target = tmp_path / "set"
    assert prepare("hymenoptera", insects, target, "--no-weights") == 0
    pictures = read_prepared(target)
    (insects / RESNET18.name).write_bytes(b"weights")
    (insects / "SUMS").unlink()
    write_sums(insects)
    for there in ("", " (there already)"):
        assert prepare("hymenoptera", insects, target) == 0
        assert read_prepared(target) == {**pictures, "resnet18.pth": b"weights"}
        assert capsys.readouterr().out.rstrip().endswith(f"in {target}{there}")
    assert prepare("hymenoptera", insects, tmp_path / "new") == 0
    assert read_prepared(tmp_path / "new") == read_prepared(target)
    (target / "resnet18.pth").write_bytes(b"torn")
    assert prepare("hymenoptera", insects, target) == 1
    assert f"the SHA256 of `{target / 'resnet18.pth'}` is " in capsys.readouterr().err


def test_weights_are_downloaded_with_the_archives(insects, tmp_path):
    weights = b"weights of a network"
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / RESNET18.name).write_bytes(weights)
    handler = functools.partial(Quiet, directory=str(tmp_path / "server"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    listed = read_checksums(insects / "SUMS")
    (archive,) = HYMENOPTERA
    size = (insects / archive.name).stat().st_size
    try:
        prepare_archives(
            "hymenoptera",
            insects,
            tmp_path / "set",
            Events(as_json=True),
            download=True,
            archives=(replace(archive, num_bytes=size, checksum=listed[archive.name]),),
            weights=Archive(
                name=RESNET18.name,
                num_bytes=len(weights),
                checksum=Checksum(algorithm="sha256", digest=hashlib.sha256(weights).hexdigest()),
                urls=(f"http://127.0.0.1:{server.server_port}/{RESNET18.name}",),
            ),
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert read_prepared(tmp_path / "set")["resnet18.pth"] == weights


def test_the_weights_are_those_that_their_names_and_the_catalogs_jobs_say():
    for dataset, option in (("hymenoptera", "weights"), ("coco", "backbone-weights")):
        archive = WEIGHTS[dataset]
        name, _, prefix = archive.name.removesuffix(".pth").partition("-")
        assert archive.checksum.digest.startswith(prefix)
        job = load_job("maskrcnn" if dataset == "coco" else dataset).job
        assert job.args[option] == f"{name}.pth" == weights_name(archive)


def write_mnist(archives: Path, counts: tuple[int, int] = (50, 20)) -> dict[str, bytes]:
    archives.mkdir()
    made = {}
    for name in MNIST_FILES:
        count = counts[name.startswith("t10k")]
        shape = (count, 28, 28) if "images" in name else (count,)
        values = seeds.content(count * 784 if "images" in name else count)
        head = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
        made[name] = head + values
        (archives / f"{name}.gz").write_bytes(gzip.compress(made[name]))
    write_sums(archives)
    return made


def test_mnist_becomes_its_four_files(tmp_path):
    made = write_mnist(tmp_path / "archives")
    assert prepare("mnist", tmp_path / "archives", tmp_path / "mnist") == 0
    assert read_prepared(tmp_path / "mnist") == made
    assert read_idx(tmp_path / "mnist", "t10k-images-idx3-ubyte")[0] == (20, 28, 28)


def test_mnist_of_keras_lies_where_keras_looks_for_it(tmp_path):
    archives, target = tmp_path / "archives", tmp_path / "made"
    archives.mkdir()
    (archives / "mnist.npz").write_bytes(b"as it is published" * 100_000)
    write_sums(archives)
    assert prepare("keras-mnist", archives, target) == 0
    assert read_prepared(target) == {"datasets/mnist.npz": b"as it is published" * 100_000}


def test_a_file_that_is_no_idx_file_is_refused(tmp_path, capsys):
    write_mnist(tmp_path / "archives")
    (tmp_path / "archives" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"labels"))
    write_sums(tmp_path / "archives")
    assert prepare("mnist", tmp_path / "archives", tmp_path / "mnist") == 1
    assert "is not an IDX file of unsigned bytes" in capsys.readouterr().err
    assert not (tmp_path / "mnist").exists()


def test_a_download_ends_in_a_prepared_folder(tmp_path):
    made = write_mnist(tmp_path / "server")
    handler = functools.partial(Quiet, directory=str(tmp_path / "server"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        archives = tuple(
            Archive(
                name=f"{name}.gz",
                num_bytes=(tmp_path / "server" / f"{name}.gz").stat().st_size,
                checksum=read_checksums(tmp_path / "server" / "SUMS")[f"{name}.gz"],
                urls=(f"http://127.0.0.1:{server.server_port}/{name}.gz",),
            )
            for name in MNIST_FILES
        )
        prepare_archives(
            "mnist",
            tmp_path / "got",
            tmp_path / "mnist",
            Events(as_json=True),
            download=True,
            archives=archives,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert read_prepared(tmp_path / "mnist") == made


def test_what_is_not_there_is_named_with_what_brings_it(tmp_path, capsys):
    assert main(["mnist", "--from", str(tmp_path), "--to", str(tmp_path / "mnist")]) == 1
    error = capsys.readouterr().err
    assert all(f"`{name}.gz`" in error for name in MNIST_FILES)
    assert error.endswith("(hint: --download gets them)\n")


def test_without_a_folder_of_archives_it_says_so(tmp_path, capsys):
    assert main(["coco", "--to", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err == (
        "error: coco is made from archives, and no --from says where they are "
        "(hint: name their folder: --from DIR)\n"
    )


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_code_1(tmp_path):
    (tmp_path / "file").write_text("")
    write_mnist(tmp_path / "archives")
    program = [sys.executable, "-m", "trainer.data.prepare", "mnist", "--json"]
    archives, target = str(tmp_path / "archives"), str(tmp_path / "file" / "mnist")
    done = subprocess.run(
        [*program, "--from", archives, "--checksums", f"{archives}/SUMS", "--to", target],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_events_add_up(tmp_path, capsys):
    made = write_mnist(tmp_path / "archives")
    archives = tmp_path / "archives"
    arguments = ["--from", str(archives), "--to", str(tmp_path / "mnist"), "--json"]
    assert main(["mnist", *arguments, "--checksums", str(archives / "SUMS")]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events[:-1]] == ["progress"] * (len(events) - 1)
    packed = sum((archives / f"{name}.gz").stat().st_size for name in MNIST_FILES)
    assert (events[-2]["files_done"], events[-2]["bytes_done"], events[-2]["bytes"]) == (
        4,
        packed,
        packed,
    )
    assert (events[-1]["files"], events[-1]["bytes"]) == (4, sum(map(len, made.values())))


def test_checksums_are_read_as_the_tools_write_them(tmp_path):
    path = tmp_path / "SUMS"
    path.write_text(f"{'a' * 32}  one.tar\n{'B' * 64} *some/where/two.zip\n")
    origin = "`SUMS` lists"
    found = read_checksums(path)
    assert found == {
        "one.tar": Checksum(algorithm="md5", digest="a" * 32, origin=origin),
        "two.zip": Checksum(algorithm="sha256", digest="b" * 64, origin=origin),
    }
    wanted = [Archive(name="one.tar", checksum=Checksum(algorithm="md5", digest="c" * 32))]
    assert expected_checksums(wanted, found) == {"one.tar": found["one.tar"]}
    assert expected_checksums(wanted, None) == {"one.tar": wanted[0].checksum}
    with pytest.raises(TrainingError, match=r"cannot be read"):
        read_checksums(tmp_path / "none")
