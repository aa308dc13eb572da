"""Chooses the regions that Mask R-CNN looks at, of all pictures of a step at once where they lie on a GPU.

Torchvision takes one picture after the other, asks the GPU for how many are left of each, and suppresses
overlapping ones by a kernel of one block: at 8 pictures an eighth of an H200's step (docs/adr/0025).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torchvision.models.detection.rpn import RegionProposalNetwork

# Rounds of suppression between two questions whether anything has changed, for which the host waits.
ROUNDS = 4


class RegionProposals(RegionProposalNetwork):
    """Torchvision's, which keeps the same regions in the same order."""

    def filter_proposals(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Give each picture's best regions, (K, 4) pixels, and their scores, (K,), the best one first.

        `proposals` is (N, A, 4), and `objectness` has a figure of each; a CPU takes torchvision's way,
        which computes less.
        """
        if proposals.device.type == "cpu":
            return super().filter_proposals(
                proposals, objectness, image_shapes, num_anchors_per_level
            )
        with torch.autocast(proposals.device.type, enabled=False):
            return self.filter_at_once(proposals, objectness, image_shapes, num_anchors_per_level)

    def filter_at_once(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Give what `filter_proposals` does, on any device."""
        figures = objectness.detach().reshape(len(proposals), -1)
        boxes, scores = self._best_of_levels(proposals, figures, num_anchors_per_level)
        sides = [[width, height] * 2 for height, width in image_shapes]
        ends = torch.tensor(sides, dtype=boxes.dtype).to(boxes.device, non_blocking=True)
        boxes = torch.minimum(boxes.clamp(min=0), ends[:, None, None])
        is_usable = (boxes[..., 2:] - boxes[..., :2] >= self.min_size).all(dim=-1)
        is_usable &= scores >= self.score_thresh
        # Picture by picture: all at once would take gigabytes on the way.
        rivals = boxes.new_empty((*scores.shape, scores.shape[-1]), dtype=torch.float16)
        for place, of_picture in zip(rivals, boxes, strict=True):
            place.copy_(find_rivals(of_picture, self.nms_thresh))
        is_kept = suppress(rivals, is_usable)
        most = min(self.post_nms_top_n(), is_kept[0].numel())
        # Stable: layers in bf16 give many equal scores.
        ranked = torch.where(is_kept, scores, -1.0).flatten(1).sort(descending=True, stable=True)
        best, places = ranked.values[:, :most], ranked.indices[:, :most]
        numbers = is_kept.sum(dim=(1, 2)).clamp(max=most).tolist()
        best_boxes = boxes.flatten(1, 2).gather(1, places[..., None].expand(-1, -1, 4))
        return (
            [each[:number] for each, number in zip(best_boxes, numbers, strict=True)],
            [each[:number] for each, number in zip(best, numbers, strict=True)],
        )

    def _best_of_levels(
        self, proposals: Tensor, figures: Tensor, num_anchors_per_level: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Give boxes (N, L, K, 4) and scores (N, L, K) of each level's best, and none where it has fewer."""
        most = min(self.pre_nms_top_n(), max(num_anchors_per_level))
        boxes: list[Tensor] = []
        scores: list[Tensor] = []
        levels = zip(
            proposals.split(num_anchors_per_level, dim=1),
            figures.split(num_anchors_per_level, dim=1),
            strict=True,
        )
        for level, of_level in levels:
            best, places = of_level.topk(min(most, of_level.shape[1]))
            chosen = level.gather(1, places[..., None].expand(-1, -1, 4))
            num_missing = most - best.shape[1]
            boxes.append(functional.pad(chosen, (0, 0, 0, num_missing)))
            # Without sides such a box is not usable, whatever its score.
            scores.append(functional.pad(best.sigmoid(), (0, num_missing)))
        return torch.stack(boxes, dim=1), torch.stack(scores, dim=1)


def find_rivals(boxes: Tensor, threshold: float) -> Tensor:
    """Tell of (..., K, 4) boxes, the best first, which one overlaps which later one by too much: (..., K, K)."""
    left, top, right, bottom = boxes.unbind(dim=-1)
    areas = (right - left) * (bottom - top)

    def pairs(function: Callable[[Tensor, Tensor], Tensor], ends: Tensor) -> Tensor:
        return function(ends[..., :, None], ends[..., None, :])

    width = (pairs(torch.minimum, right) - pairs(torch.maximum, left)).clamp_(min=0)
    height = (pairs(torch.minimum, bottom) - pairs(torch.maximum, top)).clamp_(min=0)
    common = width.mul_(height)
    union = pairs(torch.add, areas) - common
    return common.div_(union).gt_(threshold).triu_(1)


def suppress(rivals: Tensor, is_usable: Tensor) -> Tensor:
    """Keep what is usable and has no better rival that is kept: non-maximum suppression.

    `rivals` is (..., K, K) ones and zeros as `find_rivals` gives them, `is_usable` (..., K). After n rounds the
    first n boxes of every chain of rivals are final, so that it is torchvision's choice once nothing changes
    (Zheng et al. 2020, Cluster-NMS, arXiv 2005.03572).
    """
    before = is_kept = is_usable
    while True:
        for _ in range(ROUNDS):
            num_rivals = (is_kept.to(rivals.dtype)[..., None, :] @ rivals).squeeze(-2)
            before, is_kept = is_kept, is_usable & (num_rivals == 0)
        if torch.equal(before, is_kept):
            return is_kept
