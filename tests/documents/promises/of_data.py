"""Promises about datasets: pushed, packed, streamed, prepared, promoted, imported."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from jobs.blobs import concurrency
from jobs.blobs.files import BLOCK_BYTES
from jobs.contracts.errors import ExitCode
from jobs.datasets import copy, paths, pull, scan_cache
from jobs.engines.azure_ml import node_job
from jobs.engines.local import inputs
from jobs.host import untrusted
from jobs.launching.imports import documents, json_text
from tests.documents.promises.sentences import NoPromise, Promise, promise
from tests.documents.promises.units import (
    a,
    constant,
    days,
    gib,
    hours,
    least_python,
    mib,
    minutes,
    mode,
    spelled,
    typed,
    written_in,
)
from trainer.common import sharding
from trainer.data.pack import program as packing
from trainer.data.prepare import digits, published
from trainer.data.shards import index, tar
from trainer.data.streaming import blocks, store
from trainer.data.synthesize import imagenet

SAS_MODE = mode("jobs/runs/signatures.py", "write_signature")
INPUT_MODE = mode("jobs/engines/local/inputs.py", "_receive")


def _of_digits() -> tuple[int, ...]:
    """Give the size of a digit, of what one of its pixels becomes, and of the border around it."""
    one = np.zeros((1, 8, 8))
    one[0, 0, 0] = 16
    large: Any = digits.enlarge(one)[0]
    (border, *more), _ = large.nonzero()
    block = round((len(more) + 1) ** 0.5)
    return (block, block, border, *large.shape)


def _upright() -> str:
    """Tell that one in so many pictures is higher than wide, by their seeds."""
    sizes = [imagenet._choose_size(random.Random(number)) for number in range(4000)]
    return spelled(round(len(sizes) / sum(height > width for width, height in sizes)))


def _of_name() -> int:
    """Count the digits of their checksum that names of published weights have."""
    (length,) = {
        len(each.name.removesuffix(".pth").rpartition("-")[2])
        for each in published.WEIGHTS.values()
        if each.checksum.digest.startswith(each.name.removesuffix(".pth").rpartition("-")[2])
    }
    return length


def _of_free() -> str:
    """Name the part of the free space that a cache takes at most, here and on Azure's nodes."""
    free = r"shutil\.disk_usage\(cache\)\.free"
    (part,) = {
        *written_in("jobs/engines/local/inputs.py", rf"\({free} \+ _taken\(cache\)\) // (\d+)"),
        *written_in("jobs/rank/streams.py", rf"else {free} // (\d+)"),
    }
    return {"2": "half"}[part]


def _room_for_shards() -> int:
    """Count the shards that an index of ImageNet's classes can list, to the next ten thousand."""
    classes = tuple(f"n{number:08}" for number in range(1000))
    paths = {name: packing._shard_path(name, 0, "tar") for name in ("train", "val")}
    return round(index.room_for_shards("pictures", "tar", classes, paths), -4)


