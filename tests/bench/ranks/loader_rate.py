"""Loads the training pictures of a folder three times as one loader does; prints its images/s.

loader_rate.py library FOLDER       Trainyard's, from class folders or packed shards
loader_rate.py fast FOLDER          the same with --decoder fast
loader_rate.py imagefolder FOLDER   torchvision's ImageFolder and PyTorch's DataLoader
loader_rate.py webdataset FOLDER    webdataset from the tar shards of a packed folder
loader_rate.py streaming FOLDER     mosaicml-streaming; writes its own shards to FOLDER first
loader_rate.py simplejpeg FOLDER    nothing but decoding whole pictures, which are in memory

All use two workers, or as many as a third argument says, and give batches of 64 random crops of
224 x 224 bytes, mirrored or not.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

BATCH, SIZE, NUM_PASSES = 64, 224, 3
NUM_WORKERS = int(sys.argv[3]) if len(sys.argv) > 3 else 2


def library(folder: Path) -> Iterator[int]:
    """Give the size of each batch when it is there, as all of these do."""
    return ours(folder, "library")


def fast(folder: Path) -> Iterator[int]:
    return ours(folder, "fast")


def ours(folder: Path, decoder: Any) -> Iterator[int]:
    import torch

    from trainer.common.memory import keep_freed_memory
    from trainer.common.sharding import shuffled_batches
    from trainer.data.pictures.crops import epoch_crop
    from trainer.data.pictures.splits import open_pictures
    from trainer.pytorch.decoding import DecodingWorkers
    from trainer.pytorch.loader import Loader

    keep_freed_memory(os.environ)  # as our programs do
    pictures = open_pictures(folder, "train")
    loader = Loader(
        pictures,
        torch.device("cpu"),
        size=SIZE,
        workers=DecodingWorkers(NUM_WORKERS),
        decoder=decoder,
    )
    for epoch in range(1, NUM_PASSES + 1):
        order = shuffled_batches(
            len(pictures.labels), BATCH, seed=1, epoch=epoch, shard_sizes=pictures.shard_sizes
        )
        for batch in loader.batches(order, partial(epoch_crop, 1, epoch)):
            yield len(batch.labels)


def transform() -> Any:
    """What PyTorch's example for ImageNet does, left at bytes."""
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )


def imagefolder(folder: Path) -> Iterator[int]:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    loader = DataLoader(
        ImageFolder(str(folder / "train"), transform()),
        batch_size=BATCH,
        shuffle=True,
        num_workers=NUM_WORKERS,
        persistent_workers=True,
    )
    for _ in range(NUM_PASSES):
        for _, labels in loader:
            yield len(labels)


def webdataset(folder: Path) -> Iterator[int]:
    import webdataset as wds

    shards = sorted(str(path) for path in (folder / "train").glob("*.tar"))
    dataset = (
        wds.WebDataset(shards, shardshuffle=len(shards))
        .shuffle(1000)
        .decode("pilrgb")
        .to_tuple("jpg;jpeg;png", "cls")
        .map_tuple(transform(), int)
        .batched(BATCH)
    )
    loader = wds.WebLoader(
        dataset, batch_size=None, num_workers=NUM_WORKERS, persistent_workers=True
    )
    for _ in range(NUM_PASSES):
        for _, labels in loader:
            yield len(labels)


def streaming(folder: Path) -> Iterator[int]:
    from PIL import Image
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    from trainer.data.pictures.splits import open_pictures

    shards = folder / "mds"
    if not shards.exists():
        pictures = open_pictures(folder, "train")
        with MDSWriter(out=str(shards), columns={"image": "bytes", "label": "int"}) as writer:
            for index, label in enumerate(pictures.labels):
                writer.write({"image": pictures.read(index), "label": label})
    change = transform()

    class Pictures(StreamingDataset):
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            image = Image.open(io.BytesIO(sample["image"])).convert("RGB")
            return change(image), sample["label"]

    dataset = Pictures(local=str(shards), shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=NUM_WORKERS, persistent_workers=True
    )
    for _ in range(NUM_PASSES):
        for _, labels in loader:
            yield len(labels)


def simplejpeg(folder: Path) -> Iterator[int]:
    from simplejpeg import decode_jpeg

    from trainer.data.pictures.splits import open_pictures

    pictures = open_pictures(folder, "train")
    files = [pictures.read(index) for index in range(len(pictures.labels))]

    def decode(data: bytes) -> int:
        try:
            decode_jpeg(data)
        except ValueError:  # a PNG, or the colours of print
            return 0
        return 1

    with ThreadPoolExecutor(NUM_WORKERS) as threads:
        for _ in range(NUM_PASSES):
            for start in range(0, len(files), BATCH):
                yield sum(threads.map(decode, files[start : start + BATCH]))


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    kinds = (library, fast, imagefolder, webdataset, streaming, simplejpeg)
    batches = {each.__name__: each for each in kinds}[kind](folder)
    # Imports, indices and the start of workers are not the rate.
    next(batches)
    began_s = time.perf_counter()
    num_images = sum(batches)
    print(num_images / (time.perf_counter() - began_s))


if __name__ == "__main__":
    main()
