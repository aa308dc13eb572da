"""Saved models look at new files: a table of what they find, and pictures of it, in every program."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.fakes.picture_runs import Said, call_each
from tests.fakes.torch_ranks import Zygote
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.digits import make_default_digits
from trainer.data.synthesize.stripes import INSECTS, make_pictures

MNIST, CLASSIFIER = "trainer.pytorch.mnist", "trainer.pytorch.classifier"
TRANSFER, MASKS = "trainer.pytorch.hymenoptera", "trainer.pytorch.maskrcnn"
SEGMENTATION = "tests.integration.programs.own_segmentation"
SHAPES = ["--backbone", "resnet18", "--image-size", "96", "--regions-per-image", "32"]


def call(zygote: Zygote, folder: Path, *cases: tuple[str, list[str]]) -> list[Said]:
    """Run programs with these arguments, one after the other."""
    return call_each(zygote, folder, [(module, arguments, {}) for module, arguments in cases])


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's predictions."""
    with (folder / "predictions" / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(zygote, tmp_path_factory) -> Path:
    """A folder with data, and a small model of each program."""
    folder = tmp_path_factory.mktemp("trained")
    digits = make_default_digits(num_train=900, num_test=100, seed=1)
    (folder / "digits").symlink_to(digits)
    size = {"num_train": 40, "num_val": 9, "size": 48, "seed": 2}
    make_pictures(folder / "insects", num_classes=2, names=INSECTS, **size)
    make_pictures(folder / "stripes", num_classes=7, num_train=28, num_val=7, size=40, seed=3)
    make_coco(folder / "shapes", num_train=8, num_val=3, seed=1)
    short = ["--epochs", "1", "--output-dir"]
    small = ["--image-size", "32", "--batch-per-rank", "8"]
    # Boxes where they begin, some of which are right.
    shapes = [*SHAPES, "--backbone-weights", "none", "--max-steps", "1", "--lr", "1e-4"]
    cases = [
        (MNIST, ["--data", "digits", *short, "mnist"]),
        (TRANSFER, ["--data", "insects", "--weights", "none", *small, *short, "insect"]),
        (CLASSIFIER, ["--data", "stripes", "--network", "resnet18", *small, *short, "stripe"]),
        (MASKS, ["--data", "shapes", *shapes, *short, "shape"]),
        (SEGMENTATION, [*short, "disc"]),
    ]
    assert [said.code for said in call(zygote, folder, *cases)] == [0] * len(cases)
    return folder


def test_every_program_predicts_new_pictures(zygote, trained, tmp_path):
    """No data set is there, only a model's two files and pictures."""
    model = "{}/model/{}.safetensors"
    kinds = [
        (MNIST, "mnist", "mnist"),
        (TRANSFER, "insect", "hymenoptera"),
        (CLASSIFIER, "stripe", "classifier"),
        (CLASSIFIER, "insect", "hymenoptera"),
        (MASKS, "shape", "maskrcnn"),
        (SEGMENTATION, "disc", "segmentation"),
    ]
    pictures = tmp_path / "pictures"
    (pictures / "more").mkdir(parents=True)
    for number, name in enumerate(["a.jpg", "a.png", "more/b.jpg"]):
        Image.new("RGB", (60, 40), (80 * number, 90, 20)).save(pictures / name)
    (pictures / ".hidden.png").write_bytes(b"no picture")
    (pictures / "notes.txt").write_text("no picture")
    look = ["--predict", str(pictures), "--output-dir"]
    cases = [
        (
            module,
            [*look, f"out-{number}", "--model", str(trained / model.format(folder, name))],
        )
        for number, (module, folder, name) in enumerate(kinds)
    ]
    for said in call(zygote, tmp_path, *cases):
        last = said.out.splitlines()[-1]
        assert (said.code, last.split(",")[0]) == (0, "3 files predicted"), said
    names = ["a.jpg", "a.png", "more/b.jpg"]
    classes = [{str(digit) for digit in range(10)}, set(INSECTS), None, set(INSECTS)]
    for number, wanted in enumerate(classes):
        out = tmp_path / f"out-{number}"
        assert [path.name for path in out.iterdir()] == ["predictions"]
        rows = table(out)
        assert [row["picture"] for row in rows] == names
        for row in rows:
            shares = [float(value) for key, value in row.items() if key.startswith("probability")]
            told = [value for key, value in row.items() if key.startswith("class")]
            assert shares == sorted(shares, reverse=True)
            assert (
                len(set(told)) == len(told) == len(shares) == (2 if wanted == set(INSECTS) else 5)
            )
            assert wanted is None or set(told) <= wanted
            assert 0 < sum(shares) <= 1.001
        with Image.open(out / "predictions" / "predictions.png") as grid:
            assert grid.size == (3 * 236 + 12, 46 + 236 + 12)
    assert table(tmp_path / "out-1") == table(tmp_path / "out-3")
    objects = table(tmp_path / "out-4")
    assert {row["picture"] for row in objects} <= set(names)
    drawn = tmp_path / "out-4" / "predictions"
    assert {str(path.relative_to(drawn)) for path in drawn.rglob("*.png")} == {
        *("a.jpg.png", "a.png.png", "more/b.png")
    }
    discs = table(tmp_path / "out-5")
    assert [row["file"] for row in discs] == names
    assert all(0 <= float(row["disc"]) <= 1 for row in discs)


def test_a_prediction_is_that_of_the_evaluation(zygote, trained, tmp_path):
    """Of each validation picture: as many surest classes are right as the training's summary says."""
    model = str(trained / "insect" / "model" / "hymenoptera.safetensors")
    place = ["--predict", str(trained / "insects" / "val"), "--output-dir", "out"]
    (said,) = call(zygote, tmp_path, (TRANSFER, [*place, "--model", model]))
    assert said.code == 0
    rows = table(tmp_path / "out")
    right = [row for row in rows if row["picture"].split("/")[0] == row["class"]]
    summary = json.loads((trained / "insect" / "summary.json").read_text())
    assert len(right) / len(rows) == pytest.approx(summary["val_top1"])
    assert len(rows) == summary["val_images"] == 9


def test_a_binary_loss_gives_its_own_evaluation_and_each_class_a_probability_by_itself(
    zygote, tmp_path
):
    """The probabilities of all validation pictures make the loss that the evaluation told.

    A model that does not say its loss is one of cross entropy, unless the options say otherwise.
    """
    make_pictures(tmp_path / "set", num_classes=4, num_train=32, num_val=8, size=40, seed=5)
    steps = ["--image-size", "32", "--batch-per-rank", "8", "--epochs", "2", "--lr", "3"]
    binary = ["--loss", "bce", "--label-smoothing", "0.3"]
    learn = ["--data", "set", "--network", "resnet18", *steps, *binary, "--output-dir", "run"]
    model, old = tmp_path / "run" / "model" / "classifier.safetensors", tmp_path / "old.safetensors"
    (said,) = call(zygote, tmp_path, (CLASSIFIER, learn))
    assert said.code == 0, said
    about = json.loads(model.with_suffix(".json").read_text())
    assert about.pop("loss") == "bce"
    old.write_bytes(model.read_bytes())
    old.with_suffix(".json").write_text(json.dumps(about))
    cases = {"said": [str(model)], "silent": [str(old)], "told": [str(old), "--loss", "bce"]}
    look = ["--predict", "set/val", "--output-dir"]
    told = [(CLASSIFIER, [*look, name, "--model", *more]) for name, more in cases.items()]
    assert [each.code for each in call(zygote, tmp_path, *told)] == [0] * len(told)
    losses = []
    for row in table(tmp_path / "said"):
        true = row["picture"].partition("/")[0]
        classes = [value for key, value in row.items() if key.startswith("class")]
        chances = [float(value) for key, value in row.items() if key.startswith("probability")]
        assert sorted(classes) == sorted(about["classes"])
        losses += [
            -math.log(max(chance if name == true else 1 - chance, 1e-9))
            for name, chance in zip(classes, chances, strict=True)
        ]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert sum(losses) / len(losses) == pytest.approx(summary["val_loss"], rel=0.01)
    assert table(tmp_path / "told") == table(tmp_path / "said")

    def sums(name: str) -> list[float]:
        rows = [row.items() for row in table(tmp_path / name)]
        return [sum(float(cell) for key, cell in row if key[:11] == "probability") for row in rows]

    assert sums("silent") == pytest.approx([1] * 8, abs=1e-3)
    assert sums("said") != pytest.approx([1] * 8, abs=0.02)


def figures(folder: Path) -> dict[str, float]:
    """The figures of the held-out set, without the number of its pictures."""
    summary = json.loads((folder / "summary.json").read_text())
    held_out = {
        key: value for key, value in summary.items() if key.split("_")[0] in ("test", "val")
    }
    return {key: value for key, value in held_out.items() if not key.endswith("_images")}


def test_a_saved_model_is_evaluated_to_the_figures_of_its_training(zygote, trained, tmp_path):
    """By every program; Mask R-CNN's norms learnt with its weights, and are frozen with saved ones.

    The metrics of a training in whose folder that is stay. No training picture is looked at, as one that is cut off shows.
    """
    insects = shutil.copytree(trained / "insects", tmp_path / "torn")
    min((insects / "train").rglob("*.jpg")).write_bytes(b"\xff\xd8\xff")
    small = ["--image-size", "32", "--batch-per-rank", "8"]
    kinds = {
        "mnist": (MNIST, "mnist", "digits", []),
        "insect": (TRANSFER, "hymenoptera", insects, small),
        "shape": (MASKS, "maskrcnn", "shapes", [*SHAPES, "--backbone-weights", "none"]),
        "disc": (SEGMENTATION, "segmentation", None, []),
    }
    cases = [
        (
            module,
            [
                *("--evaluate-only", "--output-dir", name, *more),
                *("--model", str(trained / name / "model" / f"{file}.safetensors")),
                *(("--data", str(trained / data)) if data else ()),
            ],
        )
        for name, (module, file, data, more) in kinds.items()
    ]
    for name in kinds:
        (tmp_path / name).mkdir()
        shutil.copy(trained / name / "metrics.jsonl", tmp_path / name)
    for said in call(zygote, tmp_path, *cases):
        assert said.code == 0, said
    for name in kinds:
        own = (trained / name / "metrics.jsonl").read_text()
        assert own
        assert (tmp_path / name / "metrics.jsonl").read_text().startswith(own), name
        before, after = figures(trained / name), figures(tmp_path / name)
        assert any(before.values()), (name, before)
        assert after == pytest.approx(before, rel=1e-5), name
        assert not (tmp_path / name / "model").exists()


def test_weights_that_do_not_know_all_classes_are_not_evaluated(zygote, trained, tmp_path):
    """Mask R-CNN matches classes by name, and its outputs of the others would be random."""
    weights, other = (
        trained / "shape" / "model" / "maskrcnn.safetensors",
        tmp_path / "other.safetensors",
    )
    other.symlink_to(weights)
    about = json.loads(weights.with_suffix(".json").read_text())
    about["classes"] = ["zebra" if name == "box" else name for name in about["classes"]]
    other.with_suffix(".json").write_text(json.dumps(about))
    evaluate = ["--data", str(trained / "shapes"), *SHAPES, "--evaluate-only", "--weights"]
    known, unknown = call(
        zygote, tmp_path, *[(MASKS, [*evaluate, str(each)]) for each in (weights, other)]
    )
    assert known.code == 0, known
    assert (unknown.code, unknown.last_error.partition(" (hint: ")[0]) == (
        1,
        "error: --evaluate-only would evaluate random weights: "
        "`other.safetensors` knows 2 of 3 classes",
    )


def test_a_corrupt_picture_of_a_folder_costs_its_row_and_not_the_table(zygote, trained, tmp_path):
    pictures, broken = tmp_path / "pictures", tmp_path / "broken"
    for folder in (pictures, broken):
        folder.mkdir()
        Image.effect_noise((60, 40), 50).convert("RGB").save(folder / "b.jpg")
        whole = (folder / "b.jpg").read_bytes()
        (folder / "b.jpg").write_bytes(whole[: len(whole) // 2])
    for name in ("a.jpg", "c.jpg"):
        (pictures / name).write_bytes(whole)
    kinds = {
        "disc": (SEGMENTATION, "segmentation"),
        "insect": (TRANSFER, "hymenoptera"),
        "shape": (MASKS, "maskrcnn"),
        "mnist": (MNIST, "mnist"),
    }
    looks = {
        folder: [
            *("--output-dir", folder, "--predict", "pictures", "--model"),
            str(trained / folder / "model" / f"{name}.safetensors"),
        ]
        for folder, (_, name) in kinds.items()
    }
    cases = [(module, looks[folder]) for folder, (module, _) in kinds.items()]
    last = (*looks["mnist"], "--output-dir", "none")
    cases += [
        (MNIST, [*last, *more])
        for more in (["--max-corrupt", "0"], ["--predict", "broken/b.jpg"], ["--predict", "broken"])
    ]
    *told, refused, alone, all_of_them = call(zygote, tmp_path, *cases)
    for skipped, (folder, (module, _)) in zip(told, kinds.items(), strict=True):
        out = tmp_path / folder / "predictions"
        said = f"2 files predicted, 1 skipped, in {out}"
        assert (skipped.code, skipped.out.splitlines()[-1]) == (0, said), (module, skipped)
        why = "image file is truncated" if module == SEGMENTATION else "is not a complete picture: "
        where = "warning: predict() failed at `" if module == SEGMENTATION else "warning: `"
        assert skipped.last_error.startswith(where)
        assert f"b.jpg`{':' * (module == SEGMENTATION)} {why}" in skipped.last_error
        assert skipped.last_error.endswith("; it is skipped, 1 of at most 10")
        if module != MASKS:
            column = "file" if module == SEGMENTATION else "picture"
            names = [row[column] for row in table(tmp_path / folder)]
            assert names == ["a.jpg", "c.jpg"]
    assert [each.code for each in (refused, alone, all_of_them)] == [1, 1, 1]
    assert "is skipped" not in refused.errors + alone.errors
    assert all_of_them.last_error.startswith("error: none of the 1 files of `broken` can be ")
    assert [*(tmp_path / "none" / "predictions").iterdir()] == []


def test_a_model_of_something_else_is_one_line_that_says_what_to_do(zygote, trained, tmp_path):
    digit = Image.new("RGB", (60, 40))
    digit.save(tmp_path / "digit.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "digit.png").read_bytes()[:60])
    (tmp_path / "empty").mkdir()
    mnist, stripe = (
        str(trained / folder / "model" / f"{name}.safetensors")
        for folder, name in (("mnist", "mnist"), ("stripe", "classifier"))
    )
    (tmp_path / "alone.safetensors").write_bytes(Path(mnist).read_bytes())
    for name, text in {
        "list": "[]",
        "huge": '{"classes": ["a"], "image_size": 1000000000, "network": "resnet18"}',
        "odd": '{"classes": [1], "image_size": 32}',
        "lost": '{"classes": ["a"], "image_size": 32, "network": "resnet18", "loss": "mse"}',
    }.items():
        (tmp_path / f"{name}.safetensors").write_bytes(Path(stripe).read_bytes())
        (tmp_path / f"{name}.json").write_text(text)
    other = json.loads(Path(stripe).with_suffix(".json").read_text())
    other["classes"][0] = "zebra"
    (tmp_path / "zebra.safetensors").write_bytes(Path(stripe).read_bytes())
    (tmp_path / "zebra.json").write_text(json.dumps(other))
    look = ["--predict", "digit.png", "--model"]
    data = ["--data", str(trained / "stripes"), "--network", "resnet18", "--evaluate-only"]
    data += ["--image-size", "32", "--batch-per-rank", "8", "--model", "zebra.safetensors"]
    two = ["--rank", "0", "--world-size", "2", "--dist-url", "tcp://127.0.0.1:9"]
    cases = [
        (MNIST, ["--predict", "digit.png"], 2, "--predict needs --model FILE"),
        (MASKS, ["--predict", "digit.png"], 2, "--predict needs --model FILE"),
        (MNIST, [*look, mnist, "--evaluate-only"], 2, "--predict and --evaluate-only are two"),
        (
            MNIST,
            ["--predict", "digit.png", "--model", "gone"],
            1,
            "error: --model `gone` is not th",
        ),
        (CLASSIFIER, [*data[:-1], "gone"], 1, "error: --model `gone` is not there (hint: a .safet"),
        (MNIST, ["--predict", "none", "--model", mnist], 1, "error: --predict `none` is not there"),
        (MNIST, ["--predict", "empty", "--model", mnist], 1, "error: --predict `empty` holds no p"),
        (
            MNIST,
            ["--predict", "cut.png", "--model", mnist],
            1,
            "error: `cut.png` is not a complete",
        ),
        (MNIST, [*look, stripe], 1, "classifier.safetensors` holds weights of another network"),
        (CLASSIFIER, [*look, mnist], 1, "mnist.safetensors` holds weights of another network"),
        (MASKS, [*look, "alone.safetensors"], 1, "error: `alone.safetensors` holds no weights of"),
        (CLASSIFIER, [*look, "alone.safetensors"], 1, "error: `alone.json`, which says what"),
        (CLASSIFIER, [*look, "list.safetensors"], 1, "error: `list.json` does not describe a m"),
        (CLASSIFIER, [*look, "huge.safetensors"], 1, "error: `huge.json` does not describe a m"),
        (CLASSIFIER, [*look, "odd.safetensors"], 1, "error: `odd.json` does not describe a model"),
        (CLASSIFIER, [*look, "lost.safetensors"], 1, "error: `lost.json` does not describe a mod"),
        (CLASSIFIER, [*look, "digit.png"], 1, "error: `digit.json`, which says what"),
        (CLASSIFIER, data, 1, "error: `zebra.safetensors` tells other classes apart than the data"),
        (MNIST, [*look, mnist, "--output-dir", "digit.png"], 1, "digit.png` cannot be made"),
        (MNIST, [*look, mnist, *two], 1, "error: --predict is for one process, and these are 2 r"),
    ]
    told = call(zygote, tmp_path, *[(module, arguments) for module, arguments, _, _ in cases])
    for (_, arguments, code, message), said in zip(cases, told, strict=True):
        assert (said.code, message in said.last_error) == (code, True), (arguments, said)
        assert code == 2 or "(hint: " in said.last_error, said
