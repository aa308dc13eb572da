"""TensorFlow's and Keras's programs use saved models, profile, and go on past corrupt pictures, as PyTorch's do."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.event_files import drop_later_steps
from tests.fakes.picture_runs import call_each
from tests.fakes.torch_ranks import Zygote
from trainer.data.synthesize.stripes import make_pictures

# All of them wait for one process, which takes the time of ten short trainings.
pytestmark = pytest.mark.timeout(1800)

FRAMEWORKS = ("tf", "keras")
CALLED = "tests.integration.programs.tf_called"
SMALL = ("--data", "stripes", "--image-size", "32", "--batch-per-rank", "8", "--warmup-epochs", "0")
OF_A_TRAINING = '{"step": 9, "epoch": 1, "split": "train", "name": "loss", "value": 0.5}'
TWICE = (*SMALL, "--epochs", "2")


def call(
    zygote: Zygote, folder: Path, framework: str, *cases: tuple[str, ...]
) -> list[tuple[int, str, str]]:
    """Run a framework's program with each of these arguments, one after the other."""
    called = [(CALLED, [framework, *arguments], {}) for arguments in cases]
    found = call_each(zygote, folder, called, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    return [(each.code, each.out, each.errors) for each in found]


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    """Whose program it is."""
    return request.param


@pytest.fixture(scope="module")
def trained(
    framework: str, tensorflow_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A folder with data, a model and what the program did with them, each case by its name."""
    folder = tmp_path_factory.mktemp("models")
    make_pictures(folder / "stripes", num_classes=4, num_train=72, num_val=18, size=48, seed=1)
    make_pictures(folder / "torn", num_classes=4, num_train=72, num_val=18, size=48, seed=1)
    for split in ("train", "val"):
        first = min((folder / "torn" / split).rglob("*.jpg"))
        first.write_bytes(first.read_bytes()[:200])
    (folder / "photos" / "more").mkdir(parents=True)
    for number, name in enumerate(["a.jpg", "more/b.png"]):
        Image.new("RGB", (60, 40), (80 * number, 90, 20)).save(folder / "photos" / name)
    whole = (folder / "photos" / "a.jpg").read_bytes()
    (folder / "photos" / "a-cut.jpg").write_bytes(whole[: len(whole) // 2])
    make_pictures(folder / "few", num_classes=3, num_train=24, num_val=6, size=48, seed=1)
    names = ("ant", "bee", "cat", "dog")
    make_pictures(
        folder / "named", names=names, num_classes=4, num_train=24, num_val=6, size=48, seed=1
    )
    header = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    halves = len(header).to_bytes(8, "little") + header + bytes(2)
    (folder / "halves.safetensors").write_bytes(halves)
    (folder / "by-model").mkdir()
    (folder / "by-model" / "metrics.jsonl").write_text(f"{OF_A_TRAINING}\n")
    head = ("--weights", "head/model/head.safetensors")
    torn = ("--data", "torn", *SMALL[2:-2], "--epochs", "1")
    saved = ("--model", f"trained/model/tiny-{framework}.safetensors")
    kept = ("--checkpoint-dir", "kept")
    cases: dict[str, tuple[str, ...]] = {
        "train": (*TWICE, *kept, "--profile", "3", "--output-dir", "trained"),
        "model": (*TWICE, *saved, "--evaluate-only", "--output-dir", "by-model"),
        "kept": (*TWICE, *kept, "--evaluate-only", "--output-dir", "by-kept"),
        "none": (*TWICE, "--evaluate-only", "--output-dir", "none"),
        "look": ("--predict", "photos", *saved, "--output-dir", "look"),
        "more": (*SMALL, "--epochs", "3", *kept, "--output-dir", "more"),
        "else": (*TWICE, *kept, "--lr", "2", "--output-dir", "else"),
        "torn": (*torn, "--checkpoint-dir", "of-torn", "--output-dir", "skipped"),
        "strict": (*torn, "--max-corrupt", "0", "--output-dir", "strict"),
        "full": ("--full", *TWICE, "--output-dir", "full"),
        "both": ("--predict", "photos", "--evaluate-only", *saved),
        "no model": ("--predict", "photos"),
        "head": ("--head", *TWICE, "--output-dir", "head"),
        "its": ("--head", *TWICE, *head, "--evaluate-only", "--output-dir", "by-head"),
        "others": ("--head", "--data", "few", *TWICE[2:], *head, "--evaluate-only"),
        "renamed": ("--head", "--data", "named", *TWICE[2:], *head, "--evaluate-only"),
        "begun": ("--head", "--data", "few", *TWICE[2:], *head, "--output-dir", "begun"),
        "halves": ("--head", *TWICE, "--weights", "halves.safetensors"),
        "odd": ("--odd", *TWICE),
        "odd and smooth": ("--odd", *TWICE, "--label-smoothing", "0"),
    }
    said = call(tensorflow_zygote, folder, framework, *cases.values())
    return folder, dict(zip(cases, said, strict=True))


def last_line(case: tuple[int, str, str]) -> tuple[int, str]:
    return case[0], case[2].splitlines()[-1]


def test_evaluation_alone_gives_the_figures_that_training_ended_with(trained):
    folder, said = trained
    assert [said[name][0] for name in ("train", "model", "kept")] == [0, 0, 0]
    wanted = summary(folder / "trained")
    for name in ("by-model", "by-kept"):
        found = summary(folder / name)
        assert found["val_top1"] == wanted["val_top1"]
        assert found["val_loss"] == pytest.approx(wanted["val_loss"], rel=1e-6)
        assert not (folder / name / "model").exists()
        assert drop_later_steps(folder / name) == [False]
    assert drop_later_steps(folder / "trained") == [True]
    assert (folder / "by-model" / "metrics.jsonl").read_text().startswith(f"{OF_A_TRAINING}\n{{")
    code, line = last_line(said["none"])
    assert code == 1
    assert line.startswith("error: --evaluate-only found no checkpoint, and no --model is given")


def test_weights_of_other_classes_are_not_evaluated(trained):
    folder, said = trained
    assert (said["head"][0], said["its"][0]) == (0, 0)
    assert summary(folder / "by-head")["val_loss"] == pytest.approx(
        summary(folder / "head")["val_loss"], rel=1e-6
    )
    code, line = last_line(said["others"])
    assert (code, line.partition(" (hint: ")[0]) == (
        1,
        "error: --evaluate-only would evaluate random weights: "
        "`head/model/head.safetensors` is for 4 classes, not 3",
    )


def test_a_head_for_other_classes_begins_anew_whatever_its_layers_name(trained):
    """Of another number, and of the same number by other names."""
    _, said = trained
    code, line = last_line(said["renamed"])
    assert (code, line.partition(" (hint: ")[0]) == (
        1,
        "error: --evaluate-only would evaluate random weights: `head/model/head.safetensors` is for "
        "other classes: class-0000, class-0001, class-0002, class-0003; not ant, bee, cat, dog",
    )
    assert said["begun"][0] == 0
    assert "`head/model/head.safetensors` is for 4 classes, not 3: a new head" in said["begun"][1]


def test_weights_of_a_kind_that_numpy_lacks_are_one_line(trained):
    _, said = trained
    code, line = last_line(said["halves"])
    assert (code, line.partition(" (hint: ")[0]) == (
        1,
        "error: no weights can be read from `halves.safetensors`: NumPy has no numbers of the kind 'BF16'",
    )


@pytest.mark.parametrize("name", ["odd", "odd and smooth"])
def test_a_network_of_other_outputs_than_the_data_has_classes_is_refused(trained, name):
    """With smoothed labels it was trained on, towards a class that there is not."""
    _, said = trained
    code, line = last_line(said[name])
    assert (code, line.partition(" (hint: ")[0]) == (
        1,
        "error: build() makes a network that gives outputs of shape (5,) for a picture: "
        "the data has 4 classes",
    )


def test_new_pictures_are_predicted_into_a_table_and_a_picture(trained, framework):
    """But for one that is cut off, which costs its row."""
    folder, said = trained
    code, text, errors = said["look"]
    told = f"2 files predicted, 1 skipped, in {folder / 'look' / 'predictions'}"
    assert (code, text.splitlines()[-1]) == (0, told)
    assert "a-cut.jpg` is not a complete picture: " in errors
    out = folder / "look" / "predictions"
    with (out / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    about = folder / "trained" / "model" / f"tiny-{framework}.json"
    classes = json.loads(about.read_text())["classes"]
    assert [row["picture"] for row in rows] == ["a.jpg", "more/b.png"]
    for row in rows:
        shares = [float(value) for key, value in row.items() if key.startswith("probability")]
        assert sorted(value for key, value in row.items() if key.startswith("class")) == classes
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, abs=1e-3)
    with Image.open(out / "predictions.png") as grid:
        assert grid.size[0] == 2 * 236 + 12


def test_a_model_of_a_binary_loss_gives_each_class_a_probability_by_itself(
    trained, framework, tensorflow_zygote
):
    """As PyTorch's programs write it; a softmax of the same scores is told by their odds."""
    folder, _ = trained
    model = folder / "trained" / "model" / f"tiny-{framework}.safetensors"
    binary = folder / "binary.safetensors"
    binary.write_bytes(model.read_bytes())
    about = json.loads(model.with_suffix(".json").read_text())
    binary.with_suffix(".json").write_text(json.dumps({**about, "loss": "bce"}))
    look = ("--predict", "photos/a.jpg", "--model", binary.name, "--output-dir", "by-each")
    assert call(tensorflow_zygote, folder, framework, look)[0][0] == 0

    def chances(name: str) -> list[float]:
        with (folder / name / "predictions" / "predictions.csv").open(newline="") as file:
            first = next(csv.DictReader(file))
        return [float(value) for key, value in first.items() if key.startswith("probability")]

    odds = [chance / (1 - chance) for chance in chances("by-each")]
    shares = [each / sum(odds) for each in odds]
    assert shares == pytest.approx(chances("look"), abs=2e-3)
    assert sum(chances("by-each")) != pytest.approx(1, abs=0.02)


def test_a_profile_is_a_trace_and_a_table_of_kernels(trained):
    folder, said = trained
    assert "profile of 3 steps: " in said["train"][1]
    out = folder / "trained" / "profile"
    first, _, *kernels = (out / "kernels.txt").read_text().splitlines()
    assert first == "3 steps"
    assert len(kernels) == 10
    names = {event["name"] for event in json.loads((out / "trace.json").read_text())["traceEvents"]}
    # On a CPU with instructions for matrices the kernel is oneDNN's, whose name has more before it.
    kernels = {name.rpartition(":")[2] for name in names}
    assert any(name.endswith("FusedBatchNormGradV3") for name in kernels)


def test_more_epochs_warn_of_another_rate_and_another_recipe_is_refused(trained):
    _, said = trained
    code, _, wrong = said["more"]
    assert code == 0
    assert "warning: the learning rate of step 19 was to be " in wrong
    code, line = last_line(said["else"])
    assert code == 1
    assert " is of another training: lr 0.1 there, 2.0 now" in line


def test_a_checkpoint_tells_the_default_of_the_warm_up_as_earlier_versions_did(trained):
    folder, _ = trained
    (path,) = (folder / "of-torn").glob("*/manifest.json")
    assert json.loads(path.read_text())["about"]["recipe"]["warmup_epochs"] == 5.0


def test_corrupt_pictures_are_named_counted_and_skipped(trained):
    folder, said = trained
    code, _, wrong = said["torn"]
    assert code == 0
    told = [line for line in wrong.splitlines() if line.startswith("warning: `torn/")]
    assert len(told) == 2
    assert told[-1].endswith("; it is skipped, 2 of at most 10")
    assert summary(folder / "skipped")["pictures_skipped"] == 2
    code, line = last_line(said["strict"])
    assert (code, "is not a complete picture" in line) == (1, True)


def test_a_device_that_is_full_is_one_line_with_the_batch(trained):
    _, said = trained
    assert last_line(said["full"]) == (
        1,
        "error: the GPU's memory does not hold a step of --batch-per-rank 8 "
        "(hint: --find-batch finds a --batch-per-rank that fits)",
    )


def test_a_mistake_is_one_line_that_says_what_to_do(trained):
    _, said = trained
    code, line = last_line(said["both"])
    assert (code, line.endswith("are two things: give one of them")) == (2, True)
    code, line = last_line(said["no model"])
    assert (code, "--predict needs --model FILE" in line) == (2, True)
