"""Metrics: whole lines, from rank 0 only."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from trainer.common.metrics import Metrics
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
