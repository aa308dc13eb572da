"""Reads an epoch of a packed dataset on ranks that wait for each other; prints samples a second.

    python stream_readers.py FOLDER RANKS SECONDS_A_SAMPLE

A rank reads its part of each batch, then does nothing for as long as training on it would take.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from trainer.common.sharding import shuffled_batches
from trainer.data.pictures.read_ahead import announced
from trainer.data.pictures.splits import open_pictures

BATCH = 64
# Batches that are left out, as training's first steps are: each of their samples is in a block
# of its own, and none is there yet.
NUM_LEFT_OUT = 4


def read_epoch(rank: int, size: int, folder: Path, sample_s: float, together: Barrier) -> None:
    """Read this rank's part."""
    pictures = open_pictures(folder, "train")
    order = shuffled_batches(
        len(pictures.labels), BATCH, seed=1, epoch=1, shard_sizes=pictures.shard_sizes
    )
    mine = (batch[rank::size] for batch in order)
    num_read, begun_s = 0, time.monotonic()
    for number, samples in enumerate(announced(mine, pictures.announce)):
        if number == NUM_LEFT_OUT:
            num_read, begun_s = 0, time.monotonic()
        for index in samples:
            pictures.read(index)
        together.wait()
        num_read += len(samples)
        time.sleep(sample_s * len(samples))
    if rank == 0:
        print(size * num_read / (time.monotonic() - begun_s))


def main() -> None:
    """Run the ranks and print their rate."""
    folder, size, sample_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    context = multiprocessing.get_context("fork")
    together = context.Barrier(size)
    ranks = [
        context.Process(target=read_epoch, args=(rank, size, folder, sample_s, together))
        for rank in range(size)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    if any(each.exitcode for each in ranks):
        sys.exit(1)


if __name__ == "__main__":
    main()
