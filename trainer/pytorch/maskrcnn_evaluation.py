"""Finds objects in all validation pictures and gives COCO's own figures for boxes and masks."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor, nn

from trainer.common.sharding import batches_in_order, shard
from trainer.data.pictures.coco import (
    CocoAnnotation,
    CocoPicture,
    CocoSplit,
    read_annotations,
)
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.header import CorruptPicture
from trainer.pytorch.maskrcnn_loading import Reader, read_image
from trainer.pytorch.strategy import Ranks, Strategy
from trainer.pytorch.transfer import copied_ahead, fetch

# In the order of COCOeval.stats: precision over IoU 0.50 to 0.95, at 0.50, at 0.75, and by area;
# recall with 1, 10 and 100 detections a picture, and by area.
FIGURES = (
    *("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"),
    *("ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"),
)
KINDS = {"box": "bbox", "mask": "segm"}
MASK_THRESHOLD = 0.5
SAY_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """The objects of one picture, best first: N boxes, N labels, N scores, N x H x W bools."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    masks: Tensor


@torch.no_grad()
def find_objects(network: nn.Module, image: Tensor, device: torch.device) -> Found:
    """Look at one picture of 3 x H x W bytes; the network is in eval mode."""
    pixels = image.to(device, torch.float32).div_(255)
    found = network([pixels])[0]
    return fetch(
        Found(
            boxes=found["boxes"].float(),
            labels=found["labels"],
            scores=found["scores"].float(),
            masks=found["masks"][:, 0] > MASK_THRESHOLD,
        ),
        device,
    )


def evaluate(
    network: nn.Module,
    split: CocoSplit,
    ranks: Ranks,
    device: torch.device,
    *,
    corrupt: CorruptPictures,
    check: Callable[[], None],
    say: Callable[[str], None],
) -> dict[str, float]:
    """Give COCO's figures over the whole split, on rank 0; nothing on the others. A collective.

    Each rank looks at one picture after the other, so that what is found in one does not depend on
    the number of ranks; the next ones are read meanwhile. In a corrupt one nothing is found. `check` is
    called equally often on all.
    """
    world, num_pictures = ranks.world, len(split.pictures)
    results: list[dict[str, Any]] = []
    said_s = time.monotonic()
    # Of each turn this rank has one picture, or none at the end.
    own = [shard(list(turn), world) for turn in batches_in_order(num_pictures, world.size)]
    reads = (
        [functools.partial(_read_whole, split.pictures[place], corrupt) for place in mine]
        for mine in own
    )
    with Reader(world.num_workers(device.type), device) as reader:
        copied = copied_ahead(reader.batches(reads), device)
        for turn, (mine, images) in enumerate(zip(own, copied, strict=True), 1):
            for place, image in zip(mine, images, strict=True):
                if image is not None:
                    found = find_objects(network, image, device)
                    results += coco_results(found, split.pictures[place], split.category_ids)
            check()
            if time.monotonic() - said_s >= SAY_EVERY_S:
                said_s = time.monotonic()
                say(f"evaluated {min(turn * world.size, num_pictures)} of {num_pictures} pictures")
    gathered = gather_results(results, ranks.strategy, device, is_main=world.is_main)
    return coco_figures(split.annotations, gathered) if world.is_main else {}


def _read_whole(picture: CocoPicture, corrupt: CorruptPictures) -> Tensor | None:
    """Decode the picture; None for a corrupt one, which `corrupt` counts."""
    try:
        return read_image(picture)
    except CorruptPicture as error:
        corrupt.skip(error)
        return None


def coco_results(
    found: Found, picture: CocoPicture, category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Give the picture's detections as COCO's result format has them."""
    results: list[dict[str, Any]] = []
    # pycocotools reads masks column by column.
    masks = np.asfortranarray(found.masks.numpy().transpose(1, 2, 0).astype(np.uint8))
    for number, code in enumerate(run_lengths.encode(masks)):
        left, top, right, bottom = found.boxes[number].tolist()
        results.append(
            {
                "image_id": picture.id,
                "category_id": category_ids[int(found.labels[number]) - 1],
                "bbox": [left, top, right - left, bottom - top],
                "score": float(found.scores[number]),
                "segmentation": {"size": code["size"], "counts": code["counts"].decode("ascii")},
            }
        )
    return results


def gather_results(
    results: Sequence[dict[str, Any]], strategy: Strategy, device: torch.device, *, is_main: bool
) -> list[dict[str, Any]]:
    """Give rank 0 the results of all, in the order of ranks; they travel as JSON. A collective.

    The other ranks get none: of COCO's 5,000 pictures they are some gigabytes as Python's objects.
    """
    data = torch.frombuffer(bytearray(json.dumps(results).encode()), dtype=torch.uint8)
    sizes = strategy.gather(torch.tensor([len(data)], dtype=torch.int64, device=device))
    num_bytes = torch.cat(sizes).tolist()
    padded = torch.zeros(max(num_bytes), dtype=torch.uint8, device=device)
    padded[: len(data)] = data.to(device)
    parts = strategy.gather_to_main(padded)
    if not is_main:
        return []
    return [
        result
        for part, size in zip(parts, num_bytes, strict=True)
        for result in json.loads(part[:size].cpu().numpy().tobytes())
    ]


def coco_figures(annotations: Path, results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Give pycocotools' twelve figures for boxes and twelve for masks, by `box_ap`, `mask_ar100`, ...

    A figure that the pictures have no objects for (such as large ones) is left out.
    """
    figures: dict[str, float] = {}
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints what it does
        truth = _read_truth(annotations, annotations.stat().st_mtime_ns)
        for kind, iou_type in KINDS.items():
            # With a box beside it a mask would be given the box's area.
            other = "segmentation" if kind == "box" else "bbox"
            own = [{key: each[key] for key in each if key != other} for each in results]
            judged = COCOeval(truth, _load(truth, own), iou_type)
            judged.evaluate()
            judged.accumulate()
            judged.summarize()
            for name, value in zip(FIGURES, judged.stats, strict=True):
                if value >= 0:
                    figures[f"{kind}_{name}"] = float(value)
    return figures


@functools.lru_cache(maxsize=1)
def _read_truth(annotations: Path, _changed_ns: int) -> COCO:
    """Read the annotations once, and not for each evaluation.

    They are numbered anew: to pycocotools 0 is no object, and of two with one number there is one.
    """
    found = read_annotations(annotations)
    truth = COCO()
    truth.dataset = {
        "images": [
            {"id": each.id, "width": each.width, "height": each.height}
            for each in found.images.values()
        ],
        "categories": [{"id": number, "name": name} for number, name in found.categories.items()],
        "annotations": [
            {
                "id": number,
                "image_id": each.image.id,
                "category_id": each.category,
                "iscrowd": int(each.is_crowd),
                "bbox": list(each.box),
                "area": each.area,
                "segmentation": _segmentation(each),
            }
            for number, each in enumerate(found.annotations, 1)
        ],
    }
    truth.createIndex()
    return truth


def _segmentation(each: CocoAnnotation) -> Any:
    """Give the outline as pycocotools takes it; where there is none, one that covers nothing."""
    if isinstance(each.outline, Mapping):
        return each.outline
    height, width = each.image.height, each.image.width
    nothing = {"size": [height, width], "counts": [height * width]}
    return [polygon.tolist() for polygon in each.outline] or nothing


def _load(truth: COCO, results: list[dict[str, Any]]) -> COCO:
    if results:
        return truth.loadRes(results)
    # loadRes fails where nothing was found.
    empty = COCO()
    empty.dataset = {**truth.dataset, "annotations": []}
    empty.createIndex()
    return empty
