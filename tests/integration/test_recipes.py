"""Recipes of classifiers: formulas by hand, and options that leave the training what it should be."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.picture_runs import Trained, call, train
from trainer.data.synthesize.stripes import make_pictures

MODULE = "tests.integration.programs.plain_vit"
CLASSIFIER = "trainer.pytorch.classifier"
CHECKS = "tests.integration.programs.recipe_checks"
MEMORY = "tests.integration.programs.memory_checks"


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What recipe_checks.py found."""
    return json.loads(zygote.run(CHECKS, folder=tmp_path_factory.mktemp("checks")))


def lamb_by_hand(
    weights: list[float], steps: list[list[float]], decay: float, *, adapts: bool = True
) -> list[float]:
    """The paper's algorithm 2, number by number."""
    mean, square = [0.0] * len(weights), [0.0] * len(weights)
    for step, gradients in enumerate(steps, 1):
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, gradients, strict=True)]
        square = [0.999 * s + 0.001 * g * g for s, g in zip(square, gradients, strict=True)]
        update = [
            m / (1 - 0.9**step) / (math.sqrt(s / (1 - 0.999**step)) + 1e-6) + decay * w
            for m, s, w in zip(mean, square, weights, strict=True)
        ]
        ratio = math.hypot(*weights) / math.hypot(*update) if adapts else 1.0
        weights = [w - 0.01 * ratio * u for w, u in zip(weights, update, strict=True)]
    return weights


@pytest.mark.parametrize("way", ["at once", "resumed"])
def test_lamb_takes_the_papers_steps(found, way):
    """Biases do not adapt; matrices do without decay, too."""
    decaying, bias, plain = found["lamb"][way]
    steps = [[0.5, -1.0], [0.25, 0.5]]
    assert decaying == pytest.approx(lamb_by_hand([3.0, 4.0], steps, 0.1), rel=1e-5)
    assert plain == pytest.approx(lamb_by_hand([3.0, 4.0], steps, 0.0), rel=1e-5)
    assert bias == pytest.approx(lamb_by_hand([1.0], [[2.0], [-1.0]], 0.0, adapts=False), rel=1e-5)


@pytest.mark.parametrize("name", ["sgd", "adamw", "lamb"])
def test_a_step_that_overflows_leaves_the_next_ones_as_if_it_had_not_been(found, name):
    """Momentum begins with the first step that is taken; weights of 3 and 4 are left."""
    scaled, plain = (found["scaled"][f"{name}, {kind}"] for kind in ("scaled", "plain"))
    assert scaled == pytest.approx(plain, rel=1e-6)
    assert scaled != pytest.approx([3.0, 4.0], rel=1e-3)


def test_losses_of_numbers_are_those_of_shares(found):
    assert found["losses"]["ce"][0] == pytest.approx(found["losses"]["ce"][1], rel=1e-6)
    numbers, shares = found["losses"]["bce"]
    assert numbers == shares
    scores, labels = ((2.0, 0.0, -1.0), (0.5, 1.5, 0.0)), (0, 2)
    by_hand = [
        math.log1p(math.exp(-score)) * share + math.log1p(math.exp(score)) * (1 - share)
        for row, label in zip(scores, labels, strict=True)
        for number, score in enumerate(row)
        for share in [(number == label) * 0.9 + 0.1 / 3]
    ]
    assert numbers == pytest.approx(sum(by_hand) / 6, rel=1e-5)


@pytest.mark.parametrize(("kind", "most_values"), [("mixup", 2), ("cutmix", 2)])
def test_labels_are_mixed_as_pictures_are(found, kind, most_values):
    means, shares, num_values = found["mixed"][kind]
    assert num_values <= most_values
    assert 0 < means[0] < 1
    for mean, (black, white, other) in zip(means, shares, strict=True):
        assert (black, white) == pytest.approx((1 - mean, mean), abs=1e-6)
        assert other == 0


def test_horovods_early_completion_is_refused(found):
    (name,) = found["votes"]
    assert name == "horovod/1"
    assert "HOROVOD_ENABLE_ASYNC_COMPLETION is set" in found["votes"][name]


def test_networks_are_known_by_name(found):
    networks = found["networks"]
    said = networks.pop("resnet51")
    assert networks == {"squeezenet1_1": [2, 5], "vit_b_32": [2, 5], "googlenet": [2, 5]}
    assert said.startswith("--network resnet51 is no classifier that torchvision has")


