"""ResNet-50 in PyTorch: weights, scores and two steps, left in files for parity_tf.py.

main(["step"])      writes given, found and stepped.safetensors here; prints the number of parameters
main(["read"])      reads what TensorFlow wrote
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

from trainer.pytorch.loader import normalise
from trainer.pytorch.networks import build_resnet, load_pretrained, parameter_groups
from trainer.pytorch.state import save_weights


def main(argv: Sequence[str]) -> None:
    """Do what is asked for."""
    {"step": step, "read": read}[argv[0]]()


def step() -> None:
    """Take two steps.

    Weights and statistics are random, so that no padding, offset or momentum could be forgotten.
    """
    torch.manual_seed(1)
    network = build_resnet("resnet50", 1000)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, mean, spread in (
                (module.weight, 1.0, 0.1),
                (module.bias, 0.0, 0.1),
                (module.running_mean, 0.0, 0.1),
                (module.running_var, 1.0, 0.1),
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


def read() -> None:
    """Load TensorFlow's file."""
    network = build_resnet("resnet50", 1000)
    load_pretrained(network, Path("of_tf.safetensors"), classes=["one"] * 1000, say=lambda _: None)
    print(json.dumps({}))
