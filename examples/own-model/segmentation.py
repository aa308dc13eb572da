"""Find discs in noisy pictures: a segmentation network with its own loss, on a data set of its own."""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset, random_split
from torchvision.transforms.functional import pil_to_tensor, to_pil_image

from trainer.pytorch import own

SIDE = 48


def discs(_seed: int) -> tuple[own.Samples, own.Samples]:
    """Draw bright discs in noise (1 x 48 x 48), with their pixels (48 x 48, 0 or 1), by the seeded generators."""
    x, y, radius = torch.rand(3, 580, 1, 1)
    places = torch.arange(SIDE)
    distances = torch.hypot(places - SIDE * x, places[:, None] - SIDE * y)
    masks = (distances < 4 + 10 * radius).float()
    noisy = masks + 0.5 * torch.randn(masks.shape)
    train, val = random_split(TensorDataset(noisy[:, None], masks), [480, 100])
    return train, val


def build() -> nn.Module:
    layers = [nn.Sequential(nn.Conv2d(n, 16, 5, padding=2), nn.ReLU()) for n in (1, 16, 16)]
    return nn.Sequential(*layers, nn.Conv2d(16, 1, 1), nn.Flatten(1, 2))


def loss(scores: Tensor, masks: Tensor) -> Tensor:
    """Add up the binary cross entropy of each pixel, and one minus the Dice coefficient."""
    found = scores.sigmoid()
    dice = 2 * (found * masks).sum() / (found.sum() + masks.sum() + 1)
    return functional.binary_cross_entropy_with_logits(scores, masks) + 1 - dice


def figures(scores: Tensor, masks: Tensor) -> dict[str, Tensor]:
    """Give the intersection over the union of each picture."""
    found, true = scores > 0, masks > 0.5
    union = (found | true).sum(dim=(1, 2)).clamp(min=1)
    return {"iou": (found & true).sum(dim=(1, 2)) / union}


def predict(network: nn.Module, path: Path, folder: Path) -> dict[str, object]:
    """Give the share of a picture that is disc; draw what was found white on black."""
    with Image.open(path) as picture:
        grey = picture.convert("L").resize((SIDE, SIDE))
    device = next(network.parameters()).device
    found = network(pil_to_tensor(grey)[None].to(device) / 255)[0] > 0
    to_pil_image(found.float()).save(folder / f"{path.stem}.png")
    return {"disc": round(found.float().mean().item(), 4)}


MINE = own.Own(
    name="segmentation",
    build=build,
    data=discs,
    loss=loss,
    figures=figures,
    main="iou",
    predict=predict,
)

if __name__ == "__main__":
    sys.exit(own.main(MINE, description=__doc__ or ""))
