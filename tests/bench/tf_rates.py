"""ResNet-50 in TensorFlow and Keras on the CPU, against Horovod's benchmark and each other (P6)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import BATCH, PEERS
from tests.bench.table import Row

# Ten steps of warm-up and fifty that count.
NUM_STEPS = 60

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
    arguments = ["--data", "random", "--num-classes", "1000", "--precision", "bf16"]
    arguments += ["--batch-per-rank", str(BATCH), "--num-images", str(NUM_STEPS * BATCH)]
    arguments += ["--epochs", "1", "--strategy", "horovod"]
    with tempfile.TemporaryDirectory() as name:
        loop, fit = (
            Command(
                name=module,
                argv=[python, "-c", OURS, module, *arguments],
                env=env,
                cwd=Path(name),
            )
            for module in ("trainer.tf.resnet50", "trainer.tfkeras.resnet50")
        )
        peer = Command(
            name="Horovod's synthetic benchmark",
            argv=[python, str(PEERS / "synthetic_horovod_tf.py"), "--batch-size", str(BATCH)],
            env=env,
            cwd=Path(name),
        )
        rates = rates_in_turn([loop, fit, peer], rounds=1 if rounds < 5 else 3)
    return [
        Row(
            goal=f"ResNet-50 in TensorFlow, synthetic, batch {BATCH}, CPU",
            ours=f"{rates[loop.name]:.1f} images/s (bf16, fused batch norm)",
            peer=f"{peer.name} {rates[peer.name]:.1f} images/s (fp32, as it is)",
            ratio=rates[loop.name] / rates[peer.name],
            at_least=1.0,
        ),
        Row(
            goal=f"ResNet-50 with Keras's fit, synthetic, batch {BATCH}, CPU",
            ours=f"{rates[fit.name]:.1f} images/s",
            peer=f"{loop.name} {rates[loop.name]:.1f} images/s",
            ratio=rates[fit.name] / rates[loop.name],
            at_least=0.95,
        ),
    ]
