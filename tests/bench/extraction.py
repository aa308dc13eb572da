"""ImageNet's archives into class folders, against the algorithm of `prepare_imagenet.py` (D4)."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.bench.table import Row
from tests.fakes.ilsvrc import write_archives

# 10,000 pictures of about 110 kB, as ImageNet's are on average.
NUM_CLASSES, NUM_TRAIN = 100, 100
SIZES = (60_000, 85_000, 110_000, 120_000, 175_000)


def extraction_rows(project: Path, rounds: int) -> list[Row]:
    """Extract 1.1 GB of class tars in one large tar, in turn; both end with everything on disk."""
    del project
    with tempfile.TemporaryDirectory() as name:
        archives = Path(name) / "archives"
        write_archives(
            archives, num_classes=NUM_CLASSES, num_train=NUM_TRAIN, num_val=NUM_CLASSES, sizes=SIZES
        )
        walls_s: dict[str, list[float]] = {"ours": [], "peer": []}
        for number in range(rounds + 1):
            for who, extract in (("ours", _prepare), ("peer", _extract_twice)):
                wall_s = _timed(extract, archives, Path(name) / who)
                print(f"  extraction, {who}: {wall_s:.2f} s", file=sys.stderr)
                if number > 0:
                    walls_s[who].append(wall_s)
    ours_s, peer_s = median(walls_s["ours"]), median(walls_s["peer"])
    return [
        Row(
            goal="extract 10,000 pictures from a tar of tars (1.1 GB), ours with MD5 checked",
            ours=f"{ours_s:.2f} s",
            peer=f"each class tar to disk first {peer_s:.2f} s",
            ratio=peer_s / ours_s,
            at_least=1.7,
        )
    ]


def _timed(extract: Callable[[Path, Path], None], archives: Path, target: Path) -> float:
    import os

    os.sync()
    start = time.perf_counter()
    extract(archives, target)
    os.sync()
    wall_s = time.perf_counter() - start
    shutil.rmtree(target)
    return wall_s


def _prepare(archives: Path, target: Path) -> None:
    from trainer.data.disk.events import Events
    from trainer.data.prepare.program import prepare_archives

    events = Events(as_json=True)
    prepare_archives("imagenet", archives, target, events, checksums=archives / "SUMS")


def _extract_twice(archives: Path, target: Path) -> None:
    """What the peer does: a class's tar is written, opened again, extracted and taken away."""
    import tarfile

    from trainer.data.prepare.imagenet import TRAIN

    with tarfile.open(archives / TRAIN) as outer:
        for member in outer:
            folder = target / "train" / Path(member.name).stem
            folder.mkdir(parents=True)
            outer.extract(member, folder, filter="fully_trusted")
            with tarfile.open(folder / member.name) as inner:
                inner.extractall(folder, filter="fully_trusted")
            (folder / member.name).unlink()
