"""The device computes what the CPU does: convolutions and their gradients, boxes, regions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torchvision
from torch import Tensor, nn

from tests.gpu.findings import Finding, within
from tests.gpu.programs import Where
from trainer.pytorch.loader import normalise
from trainer.pytorch.networks import build_network

NUM_CLASSES, SIZE, BATCH = 10, 64, 4
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
    return [
        within("ResNet-50: gradients, against the CPU's", _apart(*gradients), MOST_APART),
        Finding(
            what="NMS of 2,000 boxes",
            seen=f"{len(kept[1])} kept",
            wanted=f"the {len(kept[0])} that the CPU keeps",
            is_met=torch.equal(kept[0], kept[1]),
        ),
        within("RoIAlign, against the CPU's", _apart(*regions), MOST_APART),
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


def _regions(device: torch.device) -> Tensor:
    """What RoIAlign cuts out of seeded features, as one vector."""
    torch.manual_seed(3)
    features = torch.randn(1, 16, 50, 50)
    corners = torch.rand(100, 2) * 30
    boxes = torch.cat([corners, corners + 5 + torch.rand(100, 2) * 15], dim=1)
    cut = torchvision.ops.roi_align(features.to(device), [boxes.to(device)], (7, 7), aligned=True)
    return cut.flatten().cpu()
