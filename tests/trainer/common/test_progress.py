"""Progress: lines of metrics every so many steps, and what rank 0 shows on a terminal or in a log."""

from __future__ import annotations

import io
import json

import pytest

from tests.limits import largest_file
from trainer.common.metrics import Metrics
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress, duration_text
from trainer.common.throughput import Throughput
from trainer.common.world import World


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def train(tmp_path, stream: io.StringIO, *, world: World | None = None, first: int = 1):
    """Take the steps up to the end of 2 epochs of 50 batches, 1 s each, and evaluate after each."""
    world = world or World()
    clock = Clock()
    throughput = Throughput(num_warmup_steps=1, clock=clock)
    with Metrics(tmp_path / "metrics.jsonl", world) as metrics:
        progress = Progress(
            metrics,
            world,
            throughput,
            log_every=20,
            num_batches=50,
            num_epochs=2,
            stream=stream,
            clock=clock,
        )
        with throughput.training():
            for step in range(first, 101):
                clock.now += 1
                throughput.step(64)
                taken = TakenStep(step=step, epoch=(step - 1) // 50 + 1, batch=(step - 1) % 50 + 1)
                progress.on_loss(taken, float(step))
        figures = {"loss": 0.25, "accuracy": 0.5}
        progress.on_epoch(Position(step=100, epoch=2), figures, split="test")


def read(tmp_path):
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    return [
        (line["step"], line["epoch"], line["split"], line["name"], line["value"])
        for line in map(json.loads, lines)
    ]


def test_metrics_are_means_since_the_line_before(tmp_path):
    train(tmp_path, io.StringIO())
    assert read(tmp_path) == [
        (20, 0.4, "train", "loss", 10.5),
        (40, 0.8, "train", "loss", 30.5),
        (60, 1.2, "train", "loss", 50.5),
        (80, 1.6, "train", "loss", 70.5),
        (100, 2, "train", "loss", 90.5),
        (100, 2, "test", "loss", 0.25),
        (100, 2, "test", "accuracy", 0.5),
        (100, 2, "train", "images_per_s", 64),
    ]


def test_training_accuracy_is_a_metric_where_it_is_counted(tmp_path):
    clock = Clock()
    throughput = Throughput(num_warmup_steps=0, synchronise=lambda: None, clock=clock)
    with Metrics(tmp_path / "metrics.jsonl", World()) as metrics:
        sizes = {"log_every": 2, "num_batches": 4, "num_epochs": 1}
        progress = Progress(metrics, World(), throughput, stream=io.StringIO(), **sizes)
        for step, accuracy in enumerate([0.25, 0.5, 0.75, 1.0], 1):
            progress.on_loss(TakenStep(step=step, epoch=1, batch=step), 1.0, accuracy)
    assert [line for line in read(tmp_path) if line[3] == "accuracy"] == [
        (2, 0.5, "train", "accuracy", 0.375),
        (4, 1, "train", "accuracy", 0.875),
    ]


def test_log_gets_a_line_every_10_s_and_one_an_epoch(tmp_path):
    stream = io.StringIO()
    train(tmp_path, stream)
    assert stream.getvalue().splitlines() == [
        f"epoch {(step - 1) // 50 + 1}/2   step {(step - 1) % 50 + 1}/50   loss {step}.0000   "
        f"64 images/s   {duration_text(100 - step)} left"
        for step in range(10, 101, 10)
    ] + ["epoch 2/2   test loss 0.2500   test accuracy 0.5000   64 images/s"]


def test_terminal_gets_one_line_that_is_drawn_anew(tmp_path):
    stream = Terminal()
    train(tmp_path, stream)
    *drawn, last = stream.getvalue().split("\r\033[K")
    assert drawn[0] == ""
    assert len(drawn) == 101
    assert drawn[1] == "epoch 1/2   step 1/50   loss 1.0000"
    assert drawn[50] == "epoch 1/2   step 50/50   loss 50.0000   64 images/s   50 s left"
    assert last == "epoch 2/2   test loss 0.2500   test accuracy 0.5000   64 images/s\n"


def test_resumed_training_knows_what_is_left_from_its_own_steps(tmp_path):
    stream = io.StringIO()
    train(tmp_path, stream, first=81)
    first = stream.getvalue().splitlines()[0]
    assert first == "epoch 2/2   step 40/50   loss 90.0000   64 images/s   10 s left"


def told(tmp_path):
    return json.loads((tmp_path / "progress.json").read_text())


def test_the_progress_file_tells_steps_samples_and_epochs(tmp_path):
    train(tmp_path, io.StringIO(), first=81)
    assert told(tmp_path) == {
        "done": 100,
        "total": 100,
        "unit": "step",
        "samples_per_unit": 64,
        "units_per_epoch": 50,
    }


def test_the_progress_file_is_replaced_once_a_second_and_after_the_last_step(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "trainer.common.progress.write_whole",
        lambda _, data: written.append(json.loads(data)["done"]),
    )
    clock = Clock()
    with Metrics(tmp_path / "metrics.jsonl", World()) as metrics:
        progress = Progress(
            metrics,
            World(),
            Throughput(num_warmup_steps=0),
            log_every=20,
            num_batches=5,
            num_epochs=2,
            num_steps=8,
            stream=io.StringIO(),
            clock=clock,
        )
        for step in range(1, 9):
            progress.on_loss(TakenStep(step=step, epoch=1, batch=step), 1.0)
            clock.now += 0.25
    assert written == [1, 5, 8]


def test_a_full_disk_costs_the_progress_file_and_no_training(tmp_path, capsys):
    (tmp_path / "progress.json").mkdir()
    train(tmp_path, io.StringIO())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: progress is not told: ")
    assert line.endswith("; training goes on")
    assert len(read(tmp_path)) == 8


def test_progress_is_told_again_once_the_disk_has_space(tmp_path, capsys):
    clock = Clock()
    with Metrics(tmp_path / "metrics.jsonl", World()) as metrics:
        sizes = {"log_every": 20, "num_batches": 8, "num_epochs": 1}
        throughput = Throughput(num_warmup_steps=0)
        progress = Progress(
            metrics, World(), throughput, stream=io.StringIO(), clock=clock, **sizes
        )
        for step in range(1, 7):
            clock.now += 1
            with largest_file(0 if step in (2, 3) else 1 << 20):
                progress.on_loss(TakenStep(step=step, epoch=1, batch=step), 1.0)
    assert told(tmp_path)["done"] == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: progress is not told: ")


def test_another_rank_shows_and_writes_nothing(tmp_path):
    stream = io.StringIO()
    train(tmp_path, stream, world=World(rank=1, size=2))
    assert stream.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (5369, "89 min"),
        (5400, "1 h 30 min"),
        (12_000, "3 h 20 min"),
        (360_060, "100 h 01 min"),
    ],
)
def test_duration_is_told_in_the_unit_that_says_enough(seconds, text):
    assert duration_text(seconds) == text


def test_the_wait_for_data_is_a_metric_beside_the_loss(tmp_path):
    clock = Clock()
    throughput = Throughput(num_warmup_steps=0, clock=clock)
    stream = io.StringIO()
    with Metrics(tmp_path / "metrics.jsonl", World()) as metrics:
        progress = Progress(
            metrics,
            World(),
            throughput,
            log_every=2,
            num_batches=4,
            num_epochs=1,
            stream=stream,
            clock=clock,
        )
        with throughput.training():
            for step in range(1, 5):
                with throughput.waiting():
                    clock.now += 0.25 * step
                clock.now += 8
                throughput.step(8)
                progress.on_loss(TakenStep(step=step, epoch=1, batch=step), 1.0)
    waits = [each[4] for each in read(tmp_path) if each[3] == "data_wait_s"]
    assert waits == [0.375, 0.875]
    # 0.375 of 8.4 s, as far as was known when the line was drawn.
    assert "   4% waiting for data   " in stream.getvalue()
