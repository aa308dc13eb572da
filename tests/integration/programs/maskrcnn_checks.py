"""Checks parts of Mask R-CNN in one process: main([DATA]) -> JSON."""

import contextlib
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor
from torchvision.models.detection import maskrcnn_resnet50_fpn
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.ops import nms
from torchvision.ops.misc import FrozenBatchNorm2d

from tests.integration.programs.one_rank import alone
from trainer.common.position import Position
from trainer.common.rundir import RunDir
from trainer.data.pictures.coco import CocoObject, CocoPicture, CocoSplit, read_split
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.pytorch import maskrcnn, maskrcnn_model
from trainer.pytorch.maskrcnn_evaluation import (
    FIGURES,
    Found,
    coco_figures,
    coco_results,
    evaluate,
)
from trainer.pytorch.maskrcnn_loading import read_sample
from trainer.pytorch.maskrcnn_model import (
    Design,
    Weights,
    build_network,
    load_trained,
    read_weights,
)
from trainer.pytorch.maskrcnn_proposals import find_rivals, suppress
from trainer.pytorch.maskrcnn_waits import Sampler

CPU = torch.device("cpu")
NOWHERE = RunDir(path=Path("/dev/null"), outputs=Path("/dev/null"))


class Oracle(torch.nn.Module):
    """Answers with what is told, picture after picture, as torchvision's detectors do."""

    def __init__(self, answers: list[dict[str, torch.Tensor]]) -> None:
        super().__init__()
        self.answers = iter(answers)

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        assert images[0].dtype == torch.float32
        assert images[0].max() <= 1
        return [next(self.answers)]


def truth(split: CocoSplit) -> list[dict[str, torch.Tensor]]:
    """What is right for each picture."""
    answers = []
    for picture in split.pictures:
        target = read_sample(picture, is_flipped=False).target
        scores = torch.ones(len(target["labels"]))
        answers.append({**target, "scores": scores, "masks": target["masks"][:, None].float()})
    return answers


def perturbed(split: CocoSplit) -> list[dict[str, torch.Tensor]]:
    """Some moved, some of another class, some missed, some found twice; in no order of scores."""
    rng = random.Random(4)
    answers = []
    for answer in truth(split):
        keep = [number for number in range(len(answer["labels"])) if rng.random() < 0.8]
        keep += keep[:1]
        moves = [(rng.randint(-6, 6), rng.randint(-6, 6)) for _ in keep]
        shifts = torch.tensor([[x, y, x, y] for x, y in moves], dtype=torch.float32).view(-1, 4)
        masks = [
            torch.roll(answer["masks"][number], (y, x), dims=(1, 2)) * 0.9
            for number, (x, y) in zip(keep, moves, strict=True)
        ]
        labels = [
            rng.randint(1, 3) if rng.random() < 0.2 else int(answer["labels"][number])
            for number in keep
        ]
        answers.append(
            {
                "boxes": answer["boxes"][keep] + shifts,
                "labels": torch.tensor(labels, dtype=torch.int64),
                "scores": torch.tensor([rng.random() for _ in keep]),
                "masks": torch.stack(masks) if masks else answer["masks"][:0],
            }
        )
    return answers


