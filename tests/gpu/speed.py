"""Rates on the GPU beside those of peers, in turn: ResNet-50, Mask R-CNN, pictures from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tests.bench import maskrcnn, resnet50_gpu
from tests.bench.loader import make_jpegs
from tests.gpu.findings import Finding, at_least
from tests.gpu.programs import Where, train

BATCH = 256
NUM_JPEGS = 6_400
RESNET50 = ("trainer.pytorch.resnet50", "--precision", "bf16", "--batch-per-rank", str(BATCH))


def resnet50(where: Where) -> Sequence[Finding]:
    """Train on noise, against Horovod's benchmark and timm's (tests/bench/resnet50_gpu.py)."""
    name = torch.cuda.get_device_name()
    rows = resnet50_gpu.measure(where.folder, name, batch=BATCH, rounds=where.rounds)
    return [
        at_least(row.goal, row.ratio, row.at_least or 0.0, beside=f"{row.ours}; {row.peer}")
        for row in rows
    ]


def mask_rcnn(where: Where) -> Sequence[Finding]:
    """Take steps, against torchvision's reference (tests/bench/maskrcnn.py)."""
    device = torch.device(where.device)
    rates = [
        maskrcnn.measure(
            device, batch_size=size, image_size=800, num_steps=10, num_rounds=where.rounds
        )
        for size in (2, 8)
    ]
    return [
        at_least(
            f"Mask R-CNN, {each.batch_size} pictures a step, against torchvision's reference",
            each.ours / each.peer,
            maskrcnn.GOAL,
            beside=f"{each.ours:.1f} against {each.peer:.1f} images/s",
        )
        for each in rates
    ]


def pictures(where: Where) -> Sequence[Finding]:
    """Train on JPEGs from files, by each decoder, against noise on the device."""
    folder = where.folder / "jpegs"
    make_jpegs(folder, num_images=NUM_JPEGS)
    noise = (*RESNET50, "--data", "random", "--num-images", str(NUM_JPEGS), "--epochs", "3")
    most = train(where, "noise", *noise).require().summary["images_per_s"]
    return [_from_files(where, decoder, folder, most) for decoder in ("library", "fast")]


def _from_files(where: Where, decoder: str, folder: Path, most: float) -> Finding:
    arguments = ("--data", str(folder), "--epochs", "3", "--decoder", decoder)
    told = train(where, decoder, *RESNET50, *arguments).require().summary
    rate, per_core = told["images_per_s"], told["decoded_per_core_per_s"]
    return at_least(
        f"ResNet-50 on JPEGs from files by decoder {decoder}, against noise",
        rate / most,
        0.95,
        beside=f"{rate:,.0f} against {most:,.0f} images/s, {per_core:,.0f} of a core",
    )