def test_files_without_the_norms_counts_of_batches_are_taken_and_counts_too_many_as_well(found):
    """torchvision's oldest weights have none: https://github.com/pytorch/vision/issues/2266."""
    files = found["files"]
    said = files.pop("without norms")
    norms = ("BatchNorm2d", "FrozenBatchNorm2d")
    assert files == {f"{kind} {norm}": True for kind in ("counted", "uncounted") for norm in norms}
    assert said.startswith("holds weights of another network: 0.bias does not fit")


def test_random_changes_are_the_pictures_own_and_bounded(found):
    changed = found["changed"]
    assert changed["is_the_same_again"]
    assert changed["num_different"] > 20
    # The weakest of each leaves the picture, but for those that have no strength.
    assert changed["at_nought"] == ["autocontrast or equalize"] * 2
    assert changed["shapes"] == [[3, 24, 24]]


def test_pictures_of_a_size_that_a_network_does_not_take_are_refused_with_one_that_it_takes(found):
    """By torchvision's networks, and by one of a stand-in for timm, which is no dependency."""
    told = found["sizes"]
    assert told.pop("smal_vit 48").startswith(
        "--network smal_vit is no classifier that torchvision or timm has (hint: --network "
    )
    refused = {
        name: (text.partition(": ")[0], text.partition(" (hint")[2])
        for name, text in told.items()
        if isinstance(text, str)
    }
    assert refused == {
        f"{name} {size}": (
            f"--network {name} does not take pictures of {size} x {size} pixels",
            f": --image-size {usual}, or another network)",
        )
        for name, size, usual in (
            *(("vit_b_16", 100, 224), ("maxvit_t", 160, 224), ("alexnet", 32, 224)),
            ("small_vit", 64, 48),
        )
    }
    assert told["small_vit 64"].partition(": ")[2].startswith("Input height doesn't match model")
    assert (told["vit_b_16 160"], told["small_vit 48"]) == ([2, 5], [2, 5])


@pytest.mark.parametrize(
    "kind",
    ["usual", "without weights", "without offsets", "without statistics", "mean of all batches"],
)
def test_batch_norms_of_all_ranks_are_pytorchs_own_on_one_rank(found, kind):
    furthest, has_same_state = found["norms"][kind]
    assert furthest < 1e-4
    assert has_same_state


def test_norms_that_also_activate_are_refused_for_all_ranks_by_their_place(found):
    """As timm's; a plain norm in their place would drop the activation in silence."""
    plain, told = found["subclasses"]
    assert plain == "SharedBatchNorm"
    assert told == (
        "--sync-batch-norm cannot share `body.1`: tests.integration.programs.recipe_checks.NormAct "
        "computes more than a batch norm, such as an activation "
        "(hint: leave it out, or a network whose batch norms are torch's own)"
    )


def test_a_copy_of_norms_over_all_ranks_has_weights_of_its_own_and_the_same_ranks(found):
    """What Horovod holds, a module, cannot be copied; a moving average copies the network."""
    assert found["copied"] == {"ranks": True, "weights": False, "same values": True, "state": True}


@pytest.fixture(scope="module")
def memory(zygote, tmp_path_factory) -> dict[str, str]:
    """What memory_checks.py found."""
    return json.loads(zygote.run(MEMORY, folder=tmp_path_factory.mktemp("memory")))


def test_what_is_beyond_a_gpus_memory_is_said_with_its_batch(memory):
    said = "the GPU's memory does not hold"
    batch = "--batch-per-rank 3 (hint: --find-batch finds a --batch-per-rank that fits)"
    other = "(hint: `nvidia-smi` tells whether another process has memory of this GPU)"
    assert memory == {
        "train": f"{said} a step of {batch}",
        "evaluate": f"{said} an evaluation of {batch}",
        "without trial": f"{said} a step of --batch-per-rank 3 (hint: a smaller --batch-per-rank)",
        # Where two batches make a step, an evaluation takes one at once.
        "two parts": "trained",
        "to": f"{said} the network and what it begins with {other}",
        "data": f"{said} the data that training keeps there {other}",
        "predict": f"{said} the network and the files that it predicts at once {other}",
        "search": "the largest --batch-per-rank that fits is 5",
        # A training that is over keeps its model and summary.
        "drawing": f"warning: {said} the last predictions {other}, True",
        "digits": "the largest --batch-size that fits is 5",
        "head": "the largest --batch-per-rank that fits is 5",
        "all": "the largest --batch-per-rank that fits is 5",
        "one digit": "the largest --batch-size that fits is 1",
        "digits to evaluate": f"{said} an evaluation of 1,024 pictures at once over all ranks {other}",
        # Of which the first sample is corrupt, and the next one stands in its place.
        "one own": "the largest --batch-size that fits is 1",
        # Of one picture there are no batch statistics; of digits and own samples, no other size.
        "no digit": f"{said} a step of 1 sample (hint: --precision bf16)",
        "no own": f"{said} a step of 1 sample (hint: --precision bf16)",
        "one feature": f"{said} a step of 2 samples "
        "(hint: --precision bf16, or a smaller --image-size)",
        "on a CPU": "--find-batch tries steps on one GPU (hint: one rank, and --device cuda)",
    }


