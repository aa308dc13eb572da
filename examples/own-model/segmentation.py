"""Find discs in noisy pictures: a segmentation network with its own loss, on a data set of its own."""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from trainer.pytorch import own

SIDE = 48


class Discs:
    """Pictures of a bright disc in noise (1 x 48 x 48), and the disc's pixels (48 x 48, 0 or 1)."""

    def __init__(self, num_pictures: int, seed: int) -> None:
        self.num_pictures, self.seed = num_pictures, seed

    def __len__(self) -> int:
        return self.num_pictures

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 100_003 + index)
        x, y, radius = torch.rand(3, generator=generator) * torch.tensor([SIDE, SIDE, 10]) + 4
        places = torch.arange(SIDE)
        mask = ((places[None] - x) ** 2 + (places[:, None] - y) ** 2 < radius**2).float()
        return (mask + 0.5 * torch.randn(SIDE, SIDE, generator=generator))[None], mask


def build() -> nn.Module:
    layers = [nn.Sequential(nn.LazyConv2d(16, 5, padding=2), nn.ReLU()) for _ in range(3)]
    network = nn.Sequential(*layers, nn.LazyConv2d(1, 1), nn.Flatten(1, 2))
    network(torch.zeros(1, 1, SIDE, SIDE))
    return network


def loss(scores: Tensor, masks: Tensor) -> Tensor:
    """The binary cross entropy of each pixel, and one minus the Dice coefficient."""
    found = scores.sigmoid()
    dice = 2 * (found * masks).sum() / (found.sum() + masks.sum() + 1)
    return functional.binary_cross_entropy_with_logits(scores, masks) + 1 - dice


def figures(scores: Tensor, masks: Tensor) -> dict[str, Tensor]:
    """The intersection over the union, of each picture."""
    found, true = scores > 0, masks > 0.5
    union = (found | true).sum(dim=(1, 2)).clamp(min=1)
    return {"iou": (found & true).sum(dim=(1, 2)) / union}


def predict(network: nn.Module, path: Path, folder: Path) -> dict[str, object]:
    """The share of a picture that is disc; what was found is drawn white on black."""
    with Image.open(path) as picture:
        grey = picture.convert("L").resize((SIDE, SIDE))
    pixels = torch.tensor(list(grey.tobytes())).view(1, 1, SIDE, SIDE) / 255
    found = network(pixels.to(next(network.parameters()).device))[0] > 0
    drawn = bytes(255 * each for each in found.flatten().int().tolist())
    Image.frombytes("L", (SIDE, SIDE), drawn).save(folder / f"{path.stem}.png")
    return {"disc": round(found.float().mean().item(), 4)}


MINE = own.Own(
    name="segmentation",
    build=build,
    data=lambda seed: (Discs(480, seed), Discs(100, seed + 1)),
    loss=loss,
    figures=figures,
    main="iou",
    predict=predict,
)

if __name__ == "__main__":
    sys.exit(own.main(MINE, description=__doc__ or ""))
