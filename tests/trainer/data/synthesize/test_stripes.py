"""Made sets are equal for equal arguments, whole or absent, and never mixed with anything else."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from PIL import Image

from tests.busy import HANG_S
from tests.folders import read_folder
from trainer.common.errors import TrainingError
from trainer.data.pictures.splits import open_splits
from trainer.data.synthesize import stripes
from trainer.data.synthesize.folders import default_folder
from trainer.data.synthesize.stripes import INSECTS, main, make_pictures

SMALL = {"num_classes": 3, "num_train": 7, "num_val": 4, "size": 40, "seed": 1}


def test_a_set_holds_what_was_asked_for_as_real_pictures(tmp_path):
    make_pictures(tmp_path / "set", **SMALL)
    train, val = open_splits(tmp_path / "set")
    assert train.classes == ("class-0000", "class-0001", "class-0002")
    assert (sorted(train.labels), sorted(val.labels)) == ([0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 2])
    for index in range(7):
        picture = Image.open(io.BytesIO(train.read(index)))
        assert (picture.format, picture.mode) == ("JPEG", "RGB")
        assert max(picture.size) == 40
        assert 30 <= min(picture.size) <= 40


def test_equal_arguments_give_equal_files_and_another_seed_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_pictures(tmp_path / name, **{**SMALL, "seed": seed})
    assert read_folder(tmp_path / "a") == read_folder(tmp_path / "b")
    assert read_folder(tmp_path / "a") != read_folder(tmp_path / "c")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_set_that_is_there_stays_and_another_is_refused(tmp_path):
    folder = tmp_path / "set"
    make_pictures(folder, **SMALL)
    before = folder.stat().st_mtime_ns
    make_pictures(folder, **SMALL)
    assert folder.stat().st_mtime_ns == before
    with pytest.raises(TrainingError, match="holds a set of other pictures"):
        make_pictures(folder, **{**SMALL, "size": 41})


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_no_made_set_is_never_touched(tmp_path, is_file):
    target = tmp_path / "mine"
    keep = target if is_file else target / "keep.txt"
    keep.parent.mkdir(exist_ok=True)
    keep.write_text("mine")
    with pytest.raises(TrainingError, match="holds something else"):
        make_pictures(target, **SMALL)
    assert keep.read_text() == "mine"


def test_processes_that_make_the_same_set_at_once_all_succeed(tmp_path):
    argv = [sys.executable, "-m", "trainer.data.synthesize.stripes", "--to", str(tmp_path / "set")]
    argv += ["--classes", "2", "--train", "40", "--val", "4", "--size", "48"]
    makers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {maker.communicate(timeout=HANG_S)[0] for maker in makers}
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert said == {f"40 training and 4 validation pictures in {tmp_path / 'set'}\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_set_that_cannot_be_finished_leaves_nothing(tmp_path, monkeypatch):
    def full(_picture):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stripes, "_encode", full)
    with pytest.raises(TrainingError, match="No space left on device"):
        make_pictures(tmp_path / "set", **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_insects_are_drawn_as_such(tmp_path):
    code = main(["--to", str(tmp_path / "set"), "--insects", "--train", "8", "--val", "2"])
    assert code == 0
    train, _ = open_splits(tmp_path / "set")
    assert train.classes == INSECTS
    ants, bees = (
        [
            Image.open(io.BytesIO(train.read(index))).resize((1, 1), Image.Resampling.BOX)
            for index, label in enumerate(train.labels)
            if label == wanted
        ]
        for wanted in (0, 1)
    )
    # Ants run on sand, bees sit on leaves: red over green, green over red.
    assert all(red > green for red, green, _ in (ant.getpixel((0, 0)) for ant in ants))
    assert all(green > red for red, green, _ in (bee.getpixel((0, 0)) for bee in bees))


def test_sets_of_other_arguments_have_folders_of_their_own():
    assert default_folder(**SMALL) == default_folder(**SMALL)
    assert default_folder(**SMALL) != default_folder(**{**SMALL, "seed": 2})


def test_the_command_line_refuses_a_class_without_a_picture(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--to", str(tmp_path / "set"), "--classes", "5", "--val", "4"])
    assert "each class needs a picture" in capsys.readouterr().err
