"""The MNIST program on real ranks: of Horovod, of DDP, and alone.

Every run is of the digits, with PyTorch and Horovod of the image's own runtime.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.images.runtimes import PROJECT
from jobs.runs.progress import read_progress
from tests import needs
from tests.busy import how_busy
from tests.fakes import picture_runs
from tests.fakes.gangs import Gangs
from tests.fakes.picture_runs import Trained
from tests.fakes.safetensors_files import read_tensors
from tests.fakes.torch_ranks import start_gang
from trainer.data.disk.events import Events
from trainer.data.pictures.idx import read_idx, write_idx
from trainer.data.prepare.digits import prepare_digits

MODULE = "trainer.pytorch.mnist"
RUN_TIMEOUT_S = 300
MODEL = Path("outputs", "model", "mnist.safetensors")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "digits"
    prepare_digits(folder, Events(as_json=True))
    return folder


@pytest.fixture(scope="module")
def small(digits, tmp_path_factory) -> Path:
    """The first 150 training and 50 test pictures, for runs of a second."""
    folder = tmp_path_factory.mktemp("small")
    for prefix, count in (("train", 150), ("t10k", 50)):
        _, pixels = read_idx(digits, f"{prefix}-images-idx3-ubyte")
        _, labels = read_idx(digits, f"{prefix}-labels-idx1-ubyte")
        name = f"{prefix}-images-idx3-ubyte"
        write_idx(folder / name, (count, 28, 28), pixels[: count * 784])
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", (count,), labels[:count])
    return folder


@pytest.fixture(scope="module")
def on_two_ranks(zygote, digits, tmp_path_factory) -> Trained:
    """The demo's training, on two ranks of DDP."""
    folder = tmp_path_factory.mktemp("two") / "run"
    return picture_runs.train(zygote, MODULE, "--data", str(digits), folder=folder, size=2)


class TestDigits:
    def test_two_ranks_learn_the_digits(self, on_two_ranks):
        summary = on_two_ranks.summary
        fixed = ("program", "strategy", "world_size", "device", "epochs", "batch_size", "seed")
        assert [summary[key] for key in fixed] == [
            *("trainer.pytorch.mnist", "ddp", 2, "cpu", 8, 64, 1)
        ]
        assert (summary["train_images"], summary["test_images"]) == (1442, 355)
        assert 0.97 <= summary["test_accuracy"] < summary["test_top5"] <= 1
        assert summary["images_per_s"] > 0

    def test_both_ranks_end_with_the_same_weights_and_the_model_holds_them(self, on_two_ranks):
        digests = on_two_ranks.summary["weights_sha256"]
        assert len(digests) == 2
        assert len(set(digests)) == 1
        digest = hashlib.sha256()
        for name, value in sorted(read_tensors(on_two_ranks.folder / MODEL).items()):
            digest.update(name.encode() + value)
        assert digest.hexdigest() == digests[0]

    def test_the_metrics_show_every_epoch_and_end_in_the_summary(self, on_two_ranks):
        steps = 23  # of 64 pictures
        accuracies = on_two_ranks.curve("test", "accuracy")
        assert [step for step, _ in accuracies] == [epoch * steps for epoch in range(1, 9)]
        assert accuracies[-1][1] == on_two_ranks.summary["test_accuracy"]
        assert on_two_ranks.curve("test", "loss")[-1][1] == on_two_ranks.summary["test_loss"]
        train_loss = on_two_ranks.curve("train", "loss")
        assert [step for step, _ in train_loss] == list(range(10, 8 * steps + 1, 10))
        assert train_loss[-1][1] < 0.2 < train_loss[0][1]
        right = on_two_ranks.curve("train", "accuracy")
        assert [step for step, _ in right] == [step for step, _ in train_loss]
        assert right[0][1] < 0.9 < right[-1][1] <= 1
        rates = on_two_ranks.curve("train", "images_per_s")
        assert rates[-1][1] == on_two_ranks.summary["images_per_s"]

    def test_the_progress_is_whole(self, on_two_ranks):
        progress = read_progress(on_two_ranks.folder)
        assert progress is not None
        assert (progress.done, progress.total, progress.unit) == (184, 184, "step")
        # An epoch's last batch is smaller.
        assert progress.samples_total == pytest.approx(8 * 1442)

    @pytest.mark.faults
    def test_a_job_of_horovod_ends_as_ddp_does_and_tells_about_the_summarys_rate(
        self, on_two_ranks, digits, tmp_path
    ):
        gangs = Gangs(tmp_path, interpreter=needs.runtime("pytorch"))
        handle = gangs.submit(
            ["python", "-m", MODULE, "--data", str(digits), "--strategy", "horovod"],
            launcher="horovod",
            processes_per_node=2,
            code=str(PROJECT),
            code_only=("trainer",),
            outputs=("model",),
            hang_s=120.0,
            # More threads than idle cores wait for each other: beside other tests that costs minutes.
            env={"OMP_NUM_THREADS": "1"},
        )
        status = gangs.wait(handle, RUN_TIMEOUT_S)
        gangs.end()
        assert status.state is RunState.COMPLETED, (status, gangs.texts(handle, 0))
        trained = picture_runs.read_run(Path(handle.run_dir))
        digests = {
            digest for each in (trained, on_two_ranks) for digest in each.summary["weights_sha256"]
        }
        assert len(digests) == 1
        progress = read_progress(trained.folder)
        assert progress is not None
        # Of the last seconds and of the whole: beside other work the two differ more.
        times = 2 * how_busy()
        rate = progress.samples_per_s
        assert 1 / times < rate / trained.summary["images_per_s"] < times

    @pytest.mark.faults
    def test_one_rank_with_the_same_total_batch_comes_to_the_same_within_a_point(
        self, on_two_ranks, zygote, digits, tmp_path
    ):
        arguments = ("--data", str(digits))
        alone = picture_runs.train(
            zygote, MODULE, *arguments, folder=tmp_path, strategy="single"
        ).summary
        assert (alone["strategy"], alone["world_size"]) == ("single", 1)
        assert alone["test_accuracy"] >= 0.97
        assert abs(alone["test_accuracy"] - on_two_ranks.summary["test_accuracy"]) <= 0.01


