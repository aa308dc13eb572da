"""ResNet-50 is one network in PyTorch, TensorFlow and Keras; 1, 2 and 4 ranks take the same steps."""

from __future__ import annotations

import array
import json
import math
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.fakes.torch_ranks import Zygote, start_gang

REPO = Path(__file__).parents[2]
TINY = "tests.integration.programs.tf_tiny"
NUM_PARAMETERS = 25_557_032


def python_of(image: str) -> Path:
    return needs.runtime(image)


def run(python: Path, program: str, folder: Path) -> dict[str, float]:
    """Run a program in the folder; gives the JSON that it prints last."""
    done = subprocess.run(
        [python, "-c", program],
        env={"PYTHONPATH": str(REPO), "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# Weights and statistics at random, so that no padding, offset or momentum could be forgotten.
PYTORCH = """
import json
import torch
from pathlib import Path
from safetensors.torch import save_file
from torch.nn import functional
from trainer.pytorch.loader import normalise
from trainer.pytorch.networks import build_resnet, parameter_groups
from trainer.pytorch.state import save_weights

torch.manual_seed(1)
network = build_resnet("resnet50", 1000)
for module in network.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        for tensor, mean, spread in (
            (module.weight, 1.0, 0.1), (module.bias, 0.0, 0.1),
            (module.running_mean, 0.0, 0.1), (module.running_var, 1.0, 0.1),
        ):
            tensor.data.normal_(mean, spread)
save_weights(network, Path("given.safetensors"))
found = {}
network.eval()
images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
found["images"] = images.permute(0, 2, 3, 1).contiguous()
with torch.no_grad():
    found["scores"] = network(normalise(images))
# Small where a block ends: else rounding grows from block to block, and from step to step.
for name, parameter in network.named_parameters():
    if name.endswith("bn3.weight"):
        parameter.data.mul_(0.2)
network.train()
few = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8)
found["few"] = few.permute(0, 2, 3, 1).contiguous()
labels = found["labels"] = torch.arange(8)
groups = parameter_groups(network, weight_decay=1e-2)
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
for number, rate in enumerate((0.01, 0.002)):
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = functional.cross_entropy(network(normalise(few)), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found[f"loss{number}"] = loss.detach()
save_weights(network, Path("stepped.safetensors"))
save_file(found, "found.safetensors")
print(json.dumps({"parameters": sum(each.numel() for each in network.parameters())}))
"""

TENSORFLOW = """
import json
from pathlib import Path
import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file
from trainer.tf.model_file import load_pretrained, weights_of as torch_weights
from trainer.tf.network import build_resnet50
from trainer.tf.optimizer import make_optimizer
from trainer.tf.steps import cross_entropy

given, stepped = load_file("given.safetensors"), load_file("stepped.safetensors")
found = load_file("found.safetensors")
network = build_resnet50(1000, 224)
load_pretrained(network, Path("given.safetensors"), say=print)
own = torch_weights(network)
equal = [name for name in given if "num_batches" not in name and (own[name] == given[name]).all()]
far = np.abs(network(found["images"], training=False).numpy() - found["scores"]).max()

small = build_resnet50(1000, 64)
load_pretrained(small, Path("given.safetensors"), say=print)
for layer in small.layers:
    if layer.name.endswith("bn3"):
        layer.gamma.assign(layer.gamma * 0.2)
optimizer = make_optimizer(small, precision="fp32", momentum=0.9, weight_decay=1e-2)
losses = []
for rate in (0.01, 0.002):
    optimizer.learning_rate = rate
    with tf.GradientTape() as tape:
        scores = small(found["few"], training=True)
        loss = tf.reduce_mean(cross_entropy(scores, found["labels"], 0.1))
    weights = [each.value for each in small.trainable_variables]
    optimizer.apply(tape.gradient(loss, weights), small.trainable_variables)
    losses.append(float(loss))
own = torch_weights(small)
def relative(name):
    change = np.linalg.norm(stepped[name] - given[name])
    return np.linalg.norm(own[name] - stepped[name]) / change
names = [name for name in given if "num_batches" not in name]
from safetensors.numpy import save_file
save_file(own, "of_tf.safetensors")
print(json.dumps({
    "parameters": sum(int(np.prod(each.shape)) for each in network.trainable_variables),
    "num_equal": len(equal), "num_names": len(names),
    "same_names": sorted(own) == sorted(stepped),
    "far": float(far), "largest": float(np.abs(found["scores"]).max()),
    "losses": losses, "wanted": [float(found["loss0"]), float(found["loss1"])],
    "stepped": float(max(relative(name) for name in names)),
}))
"""

PYTORCH_AGAIN = """
import json
from pathlib import Path
from trainer.pytorch.networks import load_pretrained, build_resnet
network = build_resnet("resnet50", 1000)
load_pretrained(network, Path("of_tf.safetensors"), say=print)
print(json.dumps({}))
"""


def test_pytorch_and_tensorflow_have_one_network_one_optimizer_and_one_file(tmp_path):
    pytorch, tensorflow = python_of("pytorch"), python_of("tensorflow")
    assert run(pytorch, PYTORCH, tmp_path) == {"parameters": NUM_PARAMETERS}
    found = run(tensorflow, TENSORFLOW, tmp_path)
    assert found["parameters"] == NUM_PARAMETERS
    assert found["num_equal"] == found["num_names"] == 267
    assert found["same_names"]
    assert found["far"] <= 1e-4, found
    assert found["losses"] == pytest.approx(found["wanted"], rel=1e-3)
    # Double precision in PyTorch is as far from single, in losses and in what the steps changed.
    assert found["stepped"] < 0.1, found
    run(pytorch, PYTORCH_AGAIN, tmp_path)


@pytest.fixture
def zygote(tensorflow_zygote: Zygote) -> Zygote:
    """What forks the ranks here."""
    return tensorflow_zygote


def train(zygote: Zygote, folder: Path, framework: str, kind: str, size: int, *more: str) -> Path:
    """Train the tiny net for 18 steps of 8 pictures on so many ranks; 18 pictures are evaluated."""
    made = ("--data", "synthetic", "--image-size", "32", "--num-images", "72")
    argv = [TINY, framework, kind, *made]
    argv += ["--num-classes", "4", "--batch-per-rank", str(8 // size), "--epochs", "2"]
    argv += ["--warmup-epochs", "0", "--lr", "3", "--weight-decay", "0", "--log-every", "1"]
    argv += ["--checkpoint-every", "1", "--keep-last", "20", *more]
    run_dir = folder / f"{framework}-{kind}-{size}"
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    gang = start_gang(zygote, argv, strategy="horovod", size=size, folder=run_dir, env=env)
    codes = gang.wait(120)
    gang.end()
    assert codes == [0] * size, gang.texts()
    return run_dir


def losses(run_dir: Path) -> list[float]:
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if (line["split"], line["name"]) == ("train", "loss")]


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


@pytest.mark.parametrize("framework", ["tf", "keras"])
def test_1_2_and_4_ranks_have_the_same_gradients_and_losses(zygote, tmp_path, framework):
    runs = [train(zygote, tmp_path, framework, "plain", size) for size in (1, 2, 4)]
    found = [losses(run_dir) for run_dir in runs]
    assert [len(each) for each in found] == [18] * 3
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
def test_ranks_stay_equal_at_any_precision(zygote, tmp_path, arguments):
    framework, *more = arguments
    run_dir = train(zygote, tmp_path, framework, "statistics", 2, *more)
    assert len(set(summary(run_dir)["weights_sha256"])) == 1
    found = losses(run_dir)
    assert found[-1] < 0.9 * found[0]
    if "fp16" in more:
        (path,) = (run_dir / "checkpoints").glob("step-000000018-*/optimizer.safetensors")
        assert b'"loss_scale/dynamic_scale"' in path.read_bytes()


def test_fit_and_the_loop_end_with_equal_bits(zygote, tmp_path):
    runs = [train(zygote, tmp_path, framework, "statistics", 2) for framework in ("tf", "keras")]
    digests = {digest for run_dir in runs for digest in summary(run_dir)["weights_sha256"]}
    assert len(digests) == 1
    assert losses(runs[0]) == losses(runs[1])
