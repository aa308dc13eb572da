"""`trainer.data.pack` against `tar -czf` (D5) and against decoding each JPEG for TFRecord (D3)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench.pairs import Command, median_wall_s, time_in_turn
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import PEERS
from tests.bench.table import Row

NUM_IMAGES, NUM_CLASSES = 5000, 100
# The peers take far longer than what they are held against.
MAX_ROUNDS = 3


def packing_rows(project: Path, rounds: int) -> list[Row]:
    """Pack 5,000 made JPEGs of about 110 kB in the page cache; nobody waits for the disk."""
    from jobs.images.runtimes import runtime_python
    from trainer.data.disk.events import Events
    from trainer.data.synthesize.imagenet import ImageSet, make_images

    rounds = min(rounds, MAX_ROUNDS)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        images = ImageSet(num_train=NUM_IMAGES, num_classes=NUM_CLASSES, seed=0)
        make_images(work / "images", images, Events(as_json=False))
        # What both are given: the training pictures alone.
        shutil.rmtree(work / "images" / "val")
        tars = Command(name="pack", argv=_after_removal(work / "shards", *_pack(work, "tar")))
        gzip = Command(
            name="tar -czf",
            argv=_after_removal(work / "x.tgz", "tar", "-czf", "x.tgz", "images"),
            cwd=work,
        )
        copy = Command(
            name="cat",
            argv=["sh", "-c", "rm -f all; find images -type f -print0 | xargs -0 cat > all"],
            cwd=work,
        )
        records = Command(
            name="pack --format tfrecord",
            argv=_after_removal(work / "shards", *_pack(work, "tfrecord")),
        )
        walls = time_in_turn([tars, gzip, copy, records], rounds=rounds)
        converter = Command(
            name="a session decodes each",
            argv=_after_removal(
                work / "records",
                str(runtime_python("tensorflow", project)),
                str(PEERS / "convert_tfrecord.py"),
                str(work / "images/train"),
                str(work / "records"),
            ),
        )
        peer_rate = rates_in_turn([converter], rounds=rounds)[converter.name]
    tars_s, gzip_s, copy_s, records_s = (
        median_wall_s(walls[command.name]) for command in (tars, gzip, copy, records)
    )
    rate = NUM_IMAGES / records_s
    return [
        Row(
            goal=f"D5: {NUM_IMAGES:,} JPEGs packed into tar shards, with sha256 and index",
            ours=f"{tars_s:.2f} s",
            peer=f"`tar -czf` {gzip_s:.2f} s (`cat` to one file {copy_s:.2f} s)",
            ratio=gzip_s / tars_s,
            at_least=10.0,
        ),
        Row(
            goal=f"D3: {NUM_IMAGES:,} JPEGs packed into TFRecord, with sha256 and index",
            ours=f"{rate:.0f} images/s",
            peer=f"decoding each in a TensorFlow session, 2 threads: {peer_rate:.0f} images/s",
            ratio=rate / peer_rate,
            at_least=8.0,
        ),
    ]


def _pack(work: Path, encoding: str) -> list[str]:
    program = [sys.executable, "-m", "trainer.data.pack", str(work / "images")]
    return [*program, "--to", str(work / "shards"), "--format", encoding]


def _after_removal(target: Path, *argv: str) -> list[str]:
    """What was made in the round before goes first, within the time of each."""
    return ["sh", "-c", 'rm -rf "$0" && exec "$@"', str(target), *argv]
