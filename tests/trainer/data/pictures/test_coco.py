"""Data sets in COCO's format: what is read of them, what is refused, and in which order it comes."""

import io
import json
from array import array
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.folders import read_folder
from trainer.common.errors import TrainingError
from trainer.data.pictures.coco import (
    LEAST_SIDE,
    CocoObject,
    CocoPicture,
    read_annotations,
    read_split,
    require_equal_categories,
)
from trainer.data.pictures.coco_batches import count_batches, grouped_batches, is_flipped
from trainer.data.synthesize.coco import CATEGORIES, main, make_coco

SQUARE = [2.0, 2.0, 12.0, 2.0, 12.0, 12.0, 2.0, 12.0]
CODE = {"size": [30, 40], "counts": [100, 5, 1095]}
# As pycocotools packs runs of 100, 5, 1000, 30 and 65.
PACKED = {"size": [30, 40], "counts": "T35Xo0i0iRO"}


def annotation(number: int, image: int, **changes) -> dict:
    return {
        "id": number,
        "image_id": image,
        "category_id": 5,
        "iscrowd": 0,
        "area": 100.0,
        "bbox": [2.0, 2.0, 10.0, 10.0],
        "segmentation": [SQUARE],
        **changes,
    }


def without(key: str, number: int = 8) -> dict:
    return {name: value for name, value in annotation(number, 10).items() if name != key}


def content(**changes) -> dict:
    """Three pictures: two objects, a crowd only, nothing."""
    return {
        "images": [
            {"id": 30, "file_name": "c.jpg", "width": 40, "height": 30},
            {"id": 10, "file_name": "a.jpg", "width": 40, "height": 30},
            {"id": 20, "file_name": "b.jpg", "width": 30, "height": 40},
        ],
        "annotations": [
            annotation(1, 10),
            annotation(2, 10, category_id=90, bbox=[35, -4, 20, 50], segmentation=CODE),
            annotation(3, 20, iscrowd=1, segmentation={**CODE, "size": [40, 30]}),
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 5, "name": "airplane"}],
        **changes,
    }


def write(folder: Path, split: str, found: object) -> Path:
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    path = folder / "annotations" / f"instances_{split}.json"
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    (folder / split).mkdir(exist_ok=True)
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        Image.new("RGB", (40, 30)).save(folder / split / name)
    return folder


class TestReading:
    def test_pictures_come_by_id_with_boxes_cut_at_their_edges(self, tmp_path):
        found = read_split(write(tmp_path, "val2017", content()), "val2017")
        folder = tmp_path / "val2017"
        square = CocoObject(
            annotation=1, label=1, box=(2.0, 2.0, 12.0, 12.0), outline=(array("d", SQUARE),)
        )
        brush = CocoObject(annotation=2, label=2, box=(35, 0.0, 40, 30), outline=CODE)
        assert found.pictures == (
            CocoPicture(id=10, path=folder / "a.jpg", width=40, height=30, objects=(square, brush)),
            CocoPicture(id=20, path=folder / "b.jpg", width=30, height=40, objects=()),
            CocoPicture(id=30, path=folder / "c.jpg", width=40, height=30, objects=()),
        )
        assert found.num_unusable == 0

    def test_labels_count_the_categories_without_their_gaps(self, tmp_path):
        found = read_split(write(tmp_path, "val2017", content()), "val2017")
        assert (found.classes, found.category_ids) == (("airplane", "toothbrush"), (5, 90))

    def test_what_has_no_area_is_counted_and_left_out(self, tmp_path):
        useless = [
            annotation(1, 10, bbox=[5, 5, 0, 7]),
            annotation(2, 10, bbox=[41, 5, 10, 7]),
            annotation(9, 10, bbox=[5, 5, LEAST_SIDE / 2, 7]),
            annotation(11, 10, bbox=[5, 5, LEAST_SIDE, 7]),
            annotation(3, 10, segmentation=[[1.0, 1.0, 5.0, 5.0]]),
            annotation(4, 10, segmentation=[]),
            annotation(5, 10, segmentation=[[1.0, 1.0, 5.0, 5.0], SQUARE]),
            annotation(6, 10, segmentation=None),
            annotation(7, 10, segmentation=[[]]),
            without("segmentation"),
        ]
        folder = write(tmp_path, "val2017", content(annotations=useless))
        found = read_split(folder, "val2017")
        assert [each.annotation for each in found.pictures[0].objects] == [11, 5]
        assert found.pictures[0].objects[1].outline == (array("d", SQUARE),)
        assert found.num_unusable == 8

    def test_runs_cover_the_picture_packed_or_not_also_as_whole_numbers_with_a_point(
        self, tmp_path
    ):
        outlines = [PACKED, CODE, {**CODE, "counts": [100.0, 5.0, 1095.0]}]
        useful = [annotation(number, 10, segmentation=each) for number, each in enumerate(outlines)]
        found = read_split(write(tmp_path, "val2017", content(annotations=useful)), "val2017")
        assert [each.outline for each in found.pictures[0].objects] == outlines

    @pytest.mark.parametrize(
        "counts",
        [
            *([], [1199], [100, 5, 1094], [100, 5, 1096], [100.5, 5, 1094.5], [100, float("nan")]),
            *("", "T35", PACKED["counts"][:-1], PACKED["counts"] + "1", "o" * 100_000, "\u00e9"),
            PACKED["counts"].replace("T35", "D35"),
        ],
    )
    def test_runs_that_cover_less_or_more_than_the_picture_are_refused(self, tmp_path, counts):
        """What draws them leaves the rest as it lay in memory."""
        wrong = annotation(8, 10, segmentation={"size": [30, 40], "counts": counts})
        with pytest.raises(TrainingError) as raised:
            read_split(write(tmp_path, "val2017", content(annotations=[wrong])), "val2017")
        assert str(raised.value).endswith(
            "cannot be used: the outline of annotation 8 is not of its image's size"
        )


