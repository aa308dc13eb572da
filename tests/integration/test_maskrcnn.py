"""Mask R-CNN on real ranks and real JPEGs: it learns, resumes to the bit, and counts as COCO does."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from jobs.contracts.spec import RunState
from tests import needs
from tests.fakes.gangs import Gangs
from tests.fakes.picture_runs import Trained, call, read_run, train
from trainer.common.accelerators import has_instructions
from trainer.data.synthesize.coco import make_coco

REPO = Path(__file__).parents[2]
CHECKS = "tests.integration.programs.maskrcnn_checks"
HALF = "tests.integration.programs.maskrcnn_half"
MODULE = "trainer.pytorch.maskrcnn"
OTHER_WEIGHTS = "tests.integration.programs.other_weights"
CACHE_CHECKS = "tests.integration.programs.coco_cache_checks"
# Most of a step is for the regions.
SMALL = ("--backbone", "resnet18", "--regions-per-image", "16", "--log-every", "1")
# For what shows in one step of whatever size.
TINY = (
    *("--backbone", "resnet18", "--backbone-weights", "none", "--log-every", "1"),
    *("--regions-per-image", "4", "--image-size", "32", "--batch-per-rank", "1"),
)
RUN_TIMEOUT_S = 400
# Two ranks learn for that long on two cores that have other work, too.
pytestmark = pytest.mark.timeout(1800)
NUM_LEARNING_STEPS = 80


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shapes"
    make_coco(folder, num_train=180, num_val=24, seed=1)
    return folder


@pytest.fixture(scope="module")
def gangs(tmp_path_factory) -> Iterator[Gangs]:
    interpreter = needs.runtime("pytorch")
    made = Gangs(tmp_path_factory.mktemp("workspace"), interpreter=interpreter)
    yield made
    made.end()


@pytest.fixture(scope="module")
def learnt(gangs, shapes) -> Trained:
    """Two ranks of Horovod on fresh weights, as a job of the local engine."""
    arguments = (
        *("--data", str(shapes), "--strategy", "horovod", "--image-size", "96"),
        *("--max-steps", str(NUM_LEARNING_STEPS), "--warmup-steps", "12"),
        *("--lr", "0.03", "--schedule", "cosine", "--backbone-weights", "none"),
        # With fewer it finds next to nothing in pictures of COCO's full size.
        *("--regions-per-image", "32"),
    )
    handle = gangs.submit(
        ["python", "-m", MODULE, *SMALL, *arguments],
        launcher="horovod",
        processes_per_node=2,
        code=str(REPO),
        code_only=("trainer",),
        outputs=("model",),
        hang_s=240.0,
        env={"OMP_NUM_THREADS": "1"},
    )
    status = gangs.wait(handle, RUN_TIMEOUT_S)
    assert status.state is RunState.COMPLETED, (status, gangs.texts(handle, 0))
    return read_run(Path(handle.run_dir))


@pytest.mark.faults
class TestLearning:
    def test_two_ranks_of_horovod_learn_the_shapes(self, learnt):
        found = learnt.summary
        fixed = ("program", "strategy", "world_size", "device", "precision", "backbone")
        assert [found[key] for key in fixed] == [*(MODULE, "horovod", 2, "cpu", "fp32", "resnet18")]
        sizes = ("image_size", "steps", "batch_size", "train_images", "val_images")
        assert [found[key] for key in sizes] == [96, NUM_LEARNING_STEPS, 4, 165, 24]
        assert len(found["weights_sha256"]) == 2
        assert len(set(found["weights_sha256"])) == 1
        assert found["images_per_s"] > 0
        assert 1 < found["boxes_per_image"] < 4
        losses = [value for _, value in learnt.curve("train", "loss")]
        assert len(losses) == NUM_LEARNING_STEPS
        assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
        assert found["val_box_ap50"] >= 0.25
        assert found["val_mask_ap50"] >= 0.3

    def test_all_figures_that_there_are_objects_for_are_metrics_too(self, learnt):
        found = learnt.summary
        named = {key.removeprefix("val_") for key in found if key.startswith("val_")} - {"images"}
        sizes = ("", "50", "75", "_small", "_medium")
        recalls = ("1", "10", "100", "_small", "_medium")
        assert named == {
            f"{kind}_{name}"
            for kind in ("box", "mask")
            for name in [*(f"ap{size}" for size in sizes), *(f"ar{size}" for size in recalls)]
        }
        for name in named:
            assert learnt.curve("val", name)[-1] == (NUM_LEARNING_STEPS, found[f"val_{name}"])

    def test_a_picture_is_drawn_from_the_weights(self, learnt, zygote, shapes, tmp_path):
        picture = min((shapes / "val2017").iterdir())
        weights = learnt.folder / "outputs" / "model" / "maskrcnn.safetensors"
        arguments = ("--predict", str(picture), "--weights", str(weights))
        (said,) = call(zygote, tmp_path, MODULE, arguments)
        assert said.code == 0, said
        folder = tmp_path / "outputs" / "predictions"
        drawn = folder / f"{picture.stem}.png"
        assert said.out.splitlines()[-1] == f"1 file predicted, in {folder}"
        assert drawn.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        with (folder / "predictions.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows
        for row in rows:
            assert row["picture"] == picture.name
            assert row["class"] in ("disc", "box", "triangle")
            assert 0.5 <= float(row["score"]) <= 1
            assert float(row["left"]) < float(row["right"])
            assert float(row["top"]) < float(row["bottom"])


def test_one_rank_trains_and_goes_on_from_its_first_step_to_the_bit(zygote, tmp_path):
    data, folder = tmp_path / "shapes", tmp_path / "checkpoints"
    # The first of these is so narrow that torchvision's pools, which go by it, took strides of 2 and 4.
    make_coco(data, num_train=4, num_val=1, seed=2)
    # At 32 pixels its last maps are 4 by 2: there oneDNN's convolutions of stride 2 read, in bf16 and
    # with a CPU's instructions for matrices (AMX), memory that nobody wrote (torch 2.15).
    size = ("--image-size", "33")
    arguments = (
        *(*TINY, *size, "--data", str(data), "--max-steps", "2", "--precision", "bf16"),
        *("--checkpoint-dir", str(folder), "--checkpoint-every", "1"),
    )
    whole = train(zygote, MODULE, *arguments, folder=tmp_path / "whole", strategy="single")
    fixed = ("program", "strategy", "world_size", "precision", "steps", "val_images")
    assert [whole.summary[key] for key in fixed] == [MODULE, "single", 1, "bf16", 2, 1]
    said = (tmp_path / "whole" / "rank-0.log").read_text()
    assert ("this CPU has no instructions for bf16" in said) is not has_instructions("bf16")
    (second,) = folder.glob("step-000000002-*")
    shutil.rmtree(second)
    again = train(zygote, MODULE, *arguments, folder=tmp_path / "again", strategy="single")
    assert again.summary["resumed_from_step"] == 1
    assert again.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert again.curve("train", "loss") == whole.curve("train", "loss")[1:]
    assert len(again.curve("train", "loss")) == 1


def train_only(shapes: Path, folder: Path) -> Path:
    """COCO as its seed has it: pictures to train on, and the annotations of both splits."""
    shutil.copytree(shapes / "annotations", folder / "annotations")
    shutil.copytree(shapes / "train2017", folder / "train2017")
    return folder


def test_a_set_without_validation_pictures_trains_and_says_that_nothing_is_evaluated(
    zygote, shapes, tmp_path
):
    """By the arguments that evaluate where there is something to evaluate on."""
    data = train_only(shapes, tmp_path / "coco")
    arguments = ("--data", str(data), *TINY, "--max-steps", "2")
    trained = train(zygote, MODULE, *arguments, folder=tmp_path / "run", strategy="single")
    assert (trained.summary["steps"], trained.summary["val_images"]) == (2, 0)
    assert [name for name in trained.summary if name.startswith("val_")] == ["val_images"]
    said = (tmp_path / "run" / "rank-0.log").read_text()
    assert f"warning: no `val2017` in `{data}`: nothing is evaluated, as with --no-evaluate" in said
    (refused,) = call(zygote, tmp_path, MODULE, [*arguments, "--evaluate-only"])
    assert refused.code == 1
    assert refused.last_error.startswith("error: --evaluate-only: no `val2017` in ")


def test_corrupt_pictures_are_skipped_up_to_a_limit(zygote, shapes, tmp_path):
    """One of each split: another is learnt from in its place, and in it nothing is found."""
    data = tmp_path / "coco"
    make_coco(data, num_train=4, num_val=2, seed=2)
    for split in ("train2017", "val2017"):
        about = json.loads((data / "annotations" / f"instances_{split}.json").read_text())
        number = about["annotations"][0]["image_id"]
        (name,) = (each["file_name"] for each in about["images"] if each["id"] == number)
        path = data / split / name
        path.write_bytes(path.read_bytes()[:300])
    arguments = ("--data", str(data), *TINY, "--epochs", "1")
    trained = train(zygote, MODULE, *arguments, folder=tmp_path / "run", strategy="single")
    assert (trained.summary["pictures_skipped"], trained.summary["val_images"]) == (2, 2)
    said = (tmp_path / "run" / "rank-0.log").read_text()
    assert "is not a complete picture: " in said
    assert "; it is skipped, 1 of at most 10\n" in said
    assert "; it is skipped, 2 of at most 10\n" in said


def test_the_cache_of_annotations_holds_what_they_say_and_is_read_once(zygote, shapes, tmp_path):
    data = shutil.copytree(shapes, tmp_path / "coco")
    found = json.loads(zygote.run(CACHE_CHECKS, str(data), folder=tmp_path))
    assert found == {
        "num_pictures": 180,
        "num_same": 180,
        "num_reads": 1,
        "with_objects": True,
        "is_wide": True,
        "num_objects": True,
        "rest": [True, True, True],
        "mapped": "memmap",
        "renamed": "renamed",
        "reads_at_the_end": 2,
    }


@pytest.mark.faults
class TestResume:
    @pytest.fixture(scope="class")
    @classmethod
    def six_steps(cls, zygote, learnt, tmp_path_factory) -> tuple[Trained, tuple[str, ...]]:
        """A run with a checkpoint every two steps, and its arguments.

        Two ranks cannot share its nine validation pictures evenly; weights that have learnt find
        something in them.
        """
        data, kept = tmp_path_factory.mktemp("few") / "shapes", tmp_path_factory.mktemp("kept")
        make_coco(data, num_train=32, num_val=9, seed=2)
        folder = kept / "checkpoints"
        arguments = (
            *(*SMALL, "--data", str(data), "--image-size", "64", "--max-steps", "6"),
            *("--weights", str(learnt.folder / "outputs" / "model" / "maskrcnn.safetensors")),
            *("--precision", "bf16"),
            *("--checkpoint-dir", str(folder), "--checkpoint-every", "2"),
        )
        return train(zygote, MODULE, *arguments, folder=kept / "run", size=2), arguments

    def test_a_training_cut_short_ends_as_one_that_was_not(self, zygote, six_steps, tmp_path):
        whole, arguments = six_steps
        folder = tmp_path / "checkpoints"
        shutil.copytree(arguments[-3], folder)
        for name in ("step-000000004-*", "step-000000006-*"):
            (late,) = folder.glob(name)
            shutil.rmtree(late)
        given = (*arguments[:-3], str(folder), *arguments[-2:])
        again = train(zygote, MODULE, *given, folder=tmp_path / "run", size=2)
        kept = ("weights_sha256", "val_box_ap", "val_mask_ar100", "steps")
        assert [again.summary[key] for key in kept] == [whole.summary[key] for key in kept]
        assert again.summary["resumed_from_step"] == 2
        assert again.curve("train", "loss") == whole.curve("train", "loss")[2:]

    def test_one_rank_finds_what_two_ranks_found(self, zygote, six_steps, tmp_path):
        """Each picture is looked at once, alone, whatever the number of ranks."""
        whole, arguments = six_steps
        more = (*arguments, "--batch-per-rank", "4")
        alone = train(zygote, MODULE, *more, folder=tmp_path, strategy="single")
        assert alone.summary["resumed_from_step"] == 6
        figures = [
            {key: value for key, value in each.summary.items() if key.startswith("val_")}
            for each in (whole, alone)
        ]
        assert figures[0] == figures[1]
        assert figures[0]["val_box_ap50"] > 0
        assert figures[0]["val_mask_ap50"] > 0


class TestFigures:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, zygote, shapes) -> dict[str, Any]:
        return json.loads(zygote.run(CHECKS, str(shapes), folder=shapes))

    def test_the_truth_is_found_to_be_perfect(self, found):
        precise = {key: value for key, value in found["truth"].items() if "ap" in key}
        assert len(precise) == 10
        assert set(precise.values()) == {1.0}
        assert found["truth"]["mask_ar100"] == 1.0

    def test_a_perturbed_copy_gets_pycocotools_own_figures(self, found):
        assert found["perturbed"] == found["perturbed_peer"]
        assert 0.1 < found["perturbed"]["mask_ap"] < found["perturbed"]["box_ap"] < 0.9

    def test_objects_count_however_others_write_them_down(self, found):
        """In a text with a byte order mark, too. Of an object without outline the box alone is found."""
        others = {**found["others"]}
        names = ("ids from 0", "ids anew in each picture", "a crowd without outline")
        whole = [others.pop(name) for name in (*names, "neither area nor iscrowd")]
        assert whole == [[1.0, 1.0]] * 4
        assert len(others) == 5
        assert {box for box, _ in others.values()} == {1.0}
        assert {0.9 < mask < 1 for _, mask in others.values()} == {True}

    def test_who_finds_nothing_gets_zeros(self, found):
        assert set(found["nothing"].values()) == {0.0}
        assert found["nothing"].keys() == found["truth"].keys()

    def test_masks_fit_their_boxes_mirrored_ones_too(self, found):
        samples = found["samples"]
        assert samples["furthest"] < 1.5
        assert samples["is_mirrored"]
        upper = [1, 1, 1, 0, 0, 0, 0, 0, 0]
        both = [1, 1, 1, 0, 0, 1, 1, 1, 0]
        lower = [0, 0, 0, 0, 0, 1, 1, 1, 0]
        assert samples["outlines"] == [[upper, both, lower, lower, [0] * 9]] * 3

    def test_rates_momentum_and_decay_are_those_of_the_options(self, found):
        usual, own = found["recipe"]["usual"], found["recipe"]["own"]
        # A sixteenth of the rate for each of two pictures; a tenth from 16 and 22 of 26 on.
        assert usual[0] == pytest.approx([1.0] * 7 + [0.1] * 2 + [0.01])
        assert own[0] == pytest.approx([1.0] * 3 + [0.1] * 6 + [0.01])
        assert (usual[1:], own[1:]) == ([0.9, 0.25], [0.5, 0.25])

    def test_weights_of_other_classes_are_matched_by_name(self, found):
        weights = found["weights"]
        assert (weights["num_known"], weights["rest"]) == (2, True)
        assert weights["rows"] == [True] * 10

    def test_regions_of_all_pictures_at_once_are_those_that_torchvision_chooses(self, found):
        for mode in ("training", "testing"):
            assert found["regions"][mode], mode
            for num_ours, num_theirs, is_equal in found["regions"][mode]:
                assert num_ours == num_theirs > 90
                assert is_equal

    def test_parts_that_wait_less_compute_what_torchvisions_do(self, found):
        """Losses, gradients and boxes, to the bit; the one who draws regions is the same in both."""
        assert found["waits"]["are_equal"] is True
        assert found["waits"]["num_found"] > 50
        assert found["waits"]["levels"] == [0, 1, 2, 3]

    def test_regions_to_learn_from_are_drawn_evenly_and_up_to_a_number(self, found):
        drawn = found["waits"]["drawn"]
        # Two of four objects, six of twelve of the background, and none of what is neither.
        assert drawn["shares"][:16] == pytest.approx([0.5] * 16, abs=0.06)
        assert drawn["shares"][16:] == [0] * 4
        # One object and one place of background are all of the first; of the second two and six.
        assert drawn["few"] == [[[1, 0, 0], [2]], [[0, 1, 0], [6]]]
        assert drawn["whole"] == [True, True]

    def test_a_chain_of_overlapping_regions_is_followed_to_its_end(self, found):
        ours, by_torchvision = found["regions"]["chain"]

        assert ours == by_torchvision == list(range(0, 40, 2))

    def test_torchvisions_weights_make_torchvisions_network(self, found):
        weights = found["weights"]
        assert weights["torchvision_classes"] == [90, "person", 80]
        assert weights["torchvision_difference"] < 1e-3
        assert weights["is_frozen"]
        assert weights["learning"] == ["layer2", "layer3", "layer4"]


def test_a_mistake_is_one_line_that_says_what_to_do(zygote, shapes, tmp_path):
    zygote.run(OTHER_WEIGHTS, "other.pth", folder=tmp_path)
    picture = next((shapes / "val2017").iterdir())
    cut = shutil.copytree(shapes, tmp_path / "cut")
    for path in (cut / "train2017").iterdir():
        path.write_bytes(path.read_bytes()[:300])
    small = ["--device", "cpu", "--backbone", "resnet18", "--image-size", "32"]
    small += ["--regions-per-image", "4"]
    scratch = ["--backbone-weights", "none"]
    (cut / "there.pth").touch()
    evaluate = ["--evaluate-only", *small, "--data"]
    diverging = ["--lr", "1e30", "--warmup-steps", "0", "--epochs", "1", *small]
    cases = [
        (["--max-steps", "0"], 2, "--max-steps must be above 0, not 0"),
        (["--decay-steps", "9,8"], 2, "--decay-steps are rising numbers above 0, as 60000,80000"),
        (["--decay-steps", "9,x"], 2, "as 60000,80000, not 9,x"),
        (["--momentum", "-1"], 2, "--momentum must be 0 or more, not -1.0"),
        (["--image-size", "16"], 2, "--image-size must be 32 or more, not 16"),
        (["--image-size", "4097"], 2, "--image-size is at most 4096, not 4097"),
        (["--predict", "a.jpg"], 2, "--predict needs --model FILE"),
        ([], 1, "error: no input `coco` was handed to this run (hint: name the folder"),
        (["--data", "/nowhere"], 1, "error: no `annotations/instances_train2017.json`"),
        (
            ["--data", str(shapes), *small],
            1,
            "error: --backbone-weights is not given, and training from scratch has to be asked for",
        ),
        (
            ["--data", str(cut), *scratch, *small, "--max-corrupt", "0"],
            1,
            ".jpg` is not a complete picture",
        ),
        (
            ["--data", str(cut), *scratch, *small],
            1,
            "error: none of the ",
        ),
        (
            ["--data", str(shapes), *scratch, "--batch-per-rank", "500", *small],
            1,
            "error: 165 pictures with objects fill no batch of 500 (hint: a smaller --batch-per",
        ),
        (
            ["--data", str(shapes), "--weights", "other.pth", *small],
            1,
            "error: `other.pth` holds no weights of torchvision's maskrcnn_resnet50_fpn (hint:",
        ),
        (
            ["--data", str(shapes), "--backbone-weights", "other.pth", *small],
            1,
            "error: `other.pth` is not such a backbone",
        ),
        (["--predict", str(picture), "--weights", "."], 1, "error: `.` holds no checkpoint of"),
        # Beside the data are files of --weights, none of --model.
        (
            [*evaluate, str(cut), "--model", "there.pth"],
            1,
            "error: --model `there.pth` is not there",
        ),
        (
            [*evaluate, str(shapes), "--weights", "none"],
            1,
            "error: --evaluate-only found no checkpoint, and no --model is given (hint: --model",
        ),
        (
            ["--data", str(shapes), *scratch, *diverging],
            1,
            "error: training has diverged: the loss of rank",
        ),
    ]
    found = call(zygote, tmp_path, MODULE, *(arguments for arguments, _, _ in cases))
    for (arguments, code, message), said in zip(cases, found, strict=True):
        assert (said.code, message in said.last_error) == (code, True), (arguments, said)
    # The pictures of the step are named by COCO's ids.
    assert "samples of rank 0: " in found[-1].last_error
    assert "(hint: a smaller --lr than 1e+30, or more --warmup-steps)" in found[-1].last_error


class TestHalfPrecision:
    """At COCO's full size, where bf16 rounds to several pixels."""

    def test_layers_compute_in_bf16_and_boxes_and_targets_in_fp32(self, zygote, tmp_path):
        trained = json.loads(zygote.run(HALF, "trained", folder=tmp_path))
        assert trained["convolutions"] == ["torch.bfloat16"]
        assert set(trained["boxes"]) == {"torch.float32"}
        assert trained["boxes"]["torch.float32"] > 20
        assert trained["losses"] == ["torch.float32"]
        assert trained["is_finite"]

    def test_of_objects_found_twice_as_many_are_left_as_in_fp32(self, zygote, tmp_path):
        kept = json.loads(zygote.run(HALF, "kept", folder=tmp_path))
        assert kept == {"fp32": 60, "bf16": 60, "fp16": 60}

    @pytest.mark.parametrize("half", ["bf16", pytest.param("fp16", marks=pytest.mark.faults)])
    def test_the_average_precision_of_boxes_is_fp32s(self, zygote, tmp_path, half):
        argv = (HALF, "average_precision", "fp32", half)
        precise = json.loads(zygote.run(*argv, folder=tmp_path))
        assert 0.3 < precise["fp32"] < 0.9
        assert precise[half] == pytest.approx(precise["fp32"], abs=0.005)


