"""The loader that decodes and crops JPEGs, against those that a PyTorch user would take (D1)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import PEERS
from tests.bench.table import Row

NUM_IMAGES, NUM_CLASSES = 4000, 10
# Each run is three passes over all pictures.
MAX_ROUNDS = 3


def loader_rows(project: Path, rounds: int) -> list[Row]:
    """Load 4,000 made JPEGs of about 110 kB from the page cache with two workers on two cores."""
    from jobs.images.runtimes import runtime_python
    from trainer.data.disk.events import Events
    from trainer.data.pack.program import pack

    python = str(runtime_python("pytorch", project))
    peers = _install_peers(project, python)
    with tempfile.TemporaryDirectory() as name:
        folder, shards = Path(name) / "images", Path(name) / "shards"
        make_jpegs(folder, num_images=NUM_IMAGES)
        pack(folder, shards, encoding="tar", shard_bytes=32 << 20, events=Events(as_json=False))
        # One thread of each worker computes: they are as many as cores.
        env = {"PYTHONPATH": f"{project}:{peers}", "OMP_NUM_THREADS": "1"}
        runs = {
            "`library`": ("library", folder),
            "`fast`": ("fast", folder),
            "ours from shards": ("library", shards),
            "ImageFolder": ("imagefolder", folder),
            "webdataset": ("webdataset", shards),
            "mosaicml-streaming": ("streaming", shards),
            "simplejpeg": ("simplejpeg", folder),
        }
        commands = [
            Command(
                name=each, argv=[python, str(PEERS / "loader_rate.py"), kind, str(where)], env=env
            )
            for each, (kind, where) in runs.items()
        ]
        rates = rates_in_turn(commands, rounds=min(rounds, MAX_ROUNDS))
    limit = rates["simplejpeg"]
    return [
        _row("class folders", "`library`", "ImageFolder", rates, limit, at_least=1.3),
        _row("class folders", "`fast`", "ImageFolder", rates, limit, at_least=2.5),
        _row("tar shards", "ours from shards", "webdataset", rates, limit, at_least=1.5),
        _row("shards", "ours from shards", "mosaicml-streaming", rates, limit, at_least=1.5),
    ]


def make_jpegs(folder: Path, *, num_images: int) -> None:
    """Make JPEGs of ImageNet's sizes in ten class folders."""
    from trainer.data.disk.events import Events
    from trainer.data.synthesize.imagenet import ImageSet, make_images

    which = ImageSet(num_train=num_images, num_classes=NUM_CLASSES, seed=0)
    make_images(folder, which, Events(as_json=False))


def _row(
    what: str, ours: str, peer: str, rates: dict[str, float], limit: float, *, at_least: float
) -> Row:
    share = rates[ours] / limit
    return Row(
        goal=f"D1: random crops of {NUM_IMAGES:,} JPEGs from {what}, 2 workers",
        ours=f"{ours} {rates[ours]:.0f} images/s ({share:.2f} of decoding whole pictures alone)",
        peer=f"{peer} {rates[peer]:.0f} images/s",
        ratio=rates[ours] / rates[peer],
        at_least=at_least,
    )


def _install_peers(project: Path, python: str) -> Path:
    """Give the folder of the other loaders, which use the torch of our runtime."""
    from jobs.images.runtimes import find_uv

    folder = project / ".trainyard" / "bench-loaders"
    if not (folder / "streaming").exists():
        locked = project / "tests" / "bench" / "loader_peers.txt"
        install = [find_uv(project), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*install, "--python", python, "--target", folder, "-r", locked], check=True)
    return folder