class TestWhatTrainingAndEvaluationRead:
    """As pycocotools takes it, which asks for more than the format's usual writers give."""

    def test_what_a_file_leaves_out_is_what_the_rest_says(self, tmp_path):
        bare = {"id": 0, "image_id": 20, "category_id": 5, "bbox": [2, 3, 10, 5]}
        crowd = {**bare, "id": 0, "iscrowd": True, "area": None, "segmentation": []}
        folder = write(tmp_path, "val2017", content(annotations=[bare, crowd]))
        found = read_annotations(folder / "annotations" / "instances_val2017.json")
        assert [each.area for each in found.annotations] == [50.0, 50.0]
        assert [each.is_crowd for each in found.annotations] == [False, True]
        assert [each.outline for each in found.annotations] == [(), ()]

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_its_text_may_be_in_any_of_jsons_encodings(self, tmp_path, encoding):
        folder = write(tmp_path, "val2017", content())
        path = folder / "annotations" / "instances_val2017.json"
        path.write_bytes(path.read_text().encode(encoding))
        assert len(read_annotations(path).annotations) == 3

    def test_whole_numbers_may_have_a_point(self, tmp_path):
        images = [{**each, "width": float(each["width"])} for each in IMAGES]
        outline = {**CODE, "size": [30.0, 40.0]}
        told = content(images=images, annotations=[annotation(1.0, 10.0, segmentation=outline)])
        found = read_split(write(tmp_path, "val2017", told), "val2017")
        kept = [found.pictures[0].width, found.pictures[0].objects[0].annotation]
        kept += found.pictures[0].objects[0].outline["size"]
        assert kept == [40, 1, 30, 40]
        assert {type(each) for each in kept} == {int}


