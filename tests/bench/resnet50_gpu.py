"""Times synthetic ResNet-50 on a GPU against Horovod's benchmark and timm's, in turn.

Ours is the program itself on noise, as `launch run` starts it. Of each program's batch sizes the
fastest counts, of the rounds the median. A part of `make gpu`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import OURS, PEERS
from tests.bench.table import Row

PROJECT = Path(__file__).resolve().parents[2]
NUM_WARM_UP, NUM_STEPS = 10, 50
# Images/s of one GPU in MLPerf's closed division, with other data, precision and optimizer:
# mlcommons/training_results_v4.0, NVIDIA/results (H200, H100), and _v3.0, Dell/results (A100).
MLPERF = {"H200": 7947.0, "H100": 7159.0, "A100": 3579.0}


def measure(folder: Path, gpu: str, *, batch: int, rounds: int) -> list[Row]:
    """Run all programs in turn and give the goals; `gpu` is the device's name."""
    has_nccl = has_horovod_with_nccl()
    horovods = ("--rounds", str(NUM_STEPS // 10), *(() if has_nccl else ("--plain",)))
    ours = [our_command(folder, batch, is_compiled=each) for each in (False, True)]
    horovod = [
        peer(f"horovod {size}", "synthetic_horovod.py", size, *horovods)
        for size in (32, batch)  # 32 is what it is shipped with
    ]
    timm = [
        peer(f"timm {batch}{suffix}", "timm_train.py", batch, "--steps", str(NUM_STEPS), *more)
        for suffix, more in (("", ()), (" compiled", ("--compile",)))
    ]
    rates = rates_in_turn([*ours, *horovod, *timm], rounds=rounds)
    rate, name = _best(rates, ours)
    without = "" if has_nccl else ", without Horovod, which has no NCCL here"
    peers = [
        ("Horovod's benchmark as shipped", _best(rates, horovod[:1]), without, 2.5),
        ("Horovod's benchmark at its best batch", _best(rates, horovod), without, 2.5),
        ("timm at its best settings", _best(rates, timm), "", 1.0),
    ]
    found = next((each for each in MLPERF if each in gpu), None)
    if found is not None:
        peers.append((f"MLPerf on {found}, published", (MLPERF[found], "not run here"), "", 0.6))
    return [
        Row(
            goal=f"ResNet-50 synthetic, against {title}",
            ours=f"{rate:,.0f} images/s ({name})",
            peer=f"{peer_rate:,.0f} images/s ({peer_name}{suffix})",
            ratio=rate / peer_rate,
            at_least=least,
        )
        for title, (peer_rate, peer_name), suffix, least in peers
    ]


def _best(rates: dict[str, float], commands: Sequence[Command]) -> tuple[float, str]:
    return max((rates[each.name], each.name) for each in commands)


def has_horovod_with_nccl() -> bool:
    """Whether this Python's Horovod adds up on GPUs; one without would go by way of the host."""
    try:
        import horovod.torch as hvd
    except ImportError:
        return False
    return bool(hvd.nccl_built())


def our_command(folder: Path, size: int, *, is_compiled: bool) -> Command:
    """The program on noise; its first ten steps do not count."""
    arguments = ["--data", "random", "--num-classes", "1000", "--precision", "bf16"]
    arguments += ["--batch-per-rank", str(size), "--epochs", "1", "--device", "cuda"]
    arguments += ["--num-images", str((NUM_WARM_UP + NUM_STEPS) * size), "--log-every", "100"]
    arguments += ["--compile"] if is_compiled else []
    return Command(
        name=f"ours {size}{' compiled' if is_compiled else ''}",
        argv=[sys.executable, "-c", OURS, *arguments],
        env={"PYTHONPATH": str(PROJECT)},
        cwd=folder,
    )


def peer(name: str, program: str, size: int, *arguments: str) -> Command:
    """A peer's program."""
    argv = [sys.executable, str(PEERS / program), "--batch-size", str(size), *arguments]
    return Command(name=name, argv=argv)
