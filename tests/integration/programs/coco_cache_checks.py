"""Compares a cached COCO split with the split that it was made of -> JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tests.integration.programs.one_rank import alone
from trainer.common.world import World
from trainer.data.pictures.coco import read_split
from trainer.pytorch import coco_cache
from trainer.pytorch.coco_cache import open_cached
from trainer.pytorch.maskrcnn_loading import draw_masks


def main(argv: Sequence[str]) -> None:
    """Open the split of the folder as two ranks of a node do, then with its annotations changed."""
    folder = Path(argv[0])
    plain = read_split(folder, "train2017")
    read: list[str] = []
    read_all = coco_cache.read_split

    def counted(*given):
        read.append(given[1])
        return read_all(*given)

    coco_cache.read_split = counted
    first = alone()
    second = replace(first, world=World(rank=1, size=2, local_rank=1, local_size=2))
    splits = [open_cached(folder, "train2017", ranks) for ranks in (first, second, first)]
    num_reads = len(read)
    cached = splits[1]
    pairs = list(zip(plain.pictures, cached.pictures, strict=True))
    same = [
        [replace(each, outline=()) for each in ours.objects]
        == [replace(each, outline=()) for each in theirs.objects]
        and replace(ours, objects=()) == replace(theirs, objects=())
        and torch.equal(*(torch.from_numpy(draw_masks(each)) for each in (ours, theirs)))
        for ours, theirs in pairs
    ]
    with_objects = [each.id for each in plain.pictures if each.objects]
    annotations = folder / "annotations" / "instances_train2017.json"
    changed = json.loads(annotations.read_text())
    changed["categories"][0]["name"] = "renamed"
    annotations.write_text(json.dumps(changed))
    again = open_cached(folder, "train2017", first)
    print(
        json.dumps(
            {
                "num_pictures": len(same),
                "num_same": sum(same),
                "num_reads": num_reads,
                "with_objects": [each.id for each in cached.pictures.with_objects()]
                == with_objects,
                "is_wide": cached.pictures.is_wide
                == [each.width >= each.height for each in plain.pictures],
                "num_objects": cached.pictures.num_objects.tolist()
                == [len(each.objects) for each in plain.pictures],
                "rest": [
                    dict(plain.categories) == dict(cached.categories),
                    plain.num_unusable == cached.num_unusable,
                    plain.annotations == cached.annotations,
                ],
                "mapped": type(cached.pictures.arrays["codes"]).__name__,
                "renamed": again.classes[0],
                "reads_at_the_end": len(read),
            }
        )
    )
