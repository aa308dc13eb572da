"""The device computes what the CPU does: convolutions and their gradients, boxes, regions and their choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.detection.rpn import RegionProposalNetwork

from tests.gpu.findings import Finding, at_least, within
from tests.gpu.programs import Where
from trainer.pytorch.loader import normalise
from trainer.pytorch.maskrcnn_model import Design
from trainer.pytorch.maskrcnn_model import build_network as build_maskrcnn
from trainer.pytorch.networks import build_network

NUM_CLASSES, SIZE, BATCH = 10, 64, 4
NUM_PICTURES = 8
# Sums of some thousand products of fp32, in another order.
MOST_APART = 1e-3


def kernels(where: Where) -> Sequence[Finding]:
    """Compare one step of ResNet-50, NMS and RoIAlign with the CPU's, in fp32 without TF32."""
    device = torch.device(where.device)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        gradients = [_gradients(each) for each in (torch.device("cpu"), device)]
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    kept = [_kept(each) for each in (torch.device("cpu"), device)]
    regions = [_regions(each) for each in (torch.device("cpu"), device)]
    ours, torchvisions = _chosen(device)
    return [
        within("ResNet-50: gradients, against the CPU's", _apart(*gradients), MOST_APART),
        Finding(
            what="NMS of 2,000 boxes",
            seen=f"{len(kept[1])} kept",
            wanted=f"the {len(kept[0])} that the CPU keeps",
            is_met=torch.equal(kept[0], kept[1]),
        ),
        within("RoIAlign, against the CPU's", _apart(*regions), MOST_APART),
        at_least(
            "regions of 8 pictures, chosen at once: share of them that torchvision chooses",
            _share_in(ours, torchvisions),
            0.999,
        ),
    ]


def _apart(left: Tensor, right: Tensor) -> float:
    """How far two vectors are apart, as a share of the first one's length."""
    return ((left - right).norm() / left.norm()).item()


def _gradients(device: torch.device) -> Tensor:
    """All gradients of one step on seeded pictures, as one vector on the CPU."""
    torch.manual_seed(1)
    network = build_network("resnet50", NUM_CLASSES, SIZE)
    images = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    network = network.to(device, memory_format=torch.channels_last).train()
    labels = torch.arange(BATCH, device=device)
    nn.functional.cross_entropy(network(normalise(images.to(device))), labels).backward()
    found = [each.grad.flatten() for each in network.parameters() if each.grad is not None]
    return torch.cat(found).cpu()


def _kept(device: torch.device) -> Tensor:
    """The numbers of the boxes that NMS keeps."""
    torch.manual_seed(2)
    corners = torch.rand(2000, 2) * 500
    boxes = torch.cat([corners, corners + 20 + torch.rand(2000, 2) * 80], dim=1)
    return torchvision.ops.nms(boxes.to(device), torch.rand(2000).to(device), 0.5).cpu()


def _share_in(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Give the share of both sets of boxes, by picture, that are in both."""
    sets = [[set(map(tuple, each.tolist())) for each in both] for both in (ours, theirs)]
    num_shared = sum(len(mine & other) for mine, other in zip(*sets, strict=True))
    return num_shared / max(sum(map(len, sets[0])), sum(map(len, sets[1])), 1)


def _chosen(device: torch.device) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Give pictures' regions by our choice and by torchvision's, of 800 pixels.

    Torchvision moves levels apart by thousands of pixels, so that an overlap at the threshold may be rounded to its other side.
    """
    torch.manual_seed(4)
    numbers = [163_200, 40_800, 10_200, 2_550, 663]
    corners = torch.rand(NUM_PICTURES, sum(numbers), 2) * 1000 - 50
    boxes = torch.cat([corners, corners + 10 + torch.rand_like(corners) * 200], dim=2).to(device)
    scores = torch.randn(NUM_PICTURES * sum(numbers), 1).to(device)
    shapes = [(800, 1000 - 20 * number) for number in range(NUM_PICTURES)]
    design = Design(backbone="resnet18", image_size=32, classes=("disc",))
    rpn: Any = build_maskrcnn(design, is_pretrained=False).rpn.train()
    by_torchvision = RegionProposalNetwork.filter_proposals
    ours, _ = rpn.filter_at_once(boxes, scores, shapes, numbers)
    theirs, _ = by_torchvision(rpn, boxes, scores, shapes, numbers)
    return ours, theirs


def _regions(device: torch.device) -> Tensor:
    """What RoIAlign cuts out of seeded features, as one vector."""
    torch.manual_seed(3)
    features = torch.randn(1, 16, 50, 50)
    corners = torch.rand(100, 2) * 30
    boxes = torch.cat([corners, corners + 5 + torch.rand(100, 2) * 15], dim=1)
    cut = torchvision.ops.roi_align(features.to(device), [boxes.to(device)], (7, 7), aligned=True)
    return cut.flatten().cpu()
