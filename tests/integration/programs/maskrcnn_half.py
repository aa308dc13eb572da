"""Looks at the boxes of a Mask R-CNN at COCO's full size, with halves in its layers -> JSON."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.data.pictures.coco import CocoPicture
from trainer.pytorch.maskrcnn_evaluation import Found, coco_figures, coco_results
from trainer.pytorch.maskrcnn_model import Design, build_network
from trainer.pytorch.precision import DTYPES, autocast

CPU = torch.device("cpu")
WIDTH, HEIGHT = 1333, 800
NUM_OBJECTS, NUM_CLASSES = 60, 60
APART_PX = 3.0


class Boxes(TorchDispatchMode):
    """Counts what operations make, N x 4, by its type: boxes, anchors, and what boxes regress to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, int] = {}
        self.convolutions: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.convolution.default:
            # A CPU without bf16 takes minutes in it: computed in fp32, rounded to what was asked for.
            asked = args[0].dtype
            made = func(*(each.float() if isinstance(each, Tensor) else each for each in args))
            made = made.to(asked)
            self.convolutions.add(str(asked))
        else:
            made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.ndim == 2 and made.shape[1] == 4 and len(made):
            name = str(made.dtype)
            if made.is_floating_point():
                self.found[name] = self.found.get(name, 0) + 1
        return made


def objects() -> Tensor:
    """NUM_OBJECTS boxes, none over another, of 20 to 53 pixels."""
    places = [(x * 128 + 7.3, y * 128 + 5.7) for y in range(6) for x in range(10)]
    return torch.tensor(
        [[x, y, x + 20 + 33 * n / 60, y + 53 - 33 * n / 60] for n, (x, y) in enumerate(places)]
    )


def target(boxes: Tensor) -> dict[str, Tensor]:
    masks = torch.stack([drawn(each) for each in boxes])
    return {"boxes": boxes, "labels": torch.arange(1, NUM_CLASSES + 1), "masks": masks}


def trained_boxes(network: nn.Module) -> dict[str, Any]:
    """The types of the boxes of one step of training."""
    network.train()
    with Boxes() as seen, autocast("bf16", CPU):
        losses = network([torch.rand(3, HEIGHT, WIDTH)], [target(objects())])
    return {
        "boxes": seen.found,
        "convolutions": sorted(seen.convolutions),
        "losses": sorted({str(each.dtype) for each in losses.values()}),
        "is_finite": all(bool(each.isfinite()) for each in losses.values()),
    }


class Sure(nn.Module):
    """A predictor that is sure of one class for each proposal, and moves no box; in a precision."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.dtype = DTYPES[name]

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.full((len(features), NUM_CLASSES + 1), -20.0)
        scores[torch.arange(len(features)), torch.arange(len(features)) % NUM_CLASSES + 1] = 20.0
        moves = torch.zeros(len(features), (NUM_CLASSES + 1) * 4)
        return scores.to(self.dtype), moves.to(self.dtype)


def found_of(name: str, proposals: Tensor) -> dict[str, Tensor]:
    """What the heads make of proposals that are of classes 1, 2, ... in turn, in a precision."""
    network = built()
    hooks = network.roi_heads.box_predictor._forward_hooks
    sure = Sure(name)
    sure._forward_hooks.update(hooks)
    heads = network.roi_heads.eval()
    heads.box_predictor = sure
    heads.detections_per_img = 2 * NUM_OBJECTS
    heads.mask_roi_pool = None
    heads.mask_head = heads.mask_predictor = None
    with torch.no_grad(), autocast(name, CPU):
        # What they show decides nothing here, and a CPU is slow in fp16: of an eighth of the size.
        features = network.backbone(torch.rand(1, 3, HEIGHT // 8, WIDTH // 8))
        found, _ = heads(features, [proposals], [(HEIGHT, WIDTH)])
    assert found[0]["boxes"].dtype == torch.float32
    return found[0]


def kept(name: str) -> int:
    """How many of NUM_OBJECTS, each proposed twice and APART_PX apart, are left in a precision."""
    boxes = objects()
    return len(found_of(name, torch.cat([boxes, boxes + APART_PX]))["boxes"])


def average_precision(name: str) -> float:
    """COCO's AP of proposals that lie beside their objects by 0 to 7 pixels, in a precision."""
    boxes = objects()
    moves = torch.arange(NUM_OBJECTS)[:, None] % 8 * torch.tensor([1.0, -0.5, 1.0, 0.5])
    found = found_of(name, boxes + moves)
    masks = torch.stack([drawn(each) for each in found["boxes"]])
    told = Found(
        boxes=found["boxes"], labels=found["labels"], scores=found["scores"], masks=masks > 0
    )
    picture = CocoPicture(id=1, path=Path("1.jpg"), width=WIDTH, height=HEIGHT, objects=())
    truth = [
        {
            "id": number,
            "image_id": 1,
            "category_id": number,
            "iscrowd": 0,
            "bbox": [left, top, right - left, bottom - top],
            "area": (right - left) * (bottom - top),
            "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
        }
        for number, (left, top, right, bottom) in enumerate(boxes.tolist(), 1)
    ]
    numbers = range(1, NUM_CLASSES + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truth.json"
        about = {
            "images": [{"id": 1, "width": WIDTH, "height": HEIGHT, "file_name": "1.jpg"}],
            "categories": [{"id": number, "name": str(number)} for number in numbers],
            "annotations": truth,
        }
        path.write_text(json.dumps(about))
        return coco_figures(path, coco_results(told, picture, list(numbers)))["box_ap"]


def drawn(box: Tensor) -> Tensor:
    """The mask of a box."""
    mask = torch.zeros(HEIGHT, WIDTH, dtype=torch.uint8)
    left, top, right, bottom = box.long().clamp(min=0).tolist()
    mask[top:bottom, left:right] = 1
    return mask


def built() -> Any:
    torch.manual_seed(1)
    classes = tuple(f"class-{number}" for number in range(NUM_CLASSES))
    design = Design(backbone="resnet18", image_size=HEIGHT, classes=classes)
    return build_network(design, is_pretrained=True, regions_per_image=64)


def main(argv: Sequence[str]) -> None:
    """Print one part; the average precision is that of the precisions named after it."""
    parts: dict[str, Callable[[], Any]] = {
        "trained": lambda: trained_boxes(built()),
        "kept": lambda: {name: kept(name) for name in DTYPES},
        "average_precision": lambda: {name: average_precision(name) for name in argv[1:]},
    }
    print(json.dumps(parts[argv[0]]()))