def full_size(shapes: Path, folder: Path) -> Path:
    """Lay small pictures side by side to some of COCO's full size, where objects are as large as before."""
    small = shapes / "val2017"
    about = json.loads((shapes / "annotations" / "instances_val2017.json").read_text())
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    (folder / "val2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for number in range(1, 4):
        canvas = Image.new("RGB", (1333, 800))
        cells = [(x * 190, y * 190) for y in range(4) for x in range(7)]
        for place, (across, down) in enumerate(cells):
            image = about["images"][(place + 7 * number) % len(about["images"])]
            # As training scaled it.
            scale = 96 / min(image["width"], image["height"])
            size = [round(image[side] * scale) for side in ("width", "height")]
            with Image.open(small / image["file_name"]) as picture:
                canvas.paste(picture.resize(size), (across, down))
            for each in about["annotations"]:
                if each["image_id"] == image["id"] and not each["iscrowd"]:
                    objects.append(moved(each, number, len(objects) + 1, scale, across, down))
        name = f"{number:012}.jpg"
        canvas.save(folder / "val2017" / name, quality=95)
        images.append({"id": number, "file_name": name, "width": 1333, "height": 800})
    whole = {"images": images, "annotations": objects, "categories": about["categories"]}
    for split in ("train2017", "val2017"):
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(whole))
    (folder / "train2017").symlink_to("val2017")
    return folder


