"""ResNet-50 on real ranks and real JPEGs: it learns, resumes exactly, and counts each picture once.

Small pictures and few of them: a step costs a quarter of a second, most of it for 25 million
weights.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.event_files import drop_later_steps
from tests.fakes.picture_runs import RUN_TIMEOUT_S, Trained, call, run_ranks, train
from tests.fakes.torch_ranks import Zygote, start_gang
from trainer.common.sharding import rank_batches
from trainer.common.world import World
from trainer.data.pictures.splits import open_pictures
from trainer.data.synthesize.stripes import make_pictures

MODULE = "trainer.pytorch.resnet50"
# The same program with a smaller network.
CLASSIFIER = ("trainer.pytorch.classifier", "--network", "resnet18")
SMALL = ("--image-size", "32", "--log-every", "1")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Class folders: 20 pictures to train on, 7 to validate with, which no world size divides."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    make_pictures(folder, num_classes=3, num_train=20, num_val=7, size=48, seed=5)
    return folder


@pytest.fixture(scope="module")
def shards(pictures, tmp_path_factory) -> Path:
    """The same pictures as tar shards, two a split."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    folder.mkdir()
    for split in ("train", "val"):
        source = open_pictures(pictures, split)
        (folder / split).mkdir()
        half = math.ceil(len(source.labels) / 2)
        for number in (0, 1):
            with tarfile.open(folder / split / f"{number:06}.tar", "w") as shard:
                for index in range(number * half, min((number + 1) * half, len(source.labels))):
                    label = str(source.labels[index]).encode()
                    for suffix, data in (("jpg", source.read(index)), ("cls", label)):
                        member = tarfile.TarInfo(f"{index:06}.{suffix}")
                        member.size = len(data)
                        shard.addfile(member, io.BytesIO(data))
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in source.classes))
    return folder


@pytest.mark.faults
class TestLearning:
    @pytest.mark.parametrize("strategy", ["horovod", "ddp"])
    def test_two_ranks_learn_stripes_and_end_with_the_same_weights(
        self, zygote, tmp_path, strategy
    ):
        made = ("--data", "synthetic", "--num-images", "320", "--num-classes", "4")
        steps = ("--batch-per-rank", "16", "--epochs", "2", "--warmup-epochs", "1", *SMALL)
        run = train(
            zygote, MODULE, *made, *steps, folder=tmp_path / "run", strategy=strategy, size=2
        )
        summary = run.summary
        assert [summary[key] for key in ("program", "strategy", "world_size", "batch_size")] == [
            *(MODULE, strategy, 2, 32)
        ]
        assert (summary["train_images"], summary["val_images"]) == (320, 80)
        assert summary["val_top1"] >= 0.9
        assert len(summary["weights_sha256"]) == 2
        assert len(set(summary["weights_sha256"])) == 1
        assert summary["images_per_s"] > 0
        accuracies = run.curve("val", "top1")
        assert [step for step, _ in accuracies] == [10, 20]
        assert accuracies[-1][1] == summary["val_top1"]
        assert [step for step, _ in run.curve("train", "loss")] == list(range(1, 21))
        assert (run.folder / "outputs" / "model" / "resnet50.safetensors").is_file()


def train_two_epochs(zygote: Zygote, pictures: Path, folder: Path) -> Trained:
    """Two epochs of three steps on two ranks, a checkpoint after each step."""
    arguments = ("--data", str(pictures), "--batch-per-rank", "3", "--epochs", "2", *SMALL)
    every = ("--checkpoint-every", "1", "--keep-last", "9", "--lr", "0.5")
    return train(zygote, MODULE, *arguments, *every, folder=folder, size=2)


