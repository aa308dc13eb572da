"""Parts of Mask R-CNN that wait for a GPU less often than torchvision's, and compute the same but for the draws.

In a step of two pictures torchvision copies a constant to the GPU, or asks it for a number, at some fifty places. At each of
them the host waits for all that the GPU still has to do, and the GPU then for the host (docs/adr/0025).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler, Matcher
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign, roi_align

from trainer.pytorch.maskrcnn_proposals import RegionProposals


class DetectionNetwork(MaskRCNN):
    """Trains without asking the GPU whether each box has an area: `read_split` leaves out those without."""

    def forward(
        self, images: Sequence[Tensor], targets: Sequence[Mapping[str, Tensor]] | None = None
    ) -> dict[str, Tensor] | list[dict[str, Tensor]]:
        """Give the losses of pictures (3, H, W) of 0 to 1 in training, and what is found on them otherwise."""
        if not self.training:
            return super().forward(images)
        batch, targets = self.transform(images, targets)
        features = self.backbone(batch.tensors)
        regions, of_regions = self.rpn(batch, features, targets)
        _, of_heads = self.roi_heads(features, regions, batch.image_sizes, targets)
        return {**of_heads, **of_regions}


class PictureTransform(GeneralizedRCNNTransform):
    """Scales pictures and boxes without copying a constant to the GPU for each."""

    def normalize(self, image: Tensor) -> Tensor:
        """Shift and scale the channels of a picture, (3, H, W)."""
        mean, std = (
            _channels(tuple(each), image.device) for each in (self.image_mean, self.image_std)
        )
        return (image - mean) / std

    def resize(
        self, image: Tensor, target: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """Scale a picture, (3, H, W), and the masks and boxes of its target."""
        if target is None:
            return super().resize(image)
        old_height, old_width = image.shape[-2:]
        image, scaled = super().resize(image, {**target, "boxes": torch.empty(0, 4)})
        down, across = image.shape[-2] / old_height, image.shape[-1] / old_width
        left, top, right, bottom = target["boxes"].unbind(dim=1)
        boxes = (left * across, top * down, right * across, bottom * down)
        return image, {**scaled, "boxes": torch.stack(boxes, dim=1)}


@functools.cache
def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Copy a number of each channel to the device once, (C, 1, 1)."""
    return torch.tensor(values)[:, None, None].to(device)


class BoxMatcher(Matcher):
    """Finds the best anchors of each object without asking the GPU how many there are."""

    def set_low_quality_matches_(
        self, matches: Tensor, all_matches: Tensor, match_quality_matrix: Tensor
    ) -> None:
        """Write what is in `all_matches`, (A,), to `matches` for anchors that are an object's best."""
        best = match_quality_matrix.amax(dim=1, keepdim=True)
        is_best = (match_quality_matrix == best).any(dim=0)
        torch.where(is_best, all_matches, matches, out=matches)


class Sampler(BalancedPositiveNegativeSampler):
    """Draws for all pictures at once, and asks the GPU nothing."""

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Give masks, (A,), of the objects and of the background drawn from each picture's labels, (A,)."""
        labels = pad_sequence(matched_idxs, batch_first=True, padding_value=-1)
        keys = torch.rand(labels.shape, device=labels.device)
        size = self.batch_size_per_image
        objects = draw(labels >= 1, keys, int(size * self.positive_fraction))
        rest = size - objects.sum(dim=1, keepdim=True)
        background = draw(labels == 0, keys, size, at_most=rest)

        def unpadded(masks: Tensor) -> list[Tensor]:
            return [mask[: len(of)] for mask, of in zip(masks, matched_idxs, strict=True)]

        return unpadded(objects), unpadded(background)


def draw(is_there: Tensor, keys: Tensor, number: int, *, at_most: Tensor | None = None) -> Tensor:
    """Draw up to `number` of the places of each row, (N, A), that are there: those with the largest keys.

    Of a row not more than `at_most`, (N, 1). Gives ones and zeros.
    """
    best, places = torch.where(is_there, keys, -1.0).topk(min(number, keys.shape[1]), dim=1)
    is_drawn = best >= 0
    if at_most is not None:
        is_drawn &= torch.arange(best.shape[1], device=best.device) < at_most
    return torch.zeros_like(keys, dtype=torch.uint8).scatter_(1, places, is_drawn.byte())


class Heads(RoIHeads):
    """Ask the GPU once, for all pictures, how many regions they learn from."""

    def subsample(self, labels: list[Tensor]) -> list[Tensor]:
        """Give the numbers of the regions that are drawn, picture by picture."""
        drawn = [ours | others for ours, others in zip(*self.fg_bg_sampler(labels), strict=True)]
        sizes = torch.stack([each.sum() for each in drawn]).tolist()
        return [
            torch.nonzero_static(each, size=size).squeeze(1)
            for each, size in zip(drawn, sizes, strict=True)
        ]


class RegionPool(MultiScaleRoIAlign):
    """Asks the GPU once how many regions lie on each level of the features."""

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Give the features of all regions, (R, C, h, w), in their order."""
        if self.map_levels is None:
            return super().forward(x, boxes, image_shapes)
        features = [x[name] for name in self.featmap_names]
        levels = self.map_levels(boxes)
        order = levels.argsort(stable=True)
        is_on = levels == torch.arange(len(features), device=levels.device)[:, None]
        numbers = is_on.sum(dim=1).tolist()
        regions = [nn.functional.pad(each, (1, 0), value=place) for place, each in enumerate(boxes)]
        pooled = [
            roi_align(feature, group, self.output_size, scale, self.sampling_ratio)
            for feature, group, scale in zip(
                features, torch.cat(regions)[order].split(numbers), self.scales, strict=True
            )
        ]
        return torch.cat(pooled).index_select(0, order.argsort())


def wait_less(network: MaskRCNN) -> None:
    """Let parts of the network be ours; their weights, names and numbers are as torchvision made them."""
    rpn, heads = network.rpn, network.roi_heads
    for part, kind in (
        (network, DetectionNetwork),
        (network.transform, PictureTransform),
        (rpn, RegionProposals),
        (rpn.proposal_matcher, BoxMatcher),
        (rpn.fg_bg_sampler, Sampler),
        (heads, Heads),
        (heads.fg_bg_sampler, Sampler),
        (heads.box_roi_pool, RegionPool),
        (heads.mask_roi_pool, RegionPool),
    ):
        part.__class__ = kind
