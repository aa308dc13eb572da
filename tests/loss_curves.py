"""Records what the PyTorch programs compute under a fixed seed, to compare two versions of them bit by bit.

    python -m tests.loss_curves record FILE     # before a change, and after it
    python -m tests.loss_curves compare BEFORE AFTER

Each program trains on made data on one rank and on two; a record holds every step's loss, every
figure of an evaluation and the digests of the final weights. Two records are comparable only where
one machine made both: kernels of other processors round otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import needs
from tests.ports import free_port
from trainer.data.synthesize.coco import make_coco
from trainer.data.synthesize.digits import make_default_digits
from trainer.data.synthesize.stripes import INSECTS, make_pictures

REPO = Path(__file__).parents[1]
TIMEOUT_S = 400
PROGRAMS: dict[str, tuple[str, ...]] = {
    "mnist": ("mnist", "--data", "DIGITS", "--epochs", "2", "--batch-size", "101"),
    "mnist-bf16": ("mnist", "--data", "DIGITS", "--epochs", "1", "--precision", "bf16"),
    "hymenoptera-head": (
        *("hymenoptera", "--data", "INSECTS", "--weights", "none", "--batch-per-rank", "6"),
        *("--epochs", "3", "--image-size", "64"),
    ),
    "hymenoptera-all": (
        *("hymenoptera", "--data", "INSECTS", "--weights", "none", "--train", "all"),
        *("--batch-per-rank", "6", "--epochs", "2", "--image-size", "64"),
    ),
    "resnet50": (
        *("resnet50", "--data", "INSECTS", "--batch-per-rank", "5", "--image-size", "32"),
        *("--epochs", "2", "--warmup-epochs", "1", "--precision", "bf16"),
    ),
    "maskrcnn": (
        *("maskrcnn", "--data", "SHAPES", "--backbone", "resnet18", "--backbone-weights", "none"),
        *("--regions-per-image", "16", "--image-size", "64", "--max-steps", "6"),
        *("--warmup-steps", "2", "--no-evaluate"),
    ),
}


def make_data(folder: Path) -> dict[str, str]:
    """Make what the programs train on; gives the folder of each word that stands for one."""
    make_pictures(
        folder / "insects", num_classes=2, num_train=60, num_val=13, size=72, seed=2, names=INSECTS
    )
    make_coco(folder / "shapes", num_train=40, num_val=4, seed=1)
    digits = make_default_digits(num_train=900, num_test=100, seed=1)
    return {
        "DIGITS": str(digits),
        "INSECTS": str(folder / "insects"),
        "SHAPES": str(folder / "shapes"),
    }


def run(argv: Sequence[str], folder: Path, *, size: int) -> dict[str, Any]:
    """Train on so many ranks of DDP, alone without it; gives what the run wrote."""
    folder.mkdir()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    own = {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    own |= {"GLOO_SOCKET_IFNAME": "lo", "TRAINYARD_RUN_DIR": str(folder)}
    command = [str(needs.runtime("pytorch")), "-m", f"trainer.pytorch.{argv[0]}", *argv[1:]]
    command += ["--log-every", "1", *(("--strategy", "ddp") if size > 1 else ())]
    ranks = [
        subprocess.Popen(
            command,
            cwd=folder,
            env={
                **os.environ,
                **own,
                **(place | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}),
            },
            stdout=subprocess.DEVNULL,
        )
        for rank in range(size)
    ]
    codes = [rank.wait(TIMEOUT_S) for rank in ranks]
    assert codes == [0] * size, (argv, codes)
    (summary,) = folder.rglob("summary.json")
    (metrics,) = folder.rglob("metrics.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {
        "curve": [
            [line["step"], line["split"], line["name"], float(line["value"]).hex()]
            for line in lines
            if line["split"] != "train" or line["name"] == "loss"
        ],
        "weights_sha256": json.loads(summary.read_text())["weights_sha256"],
    }


def record() -> dict[str, Any]:
    """Train each program on one rank and on two; gives what they wrote by name and world size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = make_data(folder)
        found = {}
        for program, argv in PROGRAMS.items():
            given = [data.get(word, word) for word in argv]
            for size in (1, 2):
                found[f"{program}/{size}"] = run(given, folder / f"{program}-{size}", size=size)
                print(f"{program}/{size}: {len(found[f'{program}/{size}']['curve'])} figures")
        return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Give the first difference of each training that has one; figures that are new are none."""
    said = []
    for name, was in before.items():
        now = after[name]
        others = {(step, split, key): value for step, split, key, value in now["curve"]}
        odd = [line for line in was["curve"] if others.get(tuple(line[:3])) != line[3]]
        if odd:
            said.append(f"{name}: {odd[0]} before, {others.get(tuple(odd[0][:3]))} after")
        elif was["weights_sha256"] != now["weights_sha256"]:
            said.append(f"{name}: other weights at the end")
    return said


def main(argv: Sequence[str]) -> int:
    """Record, or compare two records; gives the exit code, 1 where they differ."""
    if argv[0] == "record":
        Path(argv[1]).write_text(json.dumps(record(), indent=1))
        return 0
    before, after = (json.loads(Path(path).read_text()) for path in argv[1:])
    said = compare(before, after)
    print("\n".join(said) or f"{len(before)} trainings are equal to the bit")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
