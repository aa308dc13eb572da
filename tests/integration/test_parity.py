"""ResNet-50 is one network in PyTorch, TensorFlow and Keras; 1, 2 and 4 ranks take the same steps."""

from __future__ import annotations

import array
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.torch_ranks import Zygote, start_gang
from trainer.common.accelerators import has_instructions

TINY = "tests.integration.programs.tf_tiny"
PYTORCH = "tests.integration.programs.parity_torch"
TENSORFLOW = "tests.integration.programs.parity_tf"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
NUM_PARAMETERS = 25_557_032


def test_pytorch_and_tensorflow_have_one_network_one_optimizer_and_one_file(
    zygote, tensorflow_zygote, tmp_path
):
    stepped = json.loads(zygote.run(PYTORCH, "step", folder=tmp_path))
    assert stepped == {"parameters": NUM_PARAMETERS}
    found = json.loads(tensorflow_zygote.run(TENSORFLOW, folder=tmp_path, env=QUIET))
    assert found["parameters"] == NUM_PARAMETERS
    assert found["num_equal"] == found["num_names"] == 267
    assert found["same_names"]
    assert found["far"] <= 1e-4, found
    assert found["losses"] == pytest.approx(found["wanted"], rel=1e-3)
    # Double precision in PyTorch is as far from single, in losses and in what the steps changed.
    assert found["stepped"] < 0.1, found
    zygote.run(PYTORCH, "read", folder=tmp_path)


def train(zygote: Zygote, folder: Path, framework: str, kind: str, size: int, *more: str) -> Path:
    """Train the tiny net for 18 steps of 8 pictures on so many ranks; 18 pictures are evaluated."""
    made = ("--data", "synthetic", "--image-size", "32", "--num-images", "72")
    argv = [TINY, framework, kind, *made]
    argv += ["--num-classes", "4", "--batch-per-rank", str(8 // size), "--epochs", "2"]
    argv += ["--warmup-epochs", "0", "--lr", "3", "--weight-decay", "0", "--log-every", "1"]
    argv += ["--checkpoint-every", "1", "--keep-last", "20", *more]
    run_dir = folder / f"{framework}-{kind}-{size}"
    gang = start_gang(zygote, argv, strategy="horovod", size=size, folder=run_dir, env=QUIET)
    codes = gang.wait(120)
    gang.end()
    assert codes == [0] * size, gang.texts()
    return run_dir


def losses(run_dir: Path) -> list[float]:
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if (line["split"], line["name"]) == ("train", "loss")]


def figures(run_dir: Path) -> set[str]:
    """Give the names of what evaluations found, in the metrics and in the summary."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    names = {line["name"] for line in lines if line["split"] == "val"}
    return names | {key.removeprefix("val_") for key in summary(run_dir) if key.startswith("val_")}


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def first_gradient(run_dir: Path) -> dict[str, array.array[float]]:
    """The momenta after the first step, which are its gradients."""
    (path,) = (run_dir / "checkpoints").glob("step-000000001-*/optimizer.safetensors")
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors: dict[str, array.array[float]] = {}
    for name, about in header.items():
        if name.endswith("momentum"):
            begin, end = about["data_offsets"]
            tensors[name] = array.array("f", data[8 + size + begin : 8 + size + end])
    return tensors


@pytest.mark.parametrize(
    ("framework", "sizes"),
    [
        pytest.param("tf", (1, 4), id="tf"),
        pytest.param("tf", (1, 2), id="tf on two", marks=pytest.mark.faults),
        pytest.param("keras", (1, 2, 4), id="keras"),
    ],
)
def test_1_2_and_4_ranks_have_the_same_gradients_and_losses(
    tensorflow_zygote, tmp_path, framework, sizes
):
    more = ("--num-classes", "6")
    runs = [train(tensorflow_zygote, tmp_path, framework, "plain", size, *more) for size in sizes]
    found = [losses(run_dir) for run_dir in runs]
    assert [len(each) for each in found] == [18] * len(sizes)
    assert found[0][-1] < 0.9 * found[0][0]
    wanted = first_gradient(runs[0])
    assert len(wanted) == 4
    for other, run_dir in zip(found[1:], runs[1:], strict=True):
        assert other == pytest.approx(found[0], rel=1e-5)
        # The last batch of an evaluation leaves some of four ranks without a picture.
        for name in ("val_loss", "val_top1", "val_top5"):
            assert summary(run_dir)[name] == pytest.approx(summary(runs[0])[name], rel=1e-5)
        for name, gradient in first_gradient(run_dir).items():
            scale = math.hypot(*wanted[name])
            assert math.dist(gradient, wanted[name]) <= 1e-6 * scale, (name, run_dir)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tf", "--precision", "bf16", "--xla"),
        ("tf", "--precision", "fp16"),
        ("keras", "--precision", "fp16"),
        ("keras", "--precision", "bf16", "--xla"),
    ],
    ids=" ".join,
)
def test_ranks_stay_equal_at_any_precision(tensorflow_zygote, tmp_path, arguments):
    framework, *more = arguments
    run_dir = train(tensorflow_zygote, tmp_path, framework, "statistics", 2, *more)
    assert len(set(summary(run_dir)["weights_sha256"])) == 1
    found = losses(run_dir)
    assert found[-1] < 0.9 * found[0]
    precision = "fp16" if "fp16" in more else "bf16"
    said = (run_dir / "rank-0.log").read_text()
    assert (f"no instructions for {precision}" in said) is not has_instructions(precision)
    if "fp16" in more:
        (path,) = (run_dir / "checkpoints").glob("step-000000018-*/optimizer.safetensors")
        assert b'"loss_scale/dynamic_scale"' in path.read_bytes()


def test_fit_and_the_loop_end_with_equal_bits(tensorflow_zygote, tmp_path):
    runs = [
        train(tensorflow_zygote, tmp_path, framework, "statistics", 2)
        for framework in ("tf", "keras")
    ]
    digests = {digest for run_dir in runs for digest in summary(run_dir)["weights_sha256"]}
    assert len(digests) == 1
    assert losses(runs[0]) == losses(runs[1])
    # Of four classes the five surest are all of them.
    assert [figures(each) for each in runs] == [{"loss", "top1", "images"}] * 2
