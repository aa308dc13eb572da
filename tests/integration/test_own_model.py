"""A model of the user's own in one file: the examples run through `launch` on two ranks, and resume."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.images.runtimes import PROJECT
from tests import needs
from tests.fakes import typed_launch
from tests.fakes.gangs import make_environment
from tests.fakes.torch_ranks import start_gang

OF_TIMM = """
name: timm
image: pytorch
launcher: torch
code: .
module: trainer.pytorch.classifier
requirements: requirements.txt
args:
  network: test_vit
  data: synthetic
  image-size: 160
  num-images: 160
  num-classes: 4
  batch-per-rank: 16
  epochs: 4
processes_per_node: gpu
outputs: {model: {}}
"""
NO_CACHES = shutil.ignore_patterns("__pycache__")
SEGMENTATION = "tests.integration.programs.own_segmentation"
RUN_TIMEOUT_S = 300
FOLDER = PROJECT / "examples" / "own-model"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The file of a local environment: one node of two processes that cost nothing."""
    needs.runtime("pytorch")
    made = make_environment(tmp_path / "workspace", nodes=1, processes=2)
    free = msgspec.structs.replace(made.clusters["cpu"], price_per_node_hour=0.0)
    path = tmp_path / "environment.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, clusters={"cpu": free})))
    return path


def launch(environment: Path, *words: str, inside: Path = FOLDER) -> tuple[Path, dict[str, Any]]:
    """Run a job by its file inside a folder; gives its folder and its summary."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = typed_launch.launch(inside, *words, "--env", environment, environ=environ)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = environment.parent / "workspace" / "runs" / done.stdout.splitlines()[0]
    return folder, json.loads((folder / "summary.json").read_text())


def test_a_vision_transformer_learns_on_class_folders(environment):
    folder, summary = launch(environment, "run", "vit.yaml")
    assert (summary["program"], summary["world_size"], summary["batch_size"]) == ("vit", 2, 32)
    assert len(set(summary["weights_sha256"])) == 1
    assert summary["val_top1"] > 0.9
    assert (folder / "outputs" / "model" / "vit.safetensors").stat().st_size > 500_000


def check_segmentation(folder: Path, summary: dict[str, Any]) -> None:
    assert (summary["program"], summary["world_size"]) == ("segmentation", 2)
    assert summary["val_iou"] > 0.7
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (main,) = [line for line in lines if "goal" in line]
    assert (main["split"], main["name"], main["goal"]) == ("val", "iou", "max")


def test_a_segmentation_finds_discs_by_its_own_loss(environment, zygote, tmp_path):
    """By the arguments that the job file comes to, on two ranks."""
    words = ("plan", "segmentation.yaml", "--set", "args.epochs=1", "--json")
    planned = typed_launch.launch(FOLDER, *words, "--env", environment)
    assert planned.returncode == 0, planned.stderr
    spec = json.loads(planned.stdout)["spec"]
    assert (spec["launcher"], spec["outputs"]) == ("torch", ["model"])
    command = ["python", "-m", "examples.own-model.segmentation"]
    assert spec["command"][:3] == command
    argv = [SEGMENTATION, *spec["command"][3:]]
    folder = tmp_path / "run"
    gang = start_gang(zygote, argv, strategy="ddp", size=2, folder=folder)
    assert gang.wait(RUN_TIMEOUT_S) == [0, 0], gang.texts()
    gang.end()
    check_segmentation(folder, json.loads((folder / "summary.json").read_text()))


@pytest.mark.faults
def test_a_segmentation_is_run_as_its_job_says(environment):
    words = ("run", "segmentation.yaml", "--set", "args.epochs=1")
    check_segmentation(*launch(environment, *words))


def test_a_keras_network_learns_on_class_folders(environment):
    needs.runtime("tensorflow")
    folder, summary = launch(environment, "run", "separable.yaml")
    fixed = ("program", "strategy", "world_size", "batch_size")
    assert [summary[key] for key in fixed] == ["separable", "horovod", 2, 32]
    assert len(set(summary["weights_sha256"])) == 1
    assert summary["val_top1"] > 0.9
    assert "val_top5" not in summary  # of four classes
    model = folder / "outputs" / "model"
    assert {path.name for path in model.iterdir()} == {"separable.json", "separable.safetensors"}


@pytest.mark.faults
def test_a_model_of_ones_own_resumes(environment):
    _, begun = launch(environment, "run", "segmentation.yaml", "--set", "args.epochs=1")
    more = ("--resume", "--set", "args.epochs=2")
    _, resumed = launch(environment, "rerun", "last", *more)
    assert resumed["resumed_from_step"] == begun["steps"]
    assert resumed["val_iou"] > 0.8


@pytest.mark.faults
def test_a_network_of_timm_trains_by_its_name(environment, tmp_path):
    """By timm itself, which the job brings, from the package index."""
    code = tmp_path / "code"
    shutil.copytree(PROJECT / "trainer", code / "trainer", ignore=NO_CACHES)
    (code / "requirements.txt").write_text("timm\n")
    (code / "timm.yaml").write_text(OF_TIMM)
    _, summary = launch(environment, "run", "timm.yaml", inside=code)
    assert (summary["network"], summary["world_size"]) == ("test_vit", 2)
    assert summary["val_top1"] > 0.9