def moved(
    each: dict[str, Any], image: int, number: int, scale: float, across: int, down: int
) -> dict[str, Any]:
    """Give an object of polygons as it is at another place of another picture."""
    left, top, width, height = (value * scale for value in each["bbox"])
    outline = [
        [value * scale + (down if at % 2 else across) for at, value in enumerate(polygon)]
        for polygon in each["segmentation"]
    ]
    return {
        **each,
        "id": number,
        "image_id": image,
        "area": each["area"] * scale**2,
        "bbox": [left + across, top + down, width, height],
        "segmentation": outline,
    }


def test_figures_of_full_size_pictures_are_those_of_fp32(learnt, zygote, shapes, tmp_path):
    data = full_size(shapes, tmp_path / "large")
    weights = learnt.folder / "outputs" / "model" / "maskrcnn.safetensors"
    found = {}
    for name in ("fp32", "bf16"):
        arguments = ("--data", str(data), "--backbone", "resnet18", "--weights", str(weights))
        arguments += ("--evaluate-only", "--batch-per-rank", "1", "--precision", name)
        done = train(zygote, MODULE, *arguments, folder=tmp_path / name, strategy="single")
        found[name] = [done.summary["val_box_ap50"], done.summary["val_mask_ap50"]]
    assert min(found["fp32"]) > 0.05
    assert found["bf16"] == pytest.approx(found["fp32"], abs=0.005)