PROMISES: dict[str, tuple[Promise, ...]] = {
    "docs/data.md": (
        promise("modified within {} s of being read", scan_cache.RACY_NS / 10**9),
        promise("more than {} characters or {} folders", paths.LONGEST_PATH, paths.MOST_PARTS),
        promise("parts of more than {} bytes", untrusted.LONGEST_PART_BYTES),
        promise("lists the first {} files to delete", pull.NUM_SHOWN),
        promise("has up to {} requests under way at once", concurrency.NUM_REQUESTS),
        promise(
            "A limit of {} open files is enough",
            constant("tests/jobs/blobs/test_open_files.py", "FEW_FILES"),
        ),
        promise(
            "a block of {} x {} and the picture gets a border of {}: {} x {} without", *_of_digits()
        ),
    ),
    "docs/promotion.md": (
        promise("a file over {} MiB)", mib(copy.LARGEST_COPY)),
        promise("pass through your machine in batches of {} MB", mib(copy.BATCH_BYTES)),
        promise("a SAS for reading that ends after {} hours", hours(copy.SAS_S)),
    ),
    "docs/inputs.md": (
        promise(" files of mode {}", INPUT_MODE),
        promise("lies in `inputs/NAME.sas` of the run, mode {}, and", SAS_MODE),
        promise("the index is copied ({} bytes a sample)", index.PLACE_BYTES),
        promise("then the samples of {} shards at a time", sharding.WINDOW_SHARDS),
        promise("While one window of {} shards is trained on", sharding.WINDOW_SHARDS),
        promise(
            "Blocks of {} MiB by ranges, {} at once a rank",
            mib(blocks.BLOCK_BYTES),
            blocks.NUM_FETCHERS,
        ),
        promise(
            "({} shards of {} MiB:", int(1.5 * sharding.WINDOW_SHARDS), mib(packing.SHARD_BYTES)
        ),
        promise("at most {} of the space that was free, or held by the cache already", _of_free()),
        promise("waits up to {} minutes for a store that is away", minutes(store.PATIENCE_S)),
        promise("(`limits: {wall_clock: ...}`) and {} day;", a(days(inputs.SAS_MARGIN_S))),
        promise(
            "without a limit for {} days ({} with an account in Azure)",
            *(days(inputs.LOCAL_SAS_VALID_S), days(inputs.AZURE_SAS_VALID_S)),
        ),
    ),
    "docs/shards.md": (
        promise("about 1,100 files of {} MiB", mib(packing.SHARD_BYTES)),
        promise("where each picture lies: {} bytes a sample", index.PLACE_BYTES),
        promise("set by `--shard-size {}MiB`", mib(packing.SHARD_BYTES)),
        promise(
            "{} MiB are {} of the blocks that transfers use",
            *(mib(packing.SHARD_BYTES), spelled(packing.SHARD_BYTES / BLOCK_BYTES)),
        ),
        promise(
            "a window of {} shards is {} GiB",
            *(spelled(sharding.WINDOW_SHARDS), gib(sharding.WINDOW_SHARDS * packing.SHARD_BYTES)),
        ),
        promise("a line where they are more than {}", spelled(packing._MOST_IN_A_LINE)),
        promise(
            "an `index.json` of {} MiB, of which there is room for about {}",
            *(mib(index.MOST_INDEX_BYTES), _room_for_shards()),
        ),
        promise("is POSIX ustar with mode {}, owner", tar._MODE[-5:-1].decode()),
        promise("and one in {} more for validation", imagenet.TRAIN_PER_VAL),
        promise("most of {} x {} pixels, one in {} upright", *imagenet._SIZES[0][1:], _upright()),
        promise(
            "one in {} grey, the sixth of every {} CMYK, the eighth of every {} a PNG",
            *(imagenet.GREY_EVERY, imagenet.CMYK_EVERY, imagenet.PNG_EVERY),
        ),
    ),
    "docs/import.md": (
        promise("All of it lies below `--into DIR` (`{}`)", typed("import", "into")),
        promise(
            "more than {} MiB or {} levels end", mib(documents.MOST_BYTES), json_text.MOST_DEPTH
        ),
        promise(
            "if something was (the files are written unless nothing is left), {} if there",
            int(ExitCode.USAGE),
        ),
        promise("was refused, {} if something was", int(ExitCode.REFUSED)),
        promise("have neither Python {} nor today's CUDA", least_python(node_job._MAIN)),
    ),
    "docs/prepare.md": (
        promise("torchvision publishes its first {} digits in the file's name", _of_name()),
        promise(
            "refused by name ({} hostile archives",
            *written_in("tests/trainer/data/prepare/test_unpack.py", r"assert tried == (\d+)"),
        ),
    ),
    "launch data --help": (
        promise(
            "Approximate size of a shard (default: {}MiB)", mib(typed("data pack", "shard_size"))
        ),
        promise("1/{} as many are added for validation", imagenet.TRAIN_PER_VAL),
    ),
}

_MEASURED = "a measurement, with its machine and date"
NO_PROMISES: dict[str, tuple[NoPromise, ...]] = {
    "docs/data.md": (
        NoPromise(r"`--limit-rate 20M` limits a transfer to 20 MB per second", "an example"),
        NoPromise(r"writes of its last 5 s", "Azurite's own interval"),
        NoPromise(r"one request of a few hundred bytes", "an estimate"),
        NoPromise(r"digits: 8 x 8 pixels", "scikit-learn's"),
    ),
    "docs/inputs.md": (
        NoPromise(r"shards of 128 MiB: 1\.6 GB", "the product of what stands before it"),
        NoPromise(r"One epoch, 24 shards of 16\.7 MB \(a window is 134 MB\)", _MEASURED),
    ),
    "docs/import.md": (NoPromise(r"## All keys .*", "written by tests/documents/import_keys.py"),),
    "docs/prepare.md": (
        NoPromise(r"\| `digits` \| none; .*?155 \+ 160 GB", "sizes of published archives"),
        NoPromise(r"At 400 MB/s ImageNet's 155 GB", "an example"),
    ),
    "docs/promotion.md": (
        NoPromise(r"A copy of 360 MB that was killed after 4 s .*? took 13 s", _MEASURED),
    ),
    "docs/shards.md": (
        NoPromise(r"1\.28 million places are 20 MB that are read in half a second", _MEASURED),
        NoPromise(r"about 110 kB each", "about that of ImageNet's own"),
    ),
}
