"""ResNet-50 and transfer learning on the CPU, against Horovod's benchmark and PyTorch's tutorial."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.bench.pairs import Command, median_wall_s, time_in_turn
from tests.bench.rates import rates_in_turn
from tests.bench.table import Row
from tests.bench.workspace import cpu_precision, runtime_bin

PEERS = Path(__file__).parent / "ranks"
BATCH = 8
EPOCHS = 25
# A tutorial's epoch is over the data set: few pictures, of the size that photos have there.
NUM_TRAIN, PICTURE_SIZE = 60, 500

# Runs the program as a person would, and prints the rate that its summary gives.
OURS = """
import json, sys
from pathlib import Path
from trainer.pytorch import resnet50
assert resnet50.main(sys.argv[1:]) == 0
print(json.loads(Path("outputs/summary.json").read_text())["images_per_s"])
"""


def resnet_rows(project: Path, rounds: int) -> list[Row]:
    """Synthetic ResNet-50 at batch 8 (P5): one process on all cores, noise instead of data."""
    python = str(runtime_bin(project) / "python")
    threads = {"OMP_NUM_THREADS": str(os.cpu_count())}
    with tempfile.TemporaryDirectory() as folder:
        # Ten steps of warm-up, as the peer has, and ten that count.
        arguments = ["--data", "random", "--num-classes", "1000", "--precision", cpu_precision()]
        arguments += ["--batch-per-rank", str(BATCH), "--num-images", str(20 * BATCH)]
        ours = Command(
            name="trainer.pytorch.resnet50",
            argv=[python, "-c", OURS, *arguments, "--epochs", "1"],
            env={**threads, "PYTHONPATH": str(project)},
            cwd=Path(folder),
        )
        peer = Command(
            name="Horovod's synthetic benchmark",
            argv=[
                *(python, str(PEERS / "synthetic_horovod.py"), "--batch-size", str(BATCH)),
                *("--rounds", "1"),
            ],
            env=threads,
            cwd=Path(folder),
        )
        rates = rates_in_turn([ours, peer], rounds=min(rounds, 3))
    return [
        Row(
            goal=f"ResNet-50, synthetic, batch {BATCH}, CPU",
            ours=f"{rates[ours.name]:.1f} images/s ({cpu_precision()}, channels last)",
            peer=f"{peer.name} {rates[peer.name]:.1f} images/s",
            ratio=rates[ours.name] / rates[peer.name],
            at_least=1.5,
        )
    ]


def transfer_rows(project: Path, rounds: int) -> list[Row]:
    """Transfer learning with a frozen backbone (P8): wall time of the whole programs."""
    python = str(runtime_bin(project) / "python")
    threads = {"OMP_NUM_THREADS": str(os.cpu_count()), "PYTHONPATH": str(project)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = str(folder / "insects")
        made = ["--train", str(NUM_TRAIN), "--val", str(NUM_TRAIN // 2), "--insects"]
        maker = [python, "-m", "trainer.data.synthesize.stripes", "--to", data, *made]
        subprocess.run(
            [*maker, "--size", str(PICTURE_SIZE)], check=True, env={**os.environ, **threads}
        )
        shared = ["--data", data, "--epochs", str(EPOCHS)]
        commands = [
            Command(
                name="trainer.pytorch.hymenoptera",
                argv=[python, "-m", "trainer.pytorch.hymenoptera", *shared, "--weights", "none"],
                env=threads,
                cwd=folder,
            ),
            Command(
                name="the tutorial's loop",
                argv=[python, str(PEERS / "tutorial_transfer.py"), *shared],
                env=threads,
                cwd=folder,
            ),
        ]
        timings = time_in_turn(commands, rounds=min(rounds, 2), warm_up=0)
    ours_s, peer_s = (median_wall_s(timings[command.name]) for command in commands)
    return [
        Row(
            goal=f"Transfer learning, frozen ResNet-18, {EPOCHS} epochs, CPU",
            ours=f"{ours_s:.1f} s (no augmentation)",
            peer=f"{commands[1].name} {peer_s:.1f} s",
            ratio=ours_s / peer_s,
            at_most=0.2,
        )
    ]
