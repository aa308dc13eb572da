"""Transfer learning on real ranks: ants from bees, by the head alone or by every weight."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.fakes.picture_runs import Trained, call, train
from tests.fakes.safetensors_files import read_tensors
from trainer.data.synthesize.stripes import INSECTS, make_pictures

MODULE = "trainer.pytorch.hymenoptera"
SMALL = ("--image-size", "64")


@pytest.fixture(scope="module")
def insects(tmp_path_factory) -> Path:
    """A folder as the tutorial's data set has it: train and val, ants and bees."""
    folder = tmp_path_factory.mktemp("data") / "insects"
    make_pictures(folder, num_classes=2, num_train=100, num_val=25, size=96, seed=2, names=INSECTS)
    return folder


SCRATCH = ("--weights", "none")
HEAD = (*SCRATCH, "--batch-per-rank", "6", "--epochs", "8", "--lr", "4", "--image-size", "96")


@pytest.fixture(scope="module")
def on_two_ranks(zygote, insects, tmp_path_factory) -> Trained:
    """The head alone, on two ranks of Horovod."""
    folder = tmp_path_factory.mktemp("head") / "run"
    arguments = ("--data", str(insects), *HEAD, "--checkpoint-every", "10", "--keep-last", "9")
    return train(zygote, MODULE, *arguments, folder=folder, strategy="horovod", size=2)


class TestHead:
    def test_two_ranks_tell_ants_from_bees_and_end_with_the_same_weights(self, on_two_ranks):
        summary = on_two_ranks.summary
        fixed = ("program", "strategy", "world_size", "network", "train", "batch_size", "classes")
        assert [summary[key] for key in fixed] == [
            *(MODULE, "horovod", 2, "resnet18", "head", 12, ["ants", "bees"])
        ]
        assert (summary["train_images"], summary["val_images"]) == (100, 25)
        assert summary["val_top1"] >= 0.9
        assert len(summary["weights_sha256"]) == 2
        assert len(set(summary["weights_sha256"])) == 1

    def test_the_picture_shows_what_the_network_takes_pictures_for(self, on_two_ranks):
        with Image.open(on_two_ranks.folder / "outputs/predictions/predictions.png") as grid:
            assert grid.format == "PNG"
            assert grid.size == (4 * 236 + 12, 3 * (46 + 236) + 12)

    def test_a_random_backbone_is_warned_of(self, on_two_ranks):
        texts = [(on_two_ranks.folder / f"rank-{rank}.log").read_text() for rank in (0, 1)]
        assert "warning: without --weights the frozen backbone is random" in texts[0]
        assert "warning" not in texts[1]

    def test_only_the_head_changes(self, on_two_ranks, zygote, insects, tmp_path):
        begun = ("--data", str(insects), *HEAD, "--epochs", "1", "--lr", "1e-9")
        before = train(zygote, MODULE, *begun, folder=tmp_path / "run")
        files = [
            read_tensors(run.folder / "outputs" / "model" / "hymenoptera.safetensors")
            for run in (before, on_two_ranks)
        ]
        assert files[0].keys() == files[1].keys()
        changed = {key for key, value in files[0].items() if files[1][key] != value}
        assert changed == {"fc.weight", "fc.bias"}

    def test_a_checkpoints_head_gets_the_features_of_its_own_backbone(
        self, zygote, insects, tmp_path
    ):
        """And not those of the weights that are named now: to evaluate, and to go on."""
        few = ("--data", str(insects), "--batch-per-rank", "20", "--lr", "4", "--image-size", "32")
        more = ("--checkpoint-dir", str(tmp_path / "checkpoints"))
        first = train(zygote, MODULE, *few, *SCRATCH, "--epochs", "1", folder=tmp_path / "first")
        weights = str(first.folder / "outputs" / "model" / "hymenoptera.safetensors")
        of_file = (*few, *more, "--seed", "2", "--weights")
        whole = train(zygote, MODULE, *of_file, weights, "--epochs", "2", folder=tmp_path / "whole")
        kept = ("val_loss", "val_top1", "weights_sha256")
        other = (*of_file, "none", "--epochs", "2")
        evaluated = train(zygote, MODULE, *other, "--evaluate-only", folder=tmp_path / "evaluated")
        assert [evaluated.summary[key] for key in kept] == [whole.summary[key] for key in kept]
        (last,) = (tmp_path / "checkpoints").glob("step-000000010-*")
        shutil.rmtree(last)
        resumed = train(zygote, MODULE, *other, folder=tmp_path / "resumed")
        assert resumed.summary["resumed_from_step"] == 5
        assert [resumed.summary[key] for key in kept] == [whole.summary[key] for key in kept]
        assert "backbone is random" not in (tmp_path / "resumed" / "rank-0.log").read_text()

    def test_another_learning_rate_is_refused(self, on_two_ranks, zygote, insects, tmp_path):
        kept = str(on_two_ranks.folder / "checkpoints")
        arguments = ["--data", str(insects), *HEAD, "--batch-per-rank", "12", "--lr", "5"]
        arguments += ["--device", "cpu", "--checkpoint-dir", kept]
        (said,) = call(zygote, tmp_path, MODULE, arguments)
        assert said.code == 1
        assert "is of another training: lr 4.0 there, 5.0 now (hint: " in said.last_error

    def test_the_heads_average_is_evaluated_and_kept_and_its_steps_are_profiled(
        self, zygote, insects, tmp_path
    ):
        """Four steps, fewer than a warm-up: there are two to profile all the same."""
        few = ("--data", str(insects), *SCRATCH, "--batch-per-rank", "50", "--epochs", "2")
        few += ("--log-every", "1", "--lr", "4", "--image-size", "32")
        plain = train(zygote, MODULE, *few, folder=tmp_path / "plain")
        more = ("--ema", "0.5", "--profile", "2")
        mean = train(zygote, MODULE, *few, *more, folder=tmp_path / "mean")
        assert mean.curve("train", "loss") == plain.curve("train", "loss")
        assert mean.curve("val", "loss")[-1] != plain.curve("val", "loss")[-1]
        kept, last = (
            read_tensors(each.folder / "outputs" / "model" / "hymenoptera.safetensors")
            for each in (mean, plain)
        )
        assert {name for name in last if kept[name] != last[name]} == {"fc.weight", "fc.bias"}
        told = (mean.folder / "outputs" / "profile" / "kernels.txt").read_text()
        assert told.splitlines()[0] == "2 steps"

    @pytest.mark.faults
    def test_one_and_three_ranks_take_the_same_steps_but_for_rounding(
        self, on_two_ranks, zygote, insects, tmp_path
    ):
        for size, batch in ((1, 12), (3, 4)):
            arguments = ("--data", str(insects), *HEAD, "--batch-per-rank", str(batch))
            run = train(zygote, MODULE, *arguments, folder=tmp_path / str(size), size=size)
            for split in ("train", "val"):
                ours = [value for _, value in run.curve(split, "loss")]
                theirs = [value for _, value in on_two_ranks.curve(split, "loss")]
                assert ours == pytest.approx(theirs, rel=1e-3)

    @pytest.mark.faults
    def test_a_resumed_training_ends_where_the_whole_one_does_to_the_bit(
        self, on_two_ranks, zygote, insects, tmp_path
    ):
        (checkpoint,) = (on_two_ranks.folder / "checkpoints").glob("step-000000010-*")
        shutil.copytree(checkpoint, tmp_path / "run" / "checkpoints" / checkpoint.name)
        resumed = train(
            *(zygote, MODULE, "--data", str(insects), *HEAD),
            folder=tmp_path / "run",
            strategy="horovod",
            size=2,
        )
        assert resumed.summary["resumed_from_step"] == 10
        assert resumed.summary["weights_sha256"] == on_two_ranks.summary["weights_sha256"]