def test_an_own_sample_that_is_cut_off_is_passed_over_and_a_missing_one_is_not(found):
    """Once in training and once in evaluation, which name it by its place."""
    line = "warning: image file is truncated; it is skipped, {} of at most 5\n".format
    # The fourth of the training set, and the fourth of the validation set.
    assert found["torn"] == {
        "0/5": [2, line(1) + line(2)],
        "2/5": [2, line(1) + line(2)],
        "0/0": "image file is truncated (hint: get the file again, or take it away)",
        "place": [[3.0] * 4, ""],
        "missing": "7.png",
    }


def test_pictures_are_scaled_by_a_compiled_kernel_where_the_network_is_compiled(found):
    assert found["compiled"] == [0, 1]


@pytest.mark.faults
def test_a_compiled_network_learns_what_a_plain_one_does(zygote, stripes, tmp_path):
    few = ("--batch-per-rank", "24", "--epochs", "1")
    plain, compiled = (
        run(zygote, stripes, tmp_path / each, *few, each) for each in ("--no-compile", "--compile")
    )
    for split in ("train", "val"):
        expected = [value for _, value in plain.curve(split, "loss")]
        assert [value for _, value in compiled.curve(split, "loss")] == pytest.approx(
            expected, rel=1e-4
        )
    (model,) = (compiled.folder / "outputs" / "model").glob("*.safetensors")
    assert b"_orig_mod" not in model.read_bytes()


@pytest.fixture(scope="module")
def stripes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "stripes"
    make_pictures(folder, num_classes=2, num_train=48, num_val=8, size=40, seed=2)
    return folder


SMALL = (
    *("--image-size", "32", "--warmup-epochs", "0", "--lr", "1"),
    *("--rand-augment", "6", "--repeats", "2"),
)


def run(zygote: Any, stripes: Path, folder: Path, *more: str, **options: Any) -> Trained:
    """Two epochs, whose learning rate makes a difference."""
    arguments = ("--data", str(stripes), *SMALL, "--epochs", "2", "--log-every", "1", *more)
    return train(zygote, MODULE, *arguments, folder=folder, **options)


