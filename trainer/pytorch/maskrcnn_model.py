"""Builds torchvision's Mask R-CNN, and fills it from files of weights, whatever classes they know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN, MaskRCNN_ResNet50_FPN_Weights
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.misc import FrozenBatchNorm2d

from trainer.common.checkpoint import CheckpointFolder
from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.messages import warn
from trainer.common.model_about import MOST_IMAGE_SIZE
from trainer.pytorch.maskrcnn_waits import wait_less
from trainer.pytorch.networks import find_weights
from trainer.pytorch.state import Tensors, load_weights, read_files

BackboneName = Literal["resnet18", "resnet34", "resnet50", "resnet101"]
# torchvision's model on COCO: 800 pixels, at most 1333.
USUAL_SIZE, USUAL_LONG_SIZE = 800, 1333
# Regions of a picture that the heads learn from, and those that they look at to find objects.
USUAL_REGIONS, USUAL_PROPOSALS = 512, 1000
# Layers whose outputs are classes, and the numbers that each class has in them.
PREDICTORS = {
    "roi_heads.box_predictor.cls_score": 1,
    "roi_heads.box_predictor.bbox_pred": 4,
    "roi_heads.mask_predictor.mask_fcn_logits": 1,
}
SCORES = "roi_heads.box_predictor.cls_score.weight"
# What torchvision's batch norms add to a variance; its COCO weights were learnt without.
EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Design:
    """The network's size, and the classes of its labels 1, 2, ..., which weights must fit."""

    backbone: BackboneName
    image_size: int
    classes: tuple[str, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Design:
        """Read it from JSON; raises ValueError where a part is missing or cannot be."""
        try:
            backbone, size, classes = (found[key] for key in ("backbone", "image_size", "classes"))
        except (KeyError, TypeError) as error:
            message = f"no {error}"
            raise ValueError(message) from None
        if backbone not in get_args(BackboneName):
            message = f"unknown backbone {backbone}"
            raise ValueError(message)
        if type(size) is not int or not 0 < size <= MOST_IMAGE_SIZE:
            message = f"image_size is {size!r}, no whole number of 1 to {MOST_IMAGE_SIZE}"
            raise ValueError(message)
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            message = "its classes are no names"
            raise ValueError(message)
        return cls(backbone=backbone, image_size=size, classes=tuple(classes))

    def as_json(self) -> dict[str, object]:
        """Give what `of` reads."""
        return {**asdict(self), "classes": list(self.classes)}


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights and what they fit; `name` is for messages."""

    name: str
    design: Design
    tensors: Tensors


def make_network(
    design: Design,
    *,
    weights: Path | None,
    backbone_weights: Path | None,
    folder: Path,
    is_made: bool,
    regions_per_image: int,
    say: Callable[[str], None],
) -> tuple[MaskRCNN, str]:
    """Make the network with the weights of files, here or in `folder`, that of the data.

    Fresh ones are for data that is made for a try-out (`is_made`), or asked for. Gives the network, and
    which classes `weights` do not know, if any. Raises TrainingError where a file is not there or does not fit.
    """
    if weights is None:
        backbone_weights = find_weights(
            backbone_weights, folder, option="--backbone-weights", is_made=is_made
        )
    else:
        weights = find_weights(weights, folder, option="--weights", is_made=is_made)
    network = build_network(
        design,
        is_pretrained=weights is not None or backbone_weights is not None,
        regions_per_image=regions_per_image,
    )
    unknown = ""
    if weights is not None:
        trained = read_weights(weights)
        num_known = load_trained(network, design, trained)
        known = f"`{trained.name}` knows {num_known} of {len(design.classes)} classes"
        say(known)
        unknown = "" if num_known == len(design.classes) else known
    if backbone_weights is not None:
        load_backbone(network, backbone_weights)
    return network, unknown


def build_network(
    design: Design, *, is_pretrained: bool, regions_per_image: int = USUAL_REGIONS
) -> MaskRCNN:
    """Make the network with fresh weights.

    As torchvision does: with pretrained weights batch norms are frozen and the last three of the
    backbone's five layers learn, without them everything does.
    """
    backbone = resnet_fpn_backbone(
        backbone_name=design.backbone,
        weights=None,
        norm_layer=FrozenNorm if is_pretrained else nn.BatchNorm2d,
        trainable_layers=3 if is_pretrained else 5,
    )
    network = MaskRCNN(
        backbone,
        num_classes=len(design.classes) + 1,
        min_size=design.image_size,
        max_size=round(USUAL_LONG_SIZE * design.image_size / USUAL_SIZE),
        box_batch_size_per_image=regions_per_image,
        rpn_post_nms_top_n_test=round(USUAL_PROPOSALS * regions_per_image / USUAL_REGIONS),
    )
    wait_less(network)
    keep_boxes_whole(network)
    set_strides(network)
    return network


class FrozenNorm(FrozenBatchNorm2d):
    """Computes torchvision's frozen norm in one kernel, and gives the precision that it is given.

    torchvision's takes seven kernels, and gives fp32 for bf16: autocast would compute all that lies
    between two convolutions in fp32.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift each channel of `x`, (N, C, H, W)."""
        mean, variance = self.running_mean, self.running_var
        return nn.functional.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)


def set_strides(network: MaskRCNN) -> None:
    """Show the pools of regions a square picture, by which they set the strides of their features for good.

    They would take the first picture of a training, or of what is left of one, and be wrong for one that
    is narrow next to its padding (torchvision.ops.MultiScaleRoIAlign).
    """
    side = 1024
    box, heads = torch.tensor([[0.0, 0.0, side, side]]), network.roi_heads
    for pool in (heads.box_roi_pool, heads.mask_roi_pool):
        strides = [4 << level for level in range(len(pool.featmap_names))]
        features = {
            name: torch.zeros(1, 1, side // stride, side // stride)
            for name, stride in zip(pool.featmap_names, strides, strict=True)
        }
        pool(features, [box], [(side, side)])


def keep_boxes_whole(network: MaskRCNN) -> None:
    """Let the network's layers give fp32, whatever precision they compute in.

    Anchors take the type of the features, and boxes and targets that of the anchors: bf16 would
    round a box at 1,000 pixels to multiples of 4.
    """
    heads = network.roi_heads
    for layers in (
        network.backbone,
        network.rpn.head,
        heads.box_predictor,
        heads.mask_predictor,
    ):
        layers.register_forward_hook(lambda _layers, _inputs, made: _in_fp32(made))


def read_weights(path: Path) -> Weights:
    """Read a checkpoint folder, weights of this program, or torchvision's .pth of its COCO model.

    Raises TrainingError where it is none of them.
    """
    if path.is_dir():
        return _read_checkpoint(path)
    tensors = load_weights(path)
    about = path.with_suffix(".json")
    if about.exists():
        try:
            design = Design.of(parse_json(about.read_bytes()))
        except ValueError as error:
            raise _misdescribed(about, str(error)) from None
        num_classes = len(design.classes)
        if not _tells(tensors, num_classes):
            raise _misdescribed(
                about, f"it names {num_classes} classes, and the weights tell others"
            )
        return Weights(name=path.name, design=design, tensors=tensors)
    categories = MaskRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    scores = tensors.get(SCORES)
    if scores is None or len(scores) != len(categories):
        message = f"`{path}` holds no weights of torchvision's maskrcnn_resnet50_fpn"
        hint = f"weights of this program lie beside a `{about.name}`; a backbone's go to --backbone-weights"
        raise TrainingError(message, hint=hint)
    design = Design(backbone="resnet50", image_size=USUAL_SIZE, classes=tuple(categories[1:]))
    return Weights(name=path.name, design=design, tensors=_without_epsilon(tensors))


def load_trained(network: nn.Module, design: Design, weights: Weights) -> int:
    """Fill the network; classes are matched by name. Gives the number of classes carried over.

    The outputs of classes that the weights do not know stay fresh. Raises TrainingError where the
    rest does not fit.
    """
    fresh = network.state_dict()
    tensors = dict(weights.tensors)
    sources = {name: place for place, name in enumerate(weights.design.classes, 1)}
    # Torchvision calls ten of its labels so, which COCO's pictures never have.
    sources.pop("N/A", None)
    rows = {0: 0} | {
        place: sources[name] for place, name in enumerate(design.classes, 1) if name in sources
    }
    for layer, size in PREDICTORS.items():
        for key in (f"{layer}.weight", f"{layer}.bias"):
            if key in tensors:
                tensors[key] = _carried(tensors[key], fresh[key], rows, size)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        message = f"`{weights.name}` is of another network: {str(error).splitlines()[-1].strip()}"
        raise TrainingError(message, hint="--backbone as the weights have it") from None
    return len(rows) - 1


def load_backbone(network: MaskRCNN, path: Path) -> None:
    """Fill the backbone from a classifier's weights; raises TrainingError where they do not fit."""
    tensors = load_weights(path)
    body: nn.Module = network.backbone.body
    try:
        body.load_state_dict({key: value for key, value in tensors.items() if key[:3] != "fc."})
    except RuntimeError as error:
        message = f"`{path}` is not such a backbone: {str(error).splitlines()[-1].strip()}"
        raise TrainingError(
            message, hint="a ResNet classifier's weights, and its --backbone"
        ) from None


def _read_checkpoint(path: Path) -> Weights:
    found = CheckpointFolder(path).newest(warn)
    try:
        if found is not None:
            design = Design.of(found.about["recipe"])
            tensors = read_files(found.files).model
            return Weights(name=found.name, design=design, tensors=tensors)
    except (KeyError, ValueError):
        pass
    message = f"`{path}` holds no checkpoint of Mask R-CNN"
    raise TrainingError(message, hint="the folder that holds step-..., or a file of weights")


def _tells(tensors: Tensors, num_classes: int) -> bool:
    """Whether the weights have outputs for so many classes and the background."""
    rows = {
        f"{layer}.{part}": size * (num_classes + 1)
        for layer, size in PREDICTORS.items()
        for part in ("weight", "bias")
    }
    return all(key in tensors and tensors[key].shape[:1] == (rows[key],) for key in rows)


def _misdescribed(about: Path, why: str) -> TrainingError:
    message = f"`{about}` does not describe weights of Mask R-CNN: {why}"
    return TrainingError(message, hint="the .json that training wrote beside them")


def _in_fp32(made: Any) -> Any:
    """Give tensors, and lists, tuples and dictionaries of tensors, as fp32."""
    if isinstance(made, Mapping):
        return {name: _in_fp32(each) for name, each in made.items()}
    if isinstance(made, (list, tuple)):
        return type(made)(_in_fp32(each) for each in made)
    return made.float()


def _without_epsilon(tensors: Mapping[str, Tensor]) -> Tensors:
    """Lower the variances by what batch norms will add."""
    return {
        key: value - EPSILON if key.endswith("running_var") else value
        for key, value in tensors.items()
    }


def _carried(old: Tensor, fresh: Tensor, rows: Mapping[int, int], size: int) -> Tensor:
    """Copy the old tensor's rows of known classes into the fresh one; a class has `size` rows."""
    mixed = fresh.clone()
    if old.shape[1:] != fresh.shape[1:]:
        return old
    for place, source in rows.items():
        mixed[place * size : (place + 1) * size] = old[source * size : (source + 1) * size]
    return mixed