@pytest.mark.faults
class TestAll:
    def test_every_weight_is_fine_tuned_from_a_file_on_random_crops(
        self, zygote, insects, tmp_path
    ):
        first = (
            "--data",
            str(insects),
            *SCRATCH,
            "--train",
            "all",
            "--batch-per-rank",
            "5",
            *SMALL,
        )
        begun = train(
            *(zygote, MODULE, *first, "--epochs", "5", "--lr", "1"),
            folder=tmp_path / "first",
            size=2,
        )
        assert begun.summary["val_top1"] >= 0.9
        weights = begun.folder / "outputs" / "model" / "hymenoptera.safetensors"
        head = ("--data", str(insects), "--weights", str(weights), "--epochs", "1", "--lr", "1e-9")
        again = train(zygote, MODULE, *head, *SMALL, folder=tmp_path / "second")
        assert again.summary["val_top1"] == begun.summary["val_top1"]
        assert again.summary["val_loss"] == pytest.approx(begun.summary["val_loss"], rel=1e-3)


def test_a_mistake_is_one_line_that_says_what_to_do(zygote, insects, tmp_path):
    other = shutil.copytree(insects, tmp_path / "other")
    (other / "mine.safetensors").touch()
    torn = shutil.copytree(insects, tmp_path / "torn")
    min((torn / "train").rglob("*.jpg")).write_bytes(b"\xff\xd8\xff")
    resnet = tmp_path / "other.safetensors"
    resnet.write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    cases = [
        ([], 1, "error: no input `hymenoptera` was handed to this run (hint: "),
        (["--data", "/nowhere"], 1, "error: no folder `/nowhere/train` (hint: "),
        (
            ["--data", str(insects), "--weights", str(resnet)],
            1,
            f"error: `{resnet}` holds weights of another network: bn1.bias does not fit (hint: ",
        ),
        (
            ["--data", str(insects)],
            1,
            "error: --weights is not given, and training from scratch has to be asked for (hint: ",
        ),
        (
            ["--data", str(insects), "--weights", "resnet18.pth"],
            1,
            f"error: there are no weights `resnet18.pth`, neither here nor beside the data in "
            f"`{insects}` (hint: get https://download.pytorch.org/models/resnet18-f37072fd.pth ",
        ),
        (
            ["--data", str(other), "--weights", "resnet18.pth"],
            1,
            f"beside the data in `{other}` (hint: --weights mine.safetensors, which is there; ",
        ),
        (
            ["--data", str(insects), *SCRATCH, "--batch-per-rank", "101"],
            1,
            "more than the 100 training",
        ),
        # Before any picture is looked at.
        (
            ["--data", str(torn), *SCRATCH, "--evaluate-only"],
            1,
            "error: --evaluate-only found no checkpoint, and no --model is given",
        ),
        (["--lr", "0"], 2, "--lr must be above 0, not 0.0"),
        (["--mixup", "0.2"], 2, "--mixup and --cutmix mix pictures, and --train head learns from"),
        (["--sync-batch-norm"], 2, "--sync-batch-norm is for norms that train, and --train head"),
        (["--label-smoothing", "2"], 2, "--label-smoothing must be 0 or more and below 1, not 2.0"),
        (["--num-images", "1"], 2, "--num-images must be 2 or more, not 1"),
    ]
    found = call(zygote, tmp_path, MODULE, *(arguments for arguments, _, _ in cases))
    for (arguments, code, message), said in zip(cases, found, strict=True):
        assert (said.code, message in said.last_error) == (code, True), (arguments, said)