class TestRanks:
    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, zygote, small, tmp_path_factory) -> list[Trained]:
        """Two epochs of three steps on two ranks: of Horovod, and of DDP twice."""
        arguments = ("--data", str(small), "--epochs", "2", "--log-every", "1")
        folders = [tmp_path_factory.mktemp("ranks") / "run" for _ in range(3)]
        return [
            picture_runs.train(zygote, MODULE, *arguments, folder=folder, strategy=strategy, size=2)
            for folder, strategy in zip(folders, ("horovod", "ddp", "ddp"), strict=True)
        ]

    def test_equal_seeds_give_equal_losses_under_each_strategy_and_under_both(self, runs):
        losses = [run.curve("train", "loss") + run.curve("test", "loss") for run in runs]
        assert len(losses[0]) > 2
        assert losses[1] == losses[2]
        # Two ranks add in one order only, so that even the libraries agree to the bit.
        assert losses[0] == losses[1]
        assert len({digest for run in runs for digest in run.summary["weights_sha256"]}) == 1

    def test_the_summary_tells_what_was_trained(self, runs):
        fixed = ("program", "strategy", "world_size", "device", "epochs", "batch_size", "seed")
        told = [[run.summary[key] for key in fixed] for run in runs[:2]]
        assert told == [[MODULE, name, 2, "cpu", 2, 64, 1] for name in ("horovod", "ddp")]
        summary = runs[1].summary
        assert (summary["train_images"], summary["test_images"]) == (150, 50)
        assert 0.5 <= summary["test_accuracy"] < summary["test_top5"] <= 1
        assert summary["images_per_s"] > 0

    def test_the_weights_of_both_ranks_are_the_models(self, runs):
        for run in runs:
            digests = run.summary["weights_sha256"]
            assert len(digests) == 2
            digest = hashlib.sha256()
            for name, value in sorted(read_tensors(run.folder / MODEL).items()):
                digest.update(name.encode() + value)
            assert {digest.hexdigest()} == set(digests)

    def test_the_metrics_show_every_step_and_end_in_the_summary(self, runs):
        for run in runs:
            accuracies = run.curve("test", "accuracy")
            assert [step for step, _ in accuracies] == [3, 6]
            assert accuracies[-1][1] == run.summary["test_accuracy"]
            assert run.curve("test", "loss")[-1][1] == run.summary["test_loss"]
            train_loss = run.curve("train", "loss")
            assert [step for step, _ in train_loss] == list(range(1, 7))
            assert train_loss[-1][1] < 0.9 * train_loss[0][1]
            rates = run.curve("train", "images_per_s")
            assert rates[-1][1] == run.summary["images_per_s"]

    def test_their_progress_is_whole(self, runs):
        for run in runs:
            progress = read_progress(run.folder)
            assert progress is not None
            told = (progress.done, progress.total, progress.unit)
            assert told == (6, 6, "step")
            # An epoch's last batch is smaller.
            assert progress.samples_total == pytest.approx(2 * 150)

    def test_a_loss_that_is_no_number_ends_every_rank_with_one_clear_line(
        self, zygote, small, tmp_path
    ):
        argv = [MODULE, "--data", str(small), "--lr", "1e30"]
        gang = start_gang(zygote, argv, strategy="ddp", size=2, folder=tmp_path)
        assert gang.wait(RUN_TIMEOUT_S) == [1, 1], gang.texts()
        gang.end()
        for text in gang.texts():
            assert "error: training has diverged: the loss of 2 ranks is not finite at " in text
            assert "hint: a smaller --lr than 1e+30" in text
            assert "Traceback" not in text
        assert not (tmp_path / "summary.json").exists()


