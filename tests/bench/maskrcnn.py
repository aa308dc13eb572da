"""Times Mask R-CNN's step on a GPU against torchvision's detection reference, in turn.

The peer is the reference's loop: fp32, planar layout, plain SGD, the loss read after every step.
Both get the same pictures of COCO's size, which lie on the device. A part of `make gpu`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.misc import FrozenBatchNorm2d

from trainer.pytorch.maskrcnn_model import USUAL_LONG_SIZE, USUAL_SIZE, Design, build_network
from trainer.pytorch.precision import autocast

NUM_CLASSES = 80
# COCO's usual picture, and its objects on average.
WIDTH, HEIGHT, NUM_BOXES = 640, 480, 7
GOAL = 1.5
WARM_UP = 10

Target = dict[str, Tensor]
Step = Callable[[list[Tensor], list[Target]], None]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Median pictures a second at one batch size."""

    batch_size: int
    ours: float
    peer: float


def make_batch(batch_size: int, device: torch.device) -> tuple[list[Tensor], list[Target]]:
    """Noise, with boxes of a third of its sides at seeded places, each filled by its mask."""
    torch.manual_seed(batch_size)
    images = [torch.rand(3, HEIGHT, WIDTH, device=device) for _ in range(batch_size)]
    targets: list[Target] = []
    for _ in range(batch_size):
        corners = torch.rand(NUM_BOXES, 2) * torch.tensor([WIDTH * 0.6, HEIGHT * 0.6])
        sides = (0.1 + 0.25 * torch.rand(NUM_BOXES, 2)) * torch.tensor([WIDTH, HEIGHT])
        boxes = torch.cat([corners, corners + sides], dim=1)
        masks = torch.zeros(NUM_BOXES, HEIGHT, WIDTH, dtype=torch.uint8)
        for mask, box in zip(masks, boxes.int().tolist(), strict=True):
            mask[box[1] : box[3], box[0] : box[2]] = 1
        labels = torch.randint(1, NUM_CLASSES + 1, (NUM_BOXES,))
        target = {"boxes": boxes, "labels": labels, "masks": masks}
        targets.append({key: value.to(device) for key, value in target.items()})
    return images, targets


def peer_network(image_size: int) -> MaskRCNN:
    """The reference's network, by torchvision alone."""
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    longest = round(USUAL_LONG_SIZE * image_size / USUAL_SIZE)
    return MaskRCNN(backbone, num_classes=NUM_CLASSES + 1, min_size=image_size, max_size=longest)


def make_step(device: torch.device, *, image_size: int, is_ours: bool) -> Step:
    """Give what takes one training step; both networks have pretrained weights' frozen norms."""
    torch.manual_seed(1)
    if is_ours:
        classes = tuple(f"class {number}" for number in range(NUM_CLASSES))
        design = Design(backbone="resnet50", image_size=image_size, classes=classes)
        network = build_network(design, is_pretrained=True).to(memory_format=torch.channels_last)
    else:
        network = peer_network(image_size)
    network = network.to(device).train()
    learning = [each for each in network.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(
        learning, lr=1e-6, momentum=0.9, weight_decay=1e-4, fused=is_ours or None
    )

    def step(images: list[Tensor], targets: list[Target]) -> None:
        with autocast("bf16" if is_ours else "fp32", device):
            losses = network(images, targets)
        loss = torch.stack([each.float() for each in losses.values()]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not is_ours:
            loss.item()

    return step


def measure(
    device: torch.device, *, batch_size: int, image_size: int, num_steps: int, num_rounds: int
) -> Rates:
    """Time both in turn, so that drift hits them alike."""
    images, targets = make_batch(batch_size, device)
    steps = [make_step(device, image_size=image_size, is_ours=each) for each in (True, False)]
    rates: list[list[float]] = [[], []]
    for number in range(num_rounds + 1):
        for step, found in zip(steps, rates, strict=True):
            for _ in range(WARM_UP if number == 0 else 1):
                step(images, targets)
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(num_steps):
                step(images, targets)
            torch.cuda.synchronize()
            if number:
                found.append(batch_size * num_steps / (time.perf_counter() - began))
    return Rates(batch_size=batch_size, ours=median(rates[0]), peer=median(rates[1]))