IMAGES = content()["images"]
WHOLE = "is no whole number from 0 to 9223372036854775807"
MISTAKES = {
    "no json": ("{", "instances_val2017.json` cannot be used: Expecting property name"),
    "no object": ("[]", "it is not a JSON object"),
    "no categories": (
        {"images": [], "annotations": []},
        "it is not in COCO's format: it has no list of `categories`",
    ),
    "a number for a list": (
        content(images=7),
        "it is not in COCO's format: it has no list of `images`",
    ),
    "a box of three": (
        content(annotations=[annotation(1, 10, bbox=[1, 2, 3])]),
        "annotation 1 is not in COCO's format: not enough values",
    ),
    "no box": (
        content(annotations=[annotation(1, 10), without("bbox")]),
        "annotation 8 is not in COCO's format: no `bbox`",
    ),
    "a box of null": (
        content(annotations=[annotation(8, 10, bbox=None)]),
        "annotation 8 is not in COCO's format: cannot unpack",
    ),
    "a box without an end": (
        content(annotations=[annotation(8, 10, bbox=[1, 2, float("inf"), 3])]),
        "annotation 8 is not in COCO's format: its box is not finite",
    ),
    "a number that no float holds": (
        content(annotations=[annotation(8, 10, bbox=[1.0, 2, 10**400, 3])]),
        "annotation 8 is not in COCO's format: int too large to convert to float",
    ),
    "no id": (
        content(annotations=[annotation(1, 10), without("id")]),
        "annotation at place 1 is not in COCO's format: no `id`",
    ),
    "a polygon without its list": (
        content(annotations=[annotation(8, 10, segmentation=SQUARE)]),
        "annotation 8 is not in COCO's format: an outline is a list of polygons, or {size, counts}",
    ),
    "a list of runs": (
        content(annotations=[annotation(8, 10, segmentation=[CODE])]),
        "annotation 8 is not in COCO's format: an outline is a list of polygons, or {size, counts}",
    ),
    "a crowd of another size": (
        content(annotations=[annotation(8, 20, iscrowd=1, segmentation=CODE)]),
        "the outline of annotation 8 is not of its image's size",
    ),
    "a crowd in words": (
        content(annotations=[annotation(8, 10, iscrowd="0")]),
        "annotation 8 is not in COCO's format: `iscrowd` is '0', not 0 or 1",
    ),
    "an area in words": (
        content(annotations=[annotation(8, 10, area="large")]),
        "annotation 8 is not in COCO's format: could not convert string to float: 'large'",
    ),
    "an id in words": (
        content(images=[{**IMAGES[0], "id": "a"}], annotations=[]),
        f"image 'a' is not in COCO's format: 'a' {WHOLE}",
    ),
    "a number as an id in words": (
        content(images=[{**IMAGES[0], "id": "1"}], annotations=[]),
        f"image '1' is not in COCO's format: '1' {WHOLE}",
    ),
    "an id beyond 64 bits": (
        content(images=[{**IMAGES[0], "id": 2**63}], annotations=[]),
        f"image 9223372036854775808 is not in COCO's format: 9223372036854775808 {WHOLE}",
    ),
    "an annotation's id beyond 64 bits": (
        content(annotations=[annotation(2**63, 10)]),
        f"annotation 9223372036854775808 is not in COCO's format: 9223372036854775808 {WHOLE}",
    ),
    "a category's id in words": (
        content(categories=[{"id": "5", "name": "airplane"}], annotations=[]),
        f"category '5' is not in COCO's format: '5' {WHOLE}",
    ),
    "a width beyond 32 bits": (
        content(images=[{**IMAGES[0], "width": 2**31}], annotations=[]),
        "image 30 is not in COCO's format: 2147483648 is no whole number from 0 to 2147483647",
    ),
    "a name that is none": (
        content(images=[{**IMAGES[0], "file_name": 7}], annotations=[]),
        "image 30 is not in COCO's format: ",
    ),
    "an entry that is none": (
        content(annotations=[7]),
        "annotation at place 0 is not in COCO's format: ",
    ),
    "no images": (content(images=[], annotations=[]), "it lists no images"),
    "an id twice": (content(images=[*IMAGES, IMAGES[0]]), "two of its images have one id"),
    "a bad category": (
        content(annotations=[annotation(8, 10, category_id=6)]),
        "annotation 8 has category 6, which it lacks",
    ),
    "a bad category in words": (
        content(annotations=[annotation(8, 10, category_id="5")]),
        "annotation 8 has category '5', which it lacks",
    ),
    "a bad image": (
        content(annotations=[annotation(8, 11)]),
        "annotation 8 is of image 11, which it lacks",
    ),
    "a missing picture": (
        content(images=[*IMAGES, {**IMAGES[0], "id": 7, "file_name": "gone.jpg"}]),
        "`val2017/gone.jpg`, listed by `instances_val2017.json`, is not in `",
    ),
    "an absolute picture": (
        content(images=[*IMAGES, {**IMAGES[0], "id": 7, "file_name": "/data/gone.jpg"}]),
        "`/data/gone.jpg`, listed by `instances_val2017.json`, is not in `",
    ),
    "missing pictures": (
        content(
            images=[{**IMAGES[0], "id": 6 + n, "file_name": f"gone{n}.jpg"} for n in range(3)],
            annotations=[],
        ),
        "`val2017/gone0.jpg` and 2 more, listed by",
    ),
}


class TestMistakes:
    @pytest.mark.parametrize("name", MISTAKES)
    def test_a_wrong_annotation_file_is_named_with_what_is_wrong(self, tmp_path, name):
        found, message = MISTAKES[name]
        with pytest.raises(TrainingError) as raised:
            read_split(write(tmp_path, "val2017", found), "val2017")
        assert message in str(raised.value)

    def test_a_missing_annotation_file_is_named_with_the_format(self, tmp_path):
        with pytest.raises(TrainingError) as raised:
            read_split(tmp_path, "train2017")
        assert str(raised.value) == (
            f"no `annotations/instances_train2017.json` in `{tmp_path}` (hint: a folder as COCO "
            "2017's: train2017/, val2017/, annotations/; or --data synthetic)"
        )

    def test_packed_pictures_are_said_to_be_for_other_readers(self, tmp_path):
        (tmp_path / "index.json").touch()
        with pytest.raises(TrainingError) as raised:
            read_split(tmp_path, "train2017")
        assert str(raised.value) == (
            f"`{tmp_path}` holds shards, and Mask R-CNN reads COCO's folders only (hint: the folder "
            "that was packed: train2017/, val2017/, annotations/)"
        )

    def test_a_missing_folder_of_pictures_is_named(self, tmp_path):
        folder = write(tmp_path, "val2017", content())
        (folder / "val2017").rename(folder / "elsewhere")
        with pytest.raises(TrainingError, match=r"`val2017/a\.jpg` and 2 more"):
            read_split(folder, "val2017")

    def test_splits_of_other_categories_are_refused(self, tmp_path):
        train, val = {5: "airplane", 90: "toothbrush"}, {5: "boat", 90: "toothbrush"}
        with pytest.raises(TrainingError, match="other categories: 5 airplane, 5 boat in one only"):
            require_equal_categories(train, val, tmp_path)