@pytest.mark.parametrize("strategy", ["ddp", "horovod"])
def test_batches_that_add_up_take_the_steps_of_a_large_one(zygote, stripes, tmp_path, strategy):
    """Clipped and averaged, on one rank and on two: gradients that were not would differ by thirds."""
    more = ("--clip-norm", "0.5", "--ema", "0.5")
    small = ("--batch-per-rank", "4", "--accumulate", "3")
    two = run(zygote, stripes, tmp_path / "two", *small, *more, strategy=strategy, size=2)
    assert (two.summary["batch_size"], two.summary["steps"]) == (24, 4)
    assert len(set(two.summary["weights_sha256"])) == 1
    profiled = (*more, "--profile", "1")
    one = run(zygote, stripes, tmp_path / "one", "--batch-per-rank", "24", *profiled, size=1)
    profile = tmp_path / "one" / "outputs" / "profile"
    assert json.loads((profile / "trace.json").read_text())["traceEvents"]
    head, *table = (profile / "kernels.txt").read_text().splitlines()
    assert head == "1 step"
    assert len([line for line in table if "%" in line and "Self CPU %" not in line]) == 10
    for split in ("train", "val"):
        losses = [[value for _, value in each.curve(split, "loss")] for each in (one, two)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    # What was kept is evaluated again, by its model and by its checkpoint, and nothing is learnt.
    (model,) = (tmp_path / "one" / "outputs" / "model").glob("*.safetensors")
    kept = ("--evaluate-only", "--ema", "0.5", "--clip-norm", "0.5", "--batch-per-rank", "24")
    by_model = run(zygote, stripes, tmp_path / "kept", *kept, "--model", str(model), size=1)
    by_steps = run(zygote, stripes, tmp_path / "one", *kept, size=1)
    for each in (by_model, by_steps):
        assert each.summary["val_loss"] == pytest.approx(one.summary["val_loss"], rel=1e-6)
    assert not (tmp_path / "kept" / "outputs" / "model").exists()
    # The average is what is evaluated and kept: the last weights are elsewhere.
    plain = run(zygote, stripes, tmp_path / "plain", "--batch-per-rank", "24", *more[:2], size=1)
    assert plain.curve("train", "loss") == one.curve("train", "loss")
    assert plain.summary["val_loss"] != pytest.approx(one.summary["val_loss"], rel=1e-4)
    free = run(zygote, stripes, tmp_path / "free", "--batch-per-rank", "24", size=1)
    assert free.curve("train", "loss")[-1] != plain.curve("train", "loss")[-1]


def test_what_many_ranks_began_goes_on_by_one_that_accumulates(zygote, stripes, tmp_path):
    """In the middle of an epoch: the same pictures in the same steps, and the same average."""
    arguments = ("--batch-per-rank", "6", "--ema", "0.5", "--checkpoint-every", "2")
    two = run(zygote, stripes, tmp_path / "two", *arguments, "--keep-last", "9", size=2)
    (kept,) = (tmp_path / "two" / "checkpoints").glob("step-000000002-*")
    shutil.copytree(kept, tmp_path / "one" / "checkpoints" / kept.name)
    one = run(zygote, stripes, tmp_path / "one", *arguments, "--accumulate", "2", size=1)
    assert (one.summary["resumed_from_step"], one.summary["steps"]) == (2, 8)
    for split, num_steps in (("train", 6), ("val", 2)):
        began, went_on = (each.curve(split, "loss")[-num_steps:] for each in (two, one))
        assert [step for step, _ in went_on] == [step for step, _ in began]
        assert [loss for _, loss in went_on] == pytest.approx([loss for _, loss in began], rel=1e-4)


@pytest.mark.faults
def test_an_average_resumes_to_the_bit(zygote, stripes, tmp_path):
    arguments = ("--batch-per-rank", "12", "--ema", "0.9", "--mixup", "1", "--optimizer", "lamb")
    arguments += ("--lr", "0.01")
    whole = run(zygote, stripes, tmp_path / "whole", *arguments, "--checkpoint-every", "3")
    (kept,) = (tmp_path / "whole" / "checkpoints").glob("step-000000003-*")
    shutil.copytree(kept, tmp_path / "again" / "checkpoints" / kept.name)
    again = run(zygote, stripes, tmp_path / "again", *arguments)
    assert again.summary["resumed_from_step"] == 3
    assert again.summary["weights_sha256"] == whole.summary["weights_sha256"]


@pytest.mark.parametrize(
    ("strategy", "more"),
    [pytest.param("ddp", (), id="ddp"), pytest.param("horovod", ("--ema", "0.5"), id="horovod")],
)
def test_batch_norms_of_all_ranks_take_the_steps_of_one_rank_with_all_pictures(
    zygote, stripes, tmp_path, strategy, more
):
    """Statistics of half the pictures, or gradients without the other half's, would differ.

    A moving average copies the norms, and with them what they reach the other ranks by.
    """
    small = ("--data", str(stripes), *SMALL, "--epochs", "1", "--network", "resnet18")
    small += (*more, "--log-every", "1", "--batch-per-rank")
    folder, shared = tmp_path / "two", ("8", "--sync-batch-norm")
    two = train(zygote, CLASSIFIER, *small, *shared, folder=folder, strategy=strategy, size=2)
    one = train(zygote, CLASSIFIER, *small, "16", folder=tmp_path / "one")
    assert two.summary["batch_size"] == one.summary["batch_size"] == 16
    for split in ("train", "val"):
        losses = [[value for _, value in each.curve(split, "loss")] for each in (one, two)]
        assert len(losses[0]) == (3 if split == "train" else 1)
        assert losses[1] == pytest.approx(losses[0], rel=2e-3)


def test_batch_norms_of_all_ranks_are_refused_where_there_are_none(zygote, stripes, tmp_path):
    arguments = ("--data", str(stripes), *SMALL, "--sync-batch-norm")
    (said,) = call(zygote, tmp_path, MODULE, arguments)
    assert (said.code, said.last_error.partition(",")[0]) == (
        1,
        "error: --sync-batch-norm is for batch norms that learn",
    )
