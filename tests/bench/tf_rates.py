"""ResNet-50 in TensorFlow and Keras on the CPU, against Horovod's benchmark and each other (P6)."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from tests.bench.gang import gang_line
from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import BATCH, PEERS
from tests.bench.table import Row
from tests.bench.workspace import cpu_precision

# Ten steps of warm-up and twenty that count.
NUM_STEPS = 30
# Of `fit` and the loop in turn: small pictures, so that what `fit` adds to a step weighs more.
STEPS_A_TURN, SIDE = 4, 64
TURNS = Path(__file__).parent / "ranks" / "fit_and_loop.py"

# Runs a program as a person would, and prints the rate that its summary gives.
OURS = """
import importlib, json, sys
from pathlib import Path
assert importlib.import_module(sys.argv[1]).main(sys.argv[2:]) == 0
print(json.loads(Path("outputs/summary.json").read_text())["images_per_s"])
"""


def tensorflow_rows(project: Path, rounds: int) -> list[Row]:
    """Synthetic ResNet-50 at batch 8: one process of Horovod on all cores, noise instead of data."""
    from jobs.images.runtimes import runtime_python

    python = str(runtime_python("tensorflow", project))
    env = {"OMP_NUM_THREADS": str(os.cpu_count()), "PYTHONPATH": str(project)}
    arguments = ["--data", "random", "--num-classes", "1000", "--precision", cpu_precision()]
    arguments += ["--batch-per-rank", str(BATCH), "--num-images", str(NUM_STEPS * BATCH)]
    arguments += ["--epochs", "1", "--strategy", "horovod"]
    with tempfile.TemporaryDirectory() as name:
        loop = Command(
            name="trainer.tf.resnet50",
            argv=[python, "-c", OURS, "trainer.tf.resnet50", *arguments],
            env=env,
            cwd=Path(name),
        )
        peer = Command(
            name="Horovod's synthetic benchmark",
            argv=[python, str(PEERS / "synthetic_horovod_tf.py"), "--batch-size", str(BATCH)],
            env=env,
            cwd=Path(name),
        )
        rates = rates_in_turn([loop, peer], rounds=1 if rounds < 5 else 3)
    return [
        Row(
            goal=f"ResNet-50 in TensorFlow, synthetic, batch {BATCH}, CPU",
            ours=f"{rates[loop.name]:.1f} images/s ({cpu_precision()}, fused batch norm)",
            peer=f"{peer.name} {rates[peer.name]:.1f} images/s (fp32, as it is)",
            ratio=rates[loop.name] / rates[peer.name],
            at_least=1.0,
        ),
        *(fit_row(project, num_ranks=size, num_pairs=max(2, rounds)) for size in (1, 2)),
    ]


def fit_row(project: Path, *, num_ranks: int, num_pairs: int) -> Row:
    """Keras's `fit` against our loop, in turn in one process a rank, each rank on a core of its own."""
    from jobs.images.runtimes import runtime_python

    arguments = ["--data", "random", "--num-classes", "1000", "--image-size", str(SIDE)]
    arguments += ["--batch-per-rank", str(BATCH)]
    arguments += ["--num-images", str(STEPS_A_TURN * BATCH * num_ranks)]
    with tempfile.TemporaryDirectory() as name:
        said = gang_line(
            runtime_python("tensorflow", project),
            [str(TURNS), str(num_pairs), *arguments],
            strategy="horovod",
            project=project,
            cwd=Path(name),
            size=num_ranks,
            timeout_s=1800,
        )
    ratios = json.loads(said)
    return Row(
        goal=f"ResNet-50 with Keras's fit, {num_ranks} of Horovod, batch {BATCH}, {SIDE} px, CPU",
        ours=f"{ratios['wall']:.2f} of the loop's rate by wall clock",
        peer=f"trainer.tf.resnet50; {ratios['cpu']:.2f} by CPU time",
        ratio=ratios["wall"],
        at_least=0.95,
    )