def own_figures(split: CocoSplit, answers: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """What our evaluation makes of the answers."""
    ranks = alone(RunDir.from_environment())
    return evaluate(
        Oracle(answers).eval(),
        split,
        ranks,
        CPU,
        corrupt=CorruptPictures(0),
        check=lambda: None,
        say=print,
    )


def peer_figures(split: CocoSplit, answers: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """What pycocotools says when it is called directly, on arrays and single masks."""
    rows, segments = [], []
    for picture, answer in zip(split.pictures, answers, strict=True):
        for number, box in enumerate(answer["boxes"].tolist()):
            category = split.category_ids[int(answer["labels"][number]) - 1]
            score = float(answer["scores"][number])
            left, top, right, bottom = box
            rows.append([picture.id, left, top, right - left, bottom - top, score, category])
            mask = (answer["masks"][number, 0] > 0.5).numpy().astype(np.uint8)
            code = run_lengths.encode(np.asfortranarray(mask))
            about = {"image_id": picture.id, "category_id": category, "score": score}
            segments.append({**about, "segmentation": code})
    figures = {}
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(split.annotations))
        for kind, iou_type, found in (
            ("box", "bbox", np.array(rows)),
            ("mask", "segm", segments),
        ):
            judged = COCOeval(coco, coco.loadRes(found), iou_type)
            judged.evaluate()
            judged.accumulate()
            judged.summarize()
            named = zip(FIGURES, judged.stats, strict=True)
            figures |= {f"{kind}_{name}": float(value) for name, value in named if value >= 0}
    return figures


def check_others(split: CocoSplit) -> dict[str, Any]:
    """AP of boxes and masks where the truth is found, of the same objects as other programs write them."""
    about = json.loads(split.annotations.read_bytes())
    results = [
        each
        for picture, answer in zip(split.pictures, truth(split), strict=True)
        for each in coco_results(
            Found(
                boxes=answer["boxes"],
                labels=answer["labels"],
                scores=answer["scores"],
                masks=answer["masks"][:, 0] > 0,
            ),
            picture,
            split.category_ids,
        )
    ]
    objects = [each for each in about["annotations"] if not each["iscrowd"]]
    (crowd, *_) = (each for each in about["annotations"] if each["iscrowd"])
    in_picture: Counter[int] = Counter()
    anew = []
    for each in objects:
        in_picture[each["image_id"]] += 1
        anew.append({**each, "id": in_picture[each["image_id"]]})

    def given(*names: str, each: dict[str, Any]) -> dict[str, Any]:
        return {name: each[name] for name in each if name not in names}

    def outlined(outline: Any) -> list[dict[str, Any]]:
        return [{**objects[0], "segmentation": outline}, *objects[1:]]

    files = {
        "ids from 0": [{**each, "id": number} for number, each in enumerate(objects)],
        "ids anew in each picture": anew,
        "neither area nor iscrowd": [given("area", "iscrowd", each=each) for each in objects],
        "a crowd without outline": [*objects, given("segmentation", each=crowd)],
        "an empty outline": outlined([]),
        "an empty polygon": outlined([[]]),
        "a polygon of one point": outlined([[1, 1]]),
        "a polygon of two points": outlined([[1, 1, 5, 5]]),
        "no outline": outlined(None),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, annotations in files.items():
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps({**about, "annotations": annotations}), "utf-8-sig")
            figures = coco_figures(path, results)
            found[name] = [figures["box_ap"], figures["mask_ap"]]
    return found


def check_samples(split: CocoSplit) -> dict[str, Any]:
    """Masks fit boxes, mirrored ones too; all ways to write an outline give the same mask."""
    furthest = 0.0
    for picture in split.pictures:
        for is_flipped in (False, True):
            target = read_sample(picture, is_flipped=is_flipped).target
            for box, mask in zip(target["boxes"], target["masks"], strict=True):
                down, across = mask.nonzero(as_tuple=True)
                found = torch.stack([across.min(), down.min(), across.max() + 1, down.max() + 1])
                furthest = max(furthest, float((found - box).abs().max()))
    plain, mirrored = (read_sample(split.pictures[0], is_flipped=each) for each in (False, True))
    return {
        "furthest": furthest,
        "is_mirrored": torch.equal(plain.image.flip(-1), mirrored.image)
        and torch.equal(plain.target["masks"].flip(-1), mirrored.target["masks"]),
        "outlines": [outline_mask(split.pictures[0], outline) for outline in OUTLINES],
    }


SQUARES = [[0.0, 0.0, 3.0, 0.0, 3.0, 2.0, 0.0, 2.0], [5.0, 1.0, 8.0, 1.0, 8.0, 4.0, 5.0, 4.0]]
# Two squares as polygons, as runs, and as pycocotools packs the runs.
OUTLINES = (SQUARES, "counts", "packed")


def outline_mask(picture: CocoPicture, outline: Any) -> list[list[int]]:
    """The upper left corner of what the outline covers."""
    height, width = picture.height, picture.width
    if isinstance(outline, str):
        code = run_lengths.merge(run_lengths.frPyObjects(SQUARES, height, width))
        mask = run_lengths.decode(code).flatten(order="F")
        changes = np.flatnonzero(np.diff(mask)) + 1
        runs = np.diff([0, *changes, len(mask)]).tolist()
        counts = [0, *runs] if mask[0] else runs
        packed = {"size": code["size"], "counts": code["counts"].decode()}
        outline = {"size": [height, width], "counts": counts} if outline == "counts" else packed
    made = CocoObject(annotation=1, label=1, box=(0, 0, 8, 4), outline=outline)
    if isinstance(outline, list):
        from array import array

        parts = tuple(array("d", polygon) for polygon in outline)
        made = CocoObject(annotation=1, label=1, box=(0, 0, 8, 4), outline=parts)
    only = CocoPicture(
        id=picture.id, path=picture.path, width=width, height=height, objects=(made,)
    )
    return read_sample(only, is_flipped=False).target["masks"][0, :5, :9].tolist()


def check_weights() -> dict[str, Any]:
    """Classes are matched by name; torchvision's file gives torchvision's network."""
    old = Design(backbone="resnet18", image_size=64, classes=("cat", "N/A", "dog", "N/A"))
    new = Design(backbone="resnet18", image_size=64, classes=("dog", "N/A", "cat", "cow"))
    torch.manual_seed(1)
    source, target = (build_network(each, is_pretrained=True) for each in (old, new))
    fresh = {key: value.clone() for key, value in target.state_dict().items()}
    tensors = source.state_dict()
    num_known = load_trained(target, new, Weights(name="w", design=old, tensors=tensors))
    loaded = target.state_dict()
    scores, boxes = (
        "roi_heads.box_predictor.cls_score.bias",
        "roi_heads.box_predictor.bbox_pred.weight",
    )
    place = {0: 0, 1: 3, 3: 1}  # background, dog, cat; N/A and cow stay fresh
    rows = [
        torch.equal(
            loaded[scores][at], (tensors if at in place else fresh)[scores][place.get(at, at)]
        )
        for at in range(5)
    ] + [
        torch.equal(
            loaded[boxes].view(5, 4, -1)[at],
            (tensors if at in place else fresh)[boxes].view(5, 4, -1)[place.get(at, at)],
        )
        for at in range(5)
    ]
    body = "backbone.body.conv1.weight"
    return {
        "num_known": num_known,
        "rows": rows,
        "rest": torch.equal(loaded[body], tensors[body]),
        **check_torchvision(),
    }


def check_torchvision() -> dict[str, Any]:
    """Their network with random weights and statistics, through a .pth file, into ours."""
    theirs = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    # As their COCO weights were learnt; seen where a variance is not large beside it.
    theirs.backbone.body.bn1 = FrozenBatchNorm2d(64, eps=0.0)
    theirs.backbone.body.bn1.running_var.uniform_(1e-6, 1e-4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "maskrcnn.pth"
        torch.save(theirs.state_dict(), path)
        weights = read_weights(path)
    ours = build_network(weights.design, is_pretrained=True)
    num_known = load_trained(ours, weights.design, weights)
    image = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        features = [network.eval().backbone(image) for network in (theirs, ours)]
    largest = max(float(value.abs().max()) for value in features[0].values())
    difference = max(
        float((features[0][key] - features[1][key]).abs().max()) for key in features[0]
    )
    return {
        "torchvision_classes": [len(weights.design.classes), weights.design.classes[0], num_known],
        "torchvision_difference": difference / largest,
        "is_frozen": any(isinstance(each, FrozenBatchNorm2d) for each in ours.modules()),
        "learning": sorted(
            {
                name.split(".")[2]
                for name, each in ours.named_parameters()
                if name.startswith("backbone.body.") and each.requires_grad
            }
        ),
    }


def check_recipe() -> dict[str, Any]:
    """What the options make of a training of ten steps: rates and SGD's settings."""
    found = {}
    for name, given in (("usual", {}), ("own", {"decay_steps": "3,9", "momentum": 0.5})):
        options = maskrcnn.Options(
            device="cpu", epochs=1, lr=8.0, warmup_steps=0, weight_decay=0.25, **given
        )
        task = maskrcnn.MaskRcnn(options, alone(NOWHERE))
        task.training = SimpleNamespace(num_batches=10)
        group = task.optimizer(torch.nn.Linear(1, 1), None).param_groups[0]
        rates = [task.rate(Position(step=step)) for step in range(10)]
        found[name] = [rates, group["momentum"], group["weight_decay"]]
    return found


def check_regions() -> dict[str, Any]:
    """Choose made regions of three pictures at once, and one after the other as torchvision does."""
    torch.manual_seed(3)
    numbers, shapes = [700, 240, 60, 15], [(200, 300), (250, 280), (300, 300)]
    corners = torch.rand(3, sum(numbers), 2) * 320 - 20
    boxes = torch.cat([corners, corners + torch.rand(3, sum(numbers), 2) * 80], dim=2)
    # As a layer in bf16 gives them: many are equal.
    objectness = torch.randn(3 * sum(numbers), 1).bfloat16().float()
    design = Design(backbone="resnet18", image_size=32, classes=("disc",))
    regions = build_network(design, is_pretrained=False, regions_per_image=50).rpn
    regions._pre_nms_top_n = {"training": 200, "testing": 100}
    regions._post_nms_top_n = {"training": 150, "testing": 500}
    equal = {}
    for is_training in (True, False):
        regions.train(is_training)
        given = (boxes, objectness, shapes, numbers)
        ours, theirs = (
            [*choose(*given)[0], *choose(*given)[1]]
            for choose in (
                regions.filter_at_once,
                super(type(regions), regions).filter_proposals,
            )
        )
        equal["training" if is_training else "testing"] = [
            # Vectors and single numbers differ in the last bit of a sigmoid; boxes have none.
            [len(mine), len(other), torch.allclose(mine, other, rtol=1e-6, atol=0)]
            for mine, other in zip(ours, theirs, strict=True)
        ]
    # Each overlaps the next one alone, so that every second one of many is left.
    lefts = torch.arange(40.0) * 10
    chain = torch.stack([lefts, lefts * 0, lefts + 19, lefts * 0 + 10], dim=1)
    kept = suppress(find_rivals(chain, 0.3).half(), torch.ones(40, dtype=torch.bool))
    by_torchvision = nms(chain, torch.arange(40, 0, -1.0), 0.3)
    return {**equal, "chain": [kept.nonzero()[:, 0].tolist(), by_torchvision.tolist()]}


def made_batch(shapes: Sequence[tuple[int, int]]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Noise of these heights and widths, with a box more on each than on the one before."""
    torch.manual_seed(5)
    images, targets = [], []
    for number, (height, width) in enumerate(shapes, 1):
        corners = torch.rand(number, 2) * torch.tensor([width / 2, height / 2])
        boxes = torch.cat([corners, corners + 10 + 30 * torch.rand(number, 2)], dim=1)
        masks = torch.zeros(number, height, width, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
            mask[top:bottom, left:right] = 1
        images.append(torch.rand(3, height, width))
        targets.append({"boxes": boxes, "labels": torch.arange(1, number + 1), "masks": masks})
    return images, targets


def check_waits() -> dict[str, Any]:
    """Losses, gradients and what is found, by torchvision's parts and by ours, which draw alike."""
    batch = made_batch([(90, 120), (130, 80), (100, 100)])
    design = Design(backbone="resnet18", image_size=96, classes=("a", "b", "c"))
    made = []
    levels: set[int] = set()
    for wait in (maskrcnn_model.wait_less, lambda _: None):
        torch.manual_seed(1)
        with mock.patch.object(maskrcnn_model, "wait_less", wait):
            network = build_network(design, is_pretrained=False, regions_per_image=32).train()
        heads = network.roi_heads
        for part in (network.rpn, heads):
            part.fg_bg_sampler.__class__ = BalancedPositiveNegativeSampler
        for pool in (heads.box_roi_pool, heads.mask_roi_pool):
            pool.map_levels.s0 = 28  # so that small pictures have regions on all levels
            pool.map_levels = noted(pool.map_levels, levels)
        torch.manual_seed(7)
        losses = network(*batch)
        torch.stack(list(losses.values())).sum().backward()
        with torch.no_grad():
            found = network.eval()(batch[0])
        gradients = {name: each.grad for name, each in network.named_parameters()}
        made.append((losses, gradients, *found, network.state_dict()))
    ours, theirs = made
    return {
        "are_equal": all(
            list(mine) == list(other) and all(torch.equal(mine[key], other[key]) for key in mine)
            for mine, other in zip(ours, theirs, strict=True)
        ),
        "num_found": sum(len(each["labels"]) for each in ours[2:-1]),
        "levels": sorted(levels),
        "drawn": check_draws(),
    }


def noted(
    mapper: Callable[[list[Tensor]], Tensor], levels: set[int]
) -> Callable[[list[Tensor]], Tensor]:
    """Map regions to levels, and note which there are."""

    def mapped(boxes: list[Tensor]) -> Tensor:
        found = mapper(boxes)
        levels.update(found.tolist())
        return found

    return mapped


def check_draws() -> dict[str, Any]:
    """How often each of few labels is drawn, and what is drawn of too few."""
    torch.manual_seed(2)
    sampler = Sampler(8, 0.25)
    labels = torch.tensor([1.0] * 4 + [0] * 12 + [-1] * 4)
    times = torch.zeros(len(labels))
    for _ in range(400):
        for objects, background in zip(*sampler([labels, labels]), strict=True):
            assert int(objects.sum()) == 2
            assert int(background.sum()) == 6
            times += objects + background
    few = [torch.tensor([1, 0, -1]), torch.tensor([0, 0, 1, 2, 2, 0, 0, 0, 0, 0, 0])]
    drawn = sampler(few)
    return {
        "shares": (times / 800).tolist(),
        "few": [[each.tolist() for each in (masks[0], masks[1].sum(0)[None])] for masks in drawn],
        "whole": [
            bool((few[1][drawn[0][1].bool()] >= 1).all()),
            bool((few[1][drawn[1][1].bool()] == 0).all()),
        ],
    }


def main(argv: Sequence[str]) -> None:
    """Print what each part makes of the set."""
    split = read_split(Path(argv[0]), "val2017")
    wrong = perturbed(split)
    found = {
        "truth": own_figures(split, truth(split)),
        "perturbed": own_figures(split, wrong),
        "perturbed_peer": peer_figures(split, wrong),
        "nothing": coco_figures(split.annotations, []),
        "others": check_others(split),
        "samples": check_samples(split),
        "weights": check_weights(),
        "recipe": check_recipe(),
        "regions": check_regions(),
        "waits": check_waits(),
    }
    print(json.dumps(found))
