"""Metrics: whole lines, from rank 0 only."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from tests.limits import largest_file
from trainer.common.errors import TrainingError
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.world import World


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_value_is_one_line_with_its_place(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        metrics.log(step=3, epoch=1 / 3, split="test", loss=0.5, accuracy=0.75)
    lines = read(path)
    times = [datetime.fromisoformat(line.pop("ts")) for line in lines]
    assert lines == [
        {"step": 3, "epoch": 0.3333, "split": "test", "name": "loss", "value": 0.5},
        {"step": 3, "epoch": 0.3333, "split": "test", "name": "accuracy", "value": 0.75},
    ]
    assert all(time.utcoffset() == timedelta(0) for time in times)


def test_a_line_is_there_before_the_file_is_closed(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl", World())
    metrics.log(step=1, epoch=1, split="train", loss=1.0)
    assert len(read(tmp_path / "metrics.jsonl")) == 1
    metrics.close()
    metrics.close()


def test_another_rank_writes_nothing(tmp_path):
    with Metrics(tmp_path / "metrics.jsonl", World(rank=1, size=2)) as metrics:
        metrics.log(step=1, epoch=1, split="train", loss=1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_new_run_does_not_go_on_in_an_old_file(tmp_path):
    for _ in range(2):
        with Metrics(tmp_path / "metrics.jsonl", World()) as metrics:
            metrics.log(step=1, epoch=1, split="train", loss=1.0)
    assert len(read(tmp_path / "metrics.jsonl")) == 1


def test_no_line_that_is_not_json_gets_out(tmp_path):
    with (
        Metrics(tmp_path / "metrics.jsonl", World()) as metrics,
        pytest.raises(ValueError, match="not JSON"),
    ):
        metrics.log(step=1, epoch=1, split="train", loss=float("nan"))
    assert read(tmp_path / "metrics.jsonl") == []


def test_a_file_that_cannot_be_opened_is_an_error_of_one_line(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").mkdir()
    (tmp_path / "file").touch()
    for folder, why in ((tmp_path, "Is a directory"), (tmp_path / "file", "File exists")):
        told = (
            rf"metrics file `{folder}/metrics\.jsonl` cannot be opened: {why} \(hint: --output-dir"
        )
        with pytest.raises(TrainingError, match=told):
            Metrics(folder / "metrics.jsonl", World())
    assert capsys.readouterr() == ("", "")


# --- attempts ----------------------------------------------------------------------------------


def test_lines_that_come_again_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        for step in (10, 20, 30):
            metrics.log(step=step, epoch=step / 10, split="train", loss=step)
            metrics.log(step=step, epoch=step / 10, split="test", loss=step)
    with path.open("ab") as file:
        file.write(b'{"step": 5, "spl\n[]\n7\n{"step": "x", "split": "train"}\n')
    with Metrics(path, World(), after_step=20) as metrics:
        metrics.log(step=20, epoch=2, split="test", loss=0.5)
    assert [(line["step"], line["split"], line["value"]) for line in read(path)] == [
        (10, "train", 10),
        (10, "test", 10),
        (20, "train", 20),
        (20, "test", 0.5),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_that_was_cut_before_its_end_of_line_keeps_the_next_one_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        metrics.log(step=1, epoch=1, split="train", loss=1.0)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with Metrics(path, World(), after_step=1) as metrics:
        metrics.log(step=2, epoch=1, split="train", loss=0.5)
    assert [(line["step"], line["value"]) for line in read(path)] == [(1, 1.0), (2, 0.5)]


def test_an_evaluation_alone_drops_no_line_of_the_training_in_whose_folder_it_is(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        for step in (10, 20):
            metrics.log(step=step, epoch=1, split="train", loss=step)
            metrics.log(step=step, epoch=1, split="val", loss=step)
    for loss in (0.25, 0.5):  # its own line of the time before comes again
        with Metrics(path, World(), after_step=0, only_evaluates=True) as metrics:
            metrics.log(step=0, epoch=0, split="val", loss=loss)
    assert [(line["step"], line["split"], line["value"]) for line in read(path)] == [
        (10, "train", 10),
        (10, "val", 10),
        (20, "train", 20),
        (20, "val", 20),
        (0, "val", 0.5),
    ]


def test_a_program_of_one_split_leaves_the_lines_of_a_training(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        metrics.log(step=10, epoch=1, split="train", loss=0.5)
        metrics.log(step=10, epoch=1, split="val", loss=0.25)
    for bus in (1.0, 2.0):
        with Metrics(path, World(), only_split="all-reduce") as metrics:
            metrics.log(step=1, epoch=0, split="all-reduce", bus_gb_per_s=bus)
    assert [(line["step"], line["split"], line["value"]) for line in read(path)] == [
        (10, "train", 0.5),
        (10, "val", 0.25),
        (1, "all-reduce", 2.0),
    ]


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def log(self, *, step: int, split: str, values: dict[str, float]) -> None:
        self.got.append((step, split, values))

    def close(self, *, is_complete: bool) -> None:
        self.got.append(is_complete)


def test_trackers_get_the_same_values_and_learn_how_it_ended(tmp_path):
    complete, failed, other = Recorder(), Recorder(), Recorder()
    with Metrics(tmp_path / "a", World(), trackers=[complete]) as metrics:
        metrics.log(step=1, epoch=1, split="test", loss=1.0, accuracy=0.5)
    metrics.close()
    assert complete.got == [(1, "test", {"loss": 1.0, "accuracy": 0.5}), True]
    with pytest.raises(KeyError), Metrics(tmp_path / "b", World(), trackers=[failed]) as metrics:
        raise KeyError
    assert failed.got == [False]
    with Metrics(tmp_path / "c", World(rank=1, size=2), trackers=[other]) as metrics:
        metrics.log(step=1, epoch=1, split="test", loss=1.0)
    assert other.got == []


def test_full_disk_costs_lines_and_no_training(tmp_path):
    path = tmp_path / "metrics.jsonl"
    said: list[str] = []
    with Metrics(path, World(), say=said.append) as metrics:
        metrics.log(step=1, epoch=1, split="train", loss=1.0)
        size = path.stat().st_size
        with largest_file(size + size // 2):  # a line and a half
            for step in (2, 3):
                metrics.log(step=step, epoch=1, split="train", loss=1.0)
        metrics.log(step=4, epoch=1, split="train", loss=1.0)
    lines = path.read_bytes().splitlines()
    assert [json.loads(lines[at])["step"] for at in (0, 2)] == [1, 4]
    assert len(lines) == 3
    assert said == ["lines of metrics are lost: the disk is full; training goes on"]


def test_metrics_that_cannot_be_rewritten_stay_beside_the_new_ones(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path, World()) as metrics:
        for step in range(10):
            metrics.log(step=step, epoch=1, split="train", loss=1.0)
    said: list[str] = []
    with largest_file(path.stat().st_size // 2):
        Metrics(path, World(), after_step=8, say=said.append).close()
    assert len(read(path)) == 10
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert len(said) == 1
    assert said[0].startswith("metrics of the attempt before stay beside the new ones: `")


def test_lines_of_the_main_figure_have_its_goal(tmp_path):
    main = MainFigure(split="val", name="top1", goal="max")
    with Metrics(tmp_path / "a", World(), main=main) as metrics:
        metrics.log(step=1, epoch=1, split="train", top1=0.25)
        metrics.log(step=1, epoch=1, split="val", loss=0.5, top1=0.75)
    assert [(line["split"], line["name"], line.get("goal")) for line in read(tmp_path / "a")] == [
        ("train", "top1", None),
        ("val", "loss", None),
        ("val", "top1", "max"),
    ]
