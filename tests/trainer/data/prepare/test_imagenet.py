"""`prepare imagenet`: the three archives become class folders, whole or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import time
from functools import cache
from pathlib import Path

import pytest

from tests import seeds
from tests.busy import wait_until
from tests.campaign import campaign
from tests.fakes.ilsvrc import class_names, write_archives, write_devkit, write_sums
from tests.folders import read_folder, read_prepared
from trainer.common.errors import TrainingError
from trainer.data.pictures.splits import open_splits
from trainer.data.prepare import imagenet
from trainer.data.prepare.imagenet import DEVKIT, TRAIN, VAL, read_synsets
from trainer.data.prepare.program import main

NUM_CLASSES = 5
COUNT = 5 * 8 + 23


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ilsvrc")
    return folder, write_archives(folder, num_classes=NUM_CLASSES, num_train=8, num_val=23)


@pytest.fixture(autouse=True)
def reads_each_meta_once(monkeypatch):
    """SciPy takes most of a second to load, in a process of its own; what it said of a file holds."""
    monkeypatch.setattr(imagenet, "read_synsets", KNOWN)


KNOWN = cache(read_synsets)


@pytest.fixture
def archives(made, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(made[0], tmp_path / "archives"))


@pytest.fixture
def expected(made):
    return made[1]


def prepare(archives: Path, target: Path, *more: str) -> int:
    sums = ["--checksums", str(archives / "SUMS")] if "--checksums" not in more else []
    return main(["imagenet", "--from", str(archives), "--to", str(target), *sums, *more])


def staged(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial") / "data"


def test_class_folders_hold_every_picture_and_trainers_read_them(made, tmp_path, capsys):
    archives, expected = made
    target = tmp_path / "imagenet"
    assert prepare(archives, target, "--json") == 0
    assert read_prepared(target) == expected
    train, val = open_splits(target)
    assert train.classes == val.classes == tuple(class_names(NUM_CLASSES))
    assert (len(train.labels), len(val.labels)) == (40, 23)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    num_bytes = sum(len(content) for content in expected.values())
    assert events[-1] == {
        "event": "done",
        "text": f"{COUNT} files, 0.1 MB in {target}",
        "folder": str(target),
        "files": COUNT,
        "bytes": num_bytes,
        "changed": True,
    }
    assert {event["verb"] for event in events[:-1]} <= {"extracting"}
    assert [path.name for path in tmp_path.iterdir()] == ["imagenet"]


def test_equal_archives_give_equal_bytes(made, tmp_path):
    for name in ("one", "two"):
        assert prepare(made[0], tmp_path / name) == 0
    assert read_folder(tmp_path / "one") == read_folder(tmp_path / "two")


def test_a_second_time_nothing_is_done_and_a_lost_file_is_noticed(made, tmp_path, capsys):
    target = tmp_path / "imagenet"
    assert prepare(made[0], target) == 0
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert prepare(made[0], target) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("(there already)")
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before
    next((target / "train").rglob("*.JPEG")).unlink()
    assert prepare(made[0], target) == 1
    assert f"was prepared with {COUNT} files" in capsys.readouterr().err


def test_another_folder_of_that_name_is_left_alone(made, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    assert prepare(made[0], tmp_path / "mine") == 1
    assert "exists already, and is not a prepared imagenet" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert prepare(made[0], tmp_path / "empty") == 0


def _cut(archives: Path) -> None:
    with (archives / TRAIN).open("r+b") as file:
        file.truncate(50_000)


def _flip(archives: Path) -> None:
    content = bytearray((archives / VAL).read_bytes())
    content[700] ^= 1  # in the first picture
    (archives / VAL).write_bytes(content)


def _flat(archives: Path) -> None:
    shutil.copy(archives / VAL, archives / TRAIN)
    write_sums(archives)


def _other_labels(archives: Path) -> None:
    write_devkit(archives / DEVKIT, class_names(NUM_CLASSES), [0] * 22)
    write_sums(archives)


def _twice(archives: Path) -> None:
    with tarfile.open(archives / VAL, "a") as archive:
        member = archive.getmembers()[0]
        member.name = f"again/{member.name}"
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    write_sums(archives)


def _other_classes(archives: Path) -> None:
    names = [name.replace("n01", "n02") for name in class_names(NUM_CLASSES)]
    write_devkit(archives / DEVKIT, names, [n % NUM_CLASSES for n in range(23)])
    write_sums(archives)


def _no_meta(archives: Path) -> None:
    with tarfile.open(archives / DEVKIT, "w:gz"):
        pass
    write_sums(archives)


def _no_sum(archives: Path) -> None:
    (archives / "SUMS").write_text(f"{'0' * 32}  {TRAIN}\n")


def _odd_sums(archives: Path) -> None:
    (archives / "SUMS").write_text("hello\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, f"`{TRAIN}` is cut off: "),
        (_flip, f"{VAL}` is not the archive that `SUMS` lists: its MD5 is "),
        (lambda archives: (archives / VAL).unlink(), f"holds no `{VAL}` (hint: get it from https:"),
        (_flat, f"`{TRAIN}` holds `ILSVRC2012_val_00000001.JPEG`, not tar archives of classes"),
        (_other_labels, "the devkit knows no such picture"),
        (_twice, "two members are the same picture"),
        (_other_classes, "train and val have other classes: n01440764, n01440771"),
        (_no_meta, f"`{DEVKIT}` holds no `data/meta.mat`"),
        (_no_sum, f"none for `{DEVKIT}`, `{VAL}` (hint: sha256sum"),
        (_odd_sums, "line 1 of "),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_called_done(
    archives, tmp_path, capsys, damage, said
):
    damage(archives)
    assert prepare(archives, tmp_path / "imagenet") == 1
    out, error = capsys.readouterr()
    assert said in error
    assert (len(error.splitlines()), "(hint: " in error) == (1, True)
    assert '"done"' not in out
    assert not (tmp_path / "imagenet").exists()


@pytest.mark.parametrize("num_cuts", [1, 4])
def test_classes_are_read_from_meta_mat_or_its_damage_is_named(tmp_path, num_cuts):
    names = class_names(3)
    write_devkit(tmp_path / DEVKIT, names, [0])
    with tarfile.open(tmp_path / DEVKIT) as devkit:
        member = devkit.extractfile("ILSVRC2012_devkit_t12/data/meta.mat")
        assert member is not None
        meta = member.read()
    assert read_synsets(meta) == {1: names[0], 2: names[1], 3: names[2], 4: "n00001740"}
    draw = seeds.dice(5)
    cut = [b"", b"hello", meta[:128], meta[: draw.randrange(len(meta))]]
    for damaged in cut[-num_cuts:]:
        with pytest.raises(TrainingError, match=r"^it is a damaged MATLAB file: .+$"):
            read_synsets(damaged)
    for _ in range((num_cuts + 1) // 2):  # SciPy takes most of a second to load
        flipped = bytearray(meta)
        flipped[draw.randrange(126, len(meta))] ^= 1 << draw.randrange(8)
        # Never another error; where the flip lies outside of the synsets there is none.
        with contextlib.suppress(TrainingError):
            read_synsets(bytes(flipped))


def test_archives_mended_after_a_failure_are_unpacked_anew(archives, tmp_path, made, expected):
    target = tmp_path / "imagenet"
    _flip(archives)
    assert prepare(archives, target) == 1
    time.sleep(0.01)
    shutil.copyfile(made[0] / VAL, archives / VAL)
    assert prepare(archives, target) == 0
    assert read_prepared(target) == expected


def test_the_published_checksums_hold_without_the_users_own(archives, tmp_path, capsys):
    assert main(["imagenet", "--from", str(archives), "--to", str(tmp_path / "x")]) == 1
    assert "not fa75699e90414af021442c21a62c3abf (hint: get it again" in capsys.readouterr().err


def test_download_says_where_to_register(tmp_path, capsys):
    arguments = ["--from", str(tmp_path), "--to", str(tmp_path / "x"), "--download"]
    assert main(["imagenet", *arguments]) == 1
    error = capsys.readouterr().err
    assert "https://www.image-net.org/download-images" in error
    assert all(name in error for name in (DEVKIT, VAL, TRAIN))


def test_an_interrupted_prepare_keeps_whole_files_and_writes_half_ones_again(
    archives, tmp_path, made, expected
):
    target = tmp_path / "imagenet"
    _cut(archives)
    assert prepare(archives, target) == 1
    whole, half = sorted((staged(target) / "val").rglob("*.JPEG"))[:2]
    half.write_bytes(half.read_bytes()[:10])
    inodes = whole.stat().st_ino, whole.stat().st_mtime_ns
    # As if the validation pictures had not been finished.
    _forget(target, VAL, is_done=False)
    shutil.copyfile(made[0] / TRAIN, archives / TRAIN)
    assert prepare(archives, target) == 0
    assert read_prepared(target) == expected
    kept = target / whole.relative_to(staged(target))
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == inodes


def test_after_a_restart_of_the_machine_only_what_is_on_the_disk_for_good_is_trusted(
    archives, tmp_path, made, expected
):
    target = tmp_path / "imagenet"
    _cut(archives)
    assert prepare(archives, target) == 1
    # What a crash of the machine can leave: the right sizes, without the content.
    for path in staged(target).rglob("*.JPEG"):
        path.write_bytes(bytes(path.stat().st_size))
    _forget(target, VAL, is_done=False, num_files=0)
    shutil.copyfile(made[0] / TRAIN, archives / TRAIN)
    state = json.loads((staged(target).parent / "state/archives.json").read_text())
    state["boot"] = "before"
    (staged(target).parent / "state/archives.json").write_text(json.dumps(state))
    assert prepare(archives, target) == 0
    assert read_prepared(target) == expected


def _forget(target: Path, archive: str, **fields: object) -> None:
    path = staged(target).parent / "state/archives.json"
    state = json.loads(path.read_text())
    for each in state["archives"]:
        if each["name"] == archive:
            each.update(fields)
    path.write_text(json.dumps(state))


def test_a_second_program_on_the_same_folder_is_refused(archives, tmp_path, capsys):
    from trainer.data.prepare.staging import Staging

    with Staging(tmp_path / "imagenet", "imagenet"):
        assert prepare(archives, tmp_path / "imagenet") == 1
    assert "another program is working on" in capsys.readouterr().err


def is_killed(process: subprocess.Popen[bytes], target: Path, after_s: float) -> bool:
    """Kill it so long after it began to write; False where it had ended by itself."""
    wait_until(lambda: process.poll() is not None or staged(target).exists())
    time.sleep(after_s)
    process.kill()
    return process.wait() != 0


@pytest.mark.parametrize("most_kills", [2, 5])
def test_killed_at_any_time_the_same_command_goes_on(tmp_path, most_kills):
    """Whole processes, killed at random moments, until one gets to its end."""
    archives = tmp_path / "archives"
    expected = write_archives(
        archives, num_classes=20, num_train=100, num_val=200, sizes=(20_000, 45_000, 3_000)
    )
    target = tmp_path / "imagenet"
    argv = [sys.executable, "-m", "trainer.data.prepare", "imagenet", "--from", str(archives)]
    argv += ["--to", str(target), "--checksums", str(archives / "SUMS"), "--json"]
    draw, num_kills, starts = seeds.dice(4), 0, 0
    while num_kills < most_kills or not target.exists():
        # Done before it was killed often enough: from the beginning.
        shutil.rmtree(target, ignore_errors=True)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        starts += 1
        assert starts < 60
        if num_kills < 2 * most_kills:
            num_kills += is_killed(process, target, draw.uniform(0, 0.15))
        else:
            assert process.wait() == 0
    is_whole = read_prepared(target) == expected
    campaign("prepare killed", tried=num_kills, survived=num_kills if is_whole else 0)
    assert is_whole