IS_WIDE = [number % 3 != 0 for number in range(50)]  # 33 wide, 17 tall


class TestBatches:
    def test_a_batch_has_one_orientation_and_no_picture_comes_twice(self):
        batches = list(grouped_batches(IS_WIDE, 4, seed=1, epoch=1))
        assert len(batches) == count_batches(IS_WIDE, 4) == 8 + 4
        assert all(len({IS_WIDE[index] for index in batch}) == 1 for batch in batches)
        seen = Counter(index for batch in batches for index in batch)
        assert (len(seen), max(seen.values())) == (48, 1)

    def test_the_order_depends_on_seed_and_epoch_only(self):
        def order(seed: int, epoch: int) -> list[list[int]]:
            return list(grouped_batches(IS_WIDE, 4, seed=seed, epoch=epoch))

        assert order(1, 1) == order(1, 1)
        assert order(1, 1) != order(1, 2)
        assert order(1, 1) != order(2, 1)

    def test_every_second_picture_is_mirrored_in_each_epoch_another(self):
        flips = [[is_flipped(n, seed=1, epoch=epoch) for n in range(400)] for epoch in (1, 2)]
        assert all(150 < sum(each) < 250 for each in flips)
        assert flips[0] != flips[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "shapes"
    make_coco(folder, num_train=60, num_val=24, seed=3)
    return folder


class TestMadeSet:
    def test_it_is_a_data_set_of_both_orientations_with_pictures_that_show_nothing(self, made):
        train, val = read_split(made, "train2017"), read_split(made, "val2017")
        require_equal_categories(train.categories, val.categories, made)
        assert (train.categories, train.num_unusable) == (CATEGORIES, 0)
        assert (len(train.pictures), len(val.pictures)) == (60, 24)
        assert {len(picture.objects) for picture in train.pictures} == {0, 1, 2, 3, 4}
        assert {(each.width, each.height) for each in train.pictures} == {(256, 192), (192, 256)}
        labels = Counter(each.label for picture in train.pictures for each in picture.objects)
        assert min(labels.values()) > 20
        for picture in val.pictures:
            with Image.open(io.BytesIO(picture.path.read_bytes())) as image:
                assert (image.format, image.size) == ("JPEG", (picture.width, picture.height))

    def test_crowds_are_run_length_codes_of_their_box(self, made):
        found = json.loads((made / "annotations/instances_train2017.json").read_bytes())
        crowds = [each for each in found["annotations"] if each["iscrowd"]]
        assert len(crowds) == 5  # every tenth picture but the empty one among them
        for crowd in crowds:
            height, width = crowd["segmentation"]["size"]
            counts = crowd["segmentation"]["counts"]
            inside = [number % 2 == 1 for number, count in enumerate(counts) for _ in range(count)]
            assert len(inside) == height * width
            points = [divmod(place, height) for place, is_in in enumerate(inside) if is_in]
            left, top = min(x for x, _ in points), min(y for _, y in points)
            right, bottom = max(x for x, _ in points) + 1, max(y for _, y in points) + 1
            assert crowd["bbox"] == [left, top, right - left, bottom - top]
            assert crowd["area"] == len(points)

    def test_equal_arguments_give_equal_files(self, made, tmp_path, capsys):
        assert (
            main(["--to", str(tmp_path / "b"), "--train", "60", "--val", "24", "--seed", "3"]) == 0
        )
        assert (
            capsys.readouterr().out == f"60 training and 24 validation pictures in {tmp_path}/b\n"
        )
        assert read_folder(tmp_path / "b") == read_folder(made)

    def test_a_set_that_is_there_stays_and_anything_else_is_not_written_over(self, tmp_path):
        folder = tmp_path / "set"
        make_coco(folder, num_train=2, num_val=2, seed=1)
        before = read_folder(folder)
        make_coco(folder, num_train=2, num_val=2, seed=1)
        with pytest.raises(TrainingError, match="holds something else than this made set"):
            make_coco(folder, num_train=2, num_val=2, seed=2)
        assert read_folder(folder) == before
        assert [path.name for path in tmp_path.iterdir()] == ["set"]
