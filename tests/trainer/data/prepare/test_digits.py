"""`python -m trainer.data.prepare digits`: scikit-learn's digits as MNIST's four files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter

import pytest

from tests.folders import make_folder, read_folder
from trainer.common.errors import TrainingError
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder
from trainer.data.pictures.idx import MNIST_FILES, read_idx
from trainer.data.prepare.digits import enlarge, prepare_digits, split
from trainer.data.prepare.program import main

# Equal on every machine: the digest of a dataset hangs on it.
SHA256 = {
    "t10k-images-idx3-ubyte": "deba68155966101f2d9bdf4c7d2c90104ee08ec859c8f9762810c7d95f442409",
    "t10k-labels-idx1-ubyte": "6ff66f7ef309c514bc431118f706c8249a50930d6256e9191340a2d710351535",
    "train-images-idx3-ubyte": "4449f4daf4ff0e1346df6fe50bf60506c4a77a794b4be8fb05ac35bccd18e858",
    "train-labels-idx1-ubyte": "997d8237ea59870b42f811eaad3e13914b38ab6a9a5e9ad6affdff0f34e7cfdc",
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "digits"
    prepare_digits(folder, Events(as_json=False))
    return folder


def test_the_files_are_the_same_on_every_machine(digits):
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in digits.iterdir()}
    assert found == SHA256
    assert tuple(sorted(found)) == tuple(sorted(MNIST_FILES))


def test_every_picture_of_scikit_learn_is_there_once_unchanged_but_in_size(digits):
    from sklearn.datasets import load_digits

    found = Counter()
    for prefix in ("train", "t10k"):
        (count, _, _), pixels = read_idx(digits, f"{prefix}-images-idx3-ubyte")
        _, labels = read_idx(digits, f"{prefix}-labels-idx1-ubyte")
        for number in range(count):
            picture = pixels[number * 784 : (number + 1) * 784]
            rows = [picture[28 * y + 3 : 28 * y + 27 : 3] for y in range(3, 27, 3)]
            found[labels[number], tuple(round(v * 16 / 255) for row in rows for v in row)] += 1
    bundle = load_digits()
    expected = Counter(
        (int(label), tuple(int(v) for v in image.ravel()))
        for image, label in zip(bundle.images, bundle.target, strict=True)
    )
    assert found == expected


def test_every_fifth_of_each_label_goes_to_testing():
    train, test = split([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0])
    assert (train, test) == ([0, 1, 2, 3, 5, 6, 7, 8, 10], [4, 9])


def test_a_pixel_becomes_a_block_within_a_border():
    import numpy as np

    images = np.zeros((1, 8, 8))
    images[0, 0, 0], images[0, 7, 7] = 16, 8
    big = enlarge(images)[0]
    expected = np.zeros((28, 28), dtype=np.uint8)
    expected[2:5, 2:5], expected[23:26, 23:26] = 255, 128
    assert (big == expected).all()


def test_a_second_time_nothing_is_written(digits, capsys):
    times = {path.name: path.stat().st_mtime_ns for path in digits.iterdir()}
    prepare_digits(digits, Events(as_json=True))
    assert {path.name: path.stat().st_mtime_ns for path in digits.iterdir()} == times
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["changed"] is False
    assert [path.name for path in digits.parent.iterdir()] == ["digits"]


@pytest.mark.parametrize("change", ["damaged", "one more", "one less", "others", "a file"])
def test_what_is_there_and_is_something_else_stays(digits, tmp_path, capsys, change):
    target = tmp_path / "target"
    if change == "others":
        make_folder(target, {"train/ants/1.jpg": b"ant"})
    elif change == "a file":
        target.write_bytes(b"mine")
    else:
        shutil.copytree(digits, target)
    if change == "damaged":
        (target / MNIST_FILES[1]).write_bytes(b"half")
    elif change == "one more":
        (target / "notes").write_bytes(b"mine")
    elif change == "one less":
        (target / MNIST_FILES[1]).unlink()
    before = read_folder(tmp_path)
    assert main(["digits", "--to", str(target)]) == 1
    assert capsys.readouterr().err == (
        f"error: `{target}` exists already, and is not a prepared digits "
        "(hint: choose another --to, or remove it)\n"
    )
    assert read_folder(tmp_path) == before


def test_what_another_program_makes_is_left_to_it(tmp_path):
    with PartialFolder(tmp_path / "digits"):
        with pytest.raises(TrainingError, match="another program is working on"):
            prepare_digits(tmp_path / "digits", Events(as_json=True))


@pytest.mark.parametrize("option", ["--from=x", "--download", "--checksums=x"])
def test_what_is_for_archives_is_refused_by_name(tmp_path, capsys, option):
    assert main(["digits", option, "--to", str(tmp_path / "digits")]) == 1
    assert capsys.readouterr().err == (
        "error: digits come with scikit-learn, not from archives: "
        f"{option.partition('=')[0]} is of no use (hint: leave it out)\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_code_1(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["digits", "--to", str(tmp_path / "file" / "digits")]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1