@pytest.fixture(scope="module")
def whole(zygote, pictures, tmp_path_factory) -> Trained:
    """The training that nobody interrupts."""
    return train_two_epochs(zygote, pictures, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.faults
class TestResume:
    @pytest.mark.parametrize("step", [2, 3])  # within the first epoch, and at its end
    def test_a_resumed_training_ends_where_the_whole_one_does_to_the_bit(
        self, zygote, pictures, whole, tmp_path, step
    ):
        (checkpoint,) = (whole.folder / "checkpoints").glob(f"step-{step:09}-*")
        shutil.copytree(checkpoint, tmp_path / "run" / "checkpoints" / checkpoint.name)
        resumed = train_two_epochs(zygote, pictures, tmp_path / "run")
        assert resumed.summary["resumed_from_step"] == step
        assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
        assert resumed.summary["val_loss"] == whole.summary["val_loss"]
        for split, name in (("train", "loss"), ("val", "loss")):
            rest = [line for line in whole.curve(split, name) if line[0] >= step]
            assert resumed.curve(split, name) == [
                line for line in rest if line[0] > step or split == "val"
            ]


class TestEvaluation:
    def evaluate(self, zygote, data: Path, folder: Path, size: int) -> list[dict]:
        """What each rank's evaluation by untrained weights was."""
        arguments = ("--data", str(data), "--image-size", "32", "--batch-per-rank", "2")
        arguments += CLASSIFIER[1:]
        run_ranks(zygote, ["evaluate", *arguments], folder=folder, size=size)
        return [json.loads((folder / f"evaluated-{rank}.json").read_text()) for rank in range(size)]

    def test_each_picture_counts_once_at_any_world_size(self, zygote, pictures, tmp_path):
        found = [self.evaluate(zygote, pictures, tmp_path / str(size), size) for size in (1, 2, 3)]
        for ranks in found:
            assert sorted(index for rank in ranks for index in rank["seen"]) == list(range(7))
            assert {json.dumps(rank["found"]) for rank in ranks} == {json.dumps(ranks[0]["found"])}
        alone, *more = (ranks[0]["found"] for ranks in found)
        assert set(alone) == {"loss", "top1"}
        for other in more:
            assert other["loss"] == pytest.approx(alone["loss"], rel=1e-5)
            assert other["top1"] == alone["top1"]

    def test_shards_give_what_class_folders_give(self, zygote, pictures, shards, tmp_path):
        found = [
            self.evaluate(zygote, data, tmp_path / data.name, 1) for data in (pictures, shards)
        ]
        assert found[0] == found[1]


class TestOneRank:
    @pytest.mark.faults
    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_the_imagenet_network_trains_on_noise_in_half_the_bits(
        self, zygote, tmp_path, precision
    ):
        made = ("--data", "random", "--num-classes", "1000", "--num-images", "4")
        steps = ("--batch-per-rank", "2", "--epochs", "1", *SMALL)
        folder = tmp_path / "run"
        run = train(zygote, MODULE, *made, *steps, "--precision", precision, folder=folder)
        assert run.summary["parameters"] == 25_557_032
        assert run.summary["precision"] == precision
        assert "val_top5" in run.summary
        losses = [value for _, value in run.curve("train", "loss")]
        assert losses[0] == pytest.approx(math.log(1000), abs=0.5)
        (newest, *_) = sorted((folder / "checkpoints").iterdir(), reverse=True)
        scaler = json.loads((newest / "state.json").read_text())["scaler"]
        assert (scaler is not None) == (precision == "fp16")

    def test_weights_of_another_training_are_begun_from_with_a_new_head(
        self, zygote, pictures, tmp_path
    ):
        arguments = ("--data", "random", "--num-classes", "7", "--num-images", "2", "--epochs", "1")
        few = ("--image-size", "32", "--batch-per-rank")
        train(zygote, *CLASSIFIER, *arguments, *few, "2", folder=tmp_path / "first")
        weights = tmp_path / "first" / "outputs" / "model" / "classifier.safetensors"
        data = ("--data", str(pictures), "--epochs", "1", "--weights", str(weights))
        second = train(zygote, *CLASSIFIER, *data, *few, "20", folder=tmp_path / "second")
        said = (tmp_path / "second" / "rank-0.log").read_text()
        assert f"`{weights}` is for 7 classes, not 3: a new head" in said
        # The new head is not evaluated before it has learnt: by a checkpoint, or by its own file.
        learnt = tmp_path / "second" / "outputs" / "model" / "classifier.safetensors"
        again = (*CLASSIFIER, *few, "20", "--evaluate-only")
        by_steps = train(zygote, *again, *data, folder=tmp_path / "second")
        by_file = train(zygote, *again, *data[:-1], str(learnt), folder=tmp_path / "third")
        for each in (by_steps, by_file):
            assert each.summary["val_loss"] == pytest.approx(second.summary["val_loss"], rel=1e-5)
        # What TensorBoard shows of the training is left to it.
        assert drop_later_steps(tmp_path / "second") == [True, False]
        (random,) = call(zygote, tmp_path, again[0], [*again[1:], *data])
        assert (random.code, random.last_error.partition(" (hint: ")[0]) == (
            1,
            "error: --evaluate-only would evaluate random weights: "
            f"`{weights}` is for 7 classes, not 3",
        )


def test_one_corrupt_picture_too_many_costs_no_step_that_was_taken(zygote, pictures, tmp_path):
    """Rank 1 meets them, one a batch; the run goes on where more of them may be skipped."""
    torn, run_dir = tmp_path / "torn", tmp_path / "run"
    shutil.copytree(pictures, torn)
    files = sorted((torn / "train").rglob("*.jpg"))
    of_rank_1 = rank_batches(20, 4, World(rank=1, size=2), seed=1, epoch=1)
    for number in [batch[0] for batch in of_rank_1][2:]:
        files[number].write_bytes(files[number].read_bytes()[:300])
    given = ("--data", str(torn), "--batch-per-rank", "2", "--epochs", "1", "--seed", "1")
    argv = [*CLASSIFIER, *given, *SMALL, "--workers", "1", "--max-corrupt"]
    gang = start_gang(zygote, [*argv, "2"], strategy="ddp", size=2, folder=run_dir)
    assert gang.wait(RUN_TIMEOUT_S) == [1, 1], gang.texts()
    gang.end()
    (kept,) = (run_dir / "checkpoints").iterdir()
    step = int(kept.name.split("-")[1])
    said = f"; checkpoint of step {step} is kept"
    others, own = (text.splitlines()[-1] for text in gang.texts())
    hint = " (hint: that rank's last line says why)"
    assert others == f"error: another rank cannot go on{said}{hint}"
    assert own.startswith("error: 3 corrupt pictures are more than --max-corrupt 2: `")
    assert own.endswith(f"{said} (hint: get the file again, or take it away)")
    resumed = train(zygote, *argv, "3", folder=run_dir, size=2)
    assert (resumed.summary["resumed_from_step"], resumed.summary["steps"]) == (step, 5)


def test_a_mistake_is_one_line_that_says_what_to_do(zygote, pictures, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(pictures, broken)
    victim = sorted((broken / "train").rglob("*.jpg"))[4]
    victim.write_bytes(victim.read_bytes()[:300])
    other = tmp_path / "other"
    shutil.copytree(pictures, other)
    shutil.rmtree(other / "val" / "class-0001")
    no_weights = tmp_path / "weights.safetensors"
    no_weights.write_bytes(b"no weights")
    small = ["--image-size", "32", "--epochs", "1", "--batch-per-rank", "4"]
    cases = [
        ([], 1, "error: no input `imagenet` was handed to this run (hint: "),
        (["--data", "/nowhere"], 1, "error: no folder `/nowhere/train` (hint: DIR holds train/"),
        (["--data", str(other)], 1, "other classes in train than in val: class-0001 in one of"),
        (
            ["--data", str(broken), *small, "--max-corrupt", "0"],
            1,
            f"error: `{victim}` is not a complete picture: ",
        ),
        (
            ["--data", str(pictures), "--batch-per-rank", "21"],
            1,
            "error: --batch-per-rank 21 on 1 ranks is a batch of 21, more than the 20 training "
            "pictures (hint: --batch-per-rank 20 or less)",
        ),
        (
            ["--data", str(pictures), "--weights", str(no_weights), *small],
            1,
            f"error: no weights can be read from `{no_weights}`: ",
        ),
        (["--batch-per-rank", "1"], 2, "--batch-per-rank must be 2 or more, not 1"),
        (["--image-size", "31"], 2, "--image-size must be 32 or more, not 31"),
        (["--label-smoothing", "1"], 2, "--label-smoothing must be 0 or more and below 1, not 1.0"),
        (["--epochs", "0"], 2, "--epochs must be above 0, not 0"),
        (["--data", "random", "--rand-augment", "6"], 2, "--rand-augment changes pictures as they"),
    ]
    found = call(zygote, tmp_path, MODULE, *(arguments for arguments, _, _ in cases))
    for (arguments, code, message), said in zip(cases, found, strict=True):
        assert (said.code, message in said.last_error) == (code, True), (arguments, said)