def test_a_mistake_is_one_line_that_says_what_to_do(zygote, small, tmp_path):
    data = str(small)
    cases = [
        ([["--epochs", "0"], {}], 2, "--epochs must be above 0, not 0"),
        ([[], {}], 1, "error: no input `digits` was handed to this run (hint: name the folder"),
        ([["--data", "/nowhere"], {}], 1, "error: no `train-images-idx3-ubyte`"),
        ([[], {"WORLD_SIZE": "2"}], 1, "error: WORLD_SIZE is 2 but RANK is not set"),
        (
            [["--strategy", "single"], {"WORLD_SIZE": "2", "RANK": "0"}],
            1,
            "error: strategy single cannot train on 2 ranks (hint: --strategy horovod or",
        ),
        ([["--device", "cuda"], {}], 1, "error: --device cuda, but PyTorch sees no GPU here"),
        *(
            (
                [["--strategy", strategy, "--dist-backend", "gloo"], {}],
                1,
                f"error: --dist-backend and --dist-url are not for strategy {strategy} (hint: ",
            )
            for strategy in ("horovod", "single")
        ),
        (
            [["--data", data, "--dist-backend", "nccl", "--dist-url", "tcp://127.0.0.1:9"], {}],
            1,
            "error: --dist-backend nccl is for GPUs, and this rank computes on the CPU (hint: ",
        ),
        (
            [["--data", data, "--dist-url", "tcp://192.0.2.1:9"], {}],
            1,
            "error: rank 0 cannot meet the others at tcp://192.0.2.1:9: Cannot assign requested",
        ),
        (
            [["--data", data, "--strategy", "ddp"], {"WORLD_SIZE": "2", "RANK": "0"}],
            1,
            "error: neither --dist-url nor MASTER_ADDR and MASTER_PORT say where ranks meet",
        ),
        (
            [["--data", data, "--dist-url", "file:///nowhere/at/all"], {}],
            1,
            "error: rank 0 cannot meet the others at file:///nowhere/at/all: no such folder (hint",
        ),
    ]
    called = [(MODULE, *case) for case, _, _ in cases]
    found = picture_runs.call_each(zygote, tmp_path, called)
    for (case, code, message), said in zip(cases, found, strict=True):
        assert said.code == code, case
        assert message in said.last_error, case
