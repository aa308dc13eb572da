"""Rates on the GPU beside those of peers, in turn: ResNet-50, Mask R-CNN, pictures from files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torchvision.models import resnet50 as torchvisions_resnet50

from tests.bench import maskrcnn, resnet50_gpu
from tests.bench.loader import make_jpegs
from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import PEERS
from tests.gpu import trainings
from tests.gpu.findings import Finding, at_least
from tests.gpu.programs import PROJECT, Where, train
from trainer.data.synthesize.coco import make_coco

BATCH = 256
# Of Mask R-CNN: pixels of a shorter side; of its program: pictures a step, and steps.
SIDE, PICTURES, STEPS = 800, 8, 60
# Loaders with nothing to train, against torchvision's ImageFolder (docs/benchmarks/training.md).
LOADERS = {"library": 1.3, "fast": 2.5}
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
            device, batch_size=size, image_size=SIDE, num_steps=10, num_rounds=where.rounds
        )
        for size in (2, 8)
    ]
    found = [
        at_least(
            f"Mask R-CNN, {each.batch_size} pictures a step, against torchvision's reference",
            each.ours / each.peer,
            maskrcnn.GOAL,
            beside=f"{each.ours:.1f} against {each.peer:.1f} images/s",
        )
        for each in rates
    ]
    # What the steps above had in this process is the program's, and that of the checks after it.
    gc.collect()
    torch.cuda.empty_cache()
    return [*found, _mask_rcnn_program(where)]


def _mask_rcnn_program(where: Where) -> Finding:
    """Train by the program, on smaller pictures with fewer objects than the step alone has."""
    folder, weights = where.folder / "shapes", where.folder / "resnet50.pth"
    make_coco(folder, num_train=PICTURES * STEPS, num_val=1, seed=1)
    torch.save(torchvisions_resnet50(weights=None).state_dict(), weights)
    begin = ("--data", str(folder), "--backbone-weights", str(weights), "--lr", "1e-6")
    sizes = ("--batch-per-rank", str(PICTURES), "--max-steps", str(STEPS), "--no-evaluate")
    sizes += ("--image-size", str(SIDE))
    arguments = (*begin, *sizes, "--precision", trainings.half(where))
    told = train(where, "program", "trainer.pytorch.maskrcnn", *arguments).require().summary
    rate = told["images_per_s"]
    what = f"Mask R-CNN's program, {PICTURES} made pictures a step"
    return Finding(what=what, seen=f"{rate:.1f} images/s", wanted="told", is_met=rate > 0)


def pictures(where: Where) -> Sequence[Finding]:
    """Train on JPEGs from files, by each decoder, against noise on the device."""
    folder = where.folder / "jpegs"
    make_jpegs(folder, num_images=NUM_JPEGS)
    noise = (*RESNET50, "--data", "random", "--num-images", str(NUM_JPEGS), "--epochs", "3")
    most = train(where, "noise", *noise).require().summary["images_per_s"]
    trained = [_from_files(where, decoder, folder, most) for decoder in LOADERS]
    return [*trained, *_loaded(where, folder)]


def _loaded(where: Where, folder: Path) -> Sequence[Finding]:
    """Load them alone, by a worker a core."""
    program, num_workers = str(PEERS / "loader_rate.py"), str(len(os.sched_getaffinity(0)))
    env = {"PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])}
    commands = [
        Command(name=kind, argv=[sys.executable, program, kind, str(folder), num_workers], env=env)
        for kind in (*LOADERS, "imagefolder")
    ]
    rates = rates_in_turn(commands, rounds=where.rounds)
    peer = rates["imagefolder"]
    return [
        at_least(
            f"loader alone, decoder {kind}, {num_workers} workers, against ImageFolder",
            rates[kind] / peer,
            least,
            beside=f"{rates[kind]:,.0f} against {peer:,.0f} images/s",
        )
        for kind, least in LOADERS.items()
    ]


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
