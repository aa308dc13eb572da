"""Made pictures of ImageNet's layout: their sizes and kinds, equal each time, fit to learn from."""

from __future__ import annotations

import io
import json
import statistics
from collections import Counter

import pytest
from PIL import Image

from tests.folders import read_folder
from trainer.common.errors import TrainingError
from trainer.data.disk.durability import boot_id
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder
from trainer.data.pictures.splits import open_splits
from trainer.data.synthesize.imagenet import ImageSet, main, make_image, make_images

IMAGES = ImageSet(num_train=75, num_classes=3, seed=0)


def make(folder, images=IMAGES):
    make_images(folder, images, Events(as_json=True))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("data") / "like-imagenet")


def test_the_layout_is_imagenets(made):
    names = set(read_folder(made))
    train = {f"train/n{n % 3 + 1:08}/n{n % 3 + 1:08}_{n}.JPEG" for n in range(75)}
    val = {f"val/n{n + 1:08}/ILSVRC2012_val_{n + 1:08}.JPEG" for n in range(3)}
    assert names == train | val | {"about.json"}
    assert {entry.name for entry in made.parent.iterdir()} == {made.name}
    pictures, _ = open_splits(made)
    assert pictures.classes == ("n00000001", "n00000002", "n00000003")
    assert Counter(pictures.labels) == {0: 25, 1: 25, 2: 25}


def test_sizes_are_like_imagenets(made):
    sizes = [path.stat().st_size for path in made.rglob("*.JPEG")]
    assert 85_000 < statistics.mean(sizes) < 135_000
    assert max(sizes) > 3 * min(sizes)
    shapes = Counter()
    for path in made.rglob("*.JPEG"):
        with Image.open(path) as picture:
            shapes[picture.size] += 1
    assert shapes.most_common(1)[0][0] == (500, 375)
    assert any(height > width for width, height in shapes)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(0, ("JPEG", "RGB")), (3, ("JPEG", "L")), (5, ("JPEG", "CMYK")), (7, ("PNG", "RGB"))],
)
def test_odd_pictures_are_among_them(number, kind):
    with Image.open(io.BytesIO(make_image(IMAGES, "train", number))) as picture:
        picture.load()
        assert (picture.format, picture.mode) == kind


def test_equal_arguments_give_equal_files_from_any_number_of_processes(made, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.data.synthesize.imagenet.num_cores", lambda: 1)
    assert read_folder(make(tmp_path / "again")) == read_folder(made)
    other = ImageSet(num_train=75, num_classes=3, seed=1)
    assert make_image(other, "train", 0) != make_image(IMAGES, "train", 0)
    assert make_image(IMAGES, "val", 0) != make_image(IMAGES, "train", 0)


def test_classes_can_be_told_apart(made):
    def thumbnail(path):
        with Image.open(path) as picture:
            # Colours by their place in the circle of hues, whatever their light.
            hues = picture.convert("RGB").convert("HSV").resize((32, 32)).getchannel("H")
            return hues.histogram()

    histograms = {path: thumbnail(path) for path in (made / "train").glob("*/*.JPEG")}
    means = {}
    for label in ("n00000001", "n00000002", "n00000003"):
        of_class = [h for path, h in histograms.items() if path.parent.name == label]
        means[label] = [statistics.mean(values) for values in zip(*of_class, strict=True)]

    def nearest(histogram):
        return min(
            means,
            key=lambda label: sum(abs(a - b) for a, b in zip(histogram, means[label], strict=True)),
        )

    right = sum(nearest(h) == path.parent.name for path, h in histograms.items())
    assert right > 0.8 * len(histograms)


def test_a_set_that_is_there_stays_and_another_is_refused(made, capsys):
    times = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    make(made)
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == times
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (done["changed"], done["samples"]) == (False, {"train": 75, "val": 3})
    with pytest.raises(TrainingError, match="holds something else than this set"):
        make(made, ImageSet(num_train=76, num_classes=3, seed=0))


def test_what_was_begun_stays_unless_it_was_of_another_set(tmp_path, capsys):
    small = ImageSet(num_train=4, num_classes=2, seed=0)
    other = ImageSet(num_train=4, num_classes=2, seed=1)
    make(tmp_path / "made", small)
    for images, is_kept in ((small, True), (other, False)):
        target = tmp_path / f"made-{images.seed}"
        # As a kill leaves it: the first picture is written, as something that would not be made.
        with PartialFolder(target) as partial:
            path = partial.data / small.path("train", 0)
            path.parent.mkdir(parents=True)
            path.write_bytes(b"kept")
            begun = (tmp_path / "made/about.json").read_bytes()
            boot = str(boot_id())
            (partial.state / "about.json").write_bytes(begun + boot.encode())
        make(target, images)
        assert ((target / small.path("train", 0)).read_bytes() == b"kept") is is_kept


def test_fewer_images_than_classes_are_refused_with_a_hint(tmp_path, capsys):
    assert main(["imagenet", "--images", "5", "--to", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err == (
        "error: 5 images of 1000 classes: some would have none (hint: --classes 5)\n"
    )
    assert list(tmp_path.iterdir()) == []
