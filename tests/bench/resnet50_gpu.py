"""Times synthetic ResNet-50 on a GPU against Horovod's benchmark and timm's, in turn.

    python -m tests.bench.resnet50_gpu [--batch-sizes 256 512] [--rounds 3] [--compile]

Needs a Python with the pytorch image's packages and timm. Ours is the program itself on noise, as
`launch run` starts it. Of each program's batch sizes the fastest counts, of the rounds the median.
Without a GPU nothing is measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.resnet import OURS, PEERS
from tests.bench.table import Row, table_text

PACKAGES = ("torch", "torchvision", "safetensors", "timm")
PROJECT = Path(__file__).resolve().parents[2]
NUM_WARM_UP, NUM_STEPS = 10, 500
# MLPerf 4.0's closed division on one H200, with other data, precision and optimizer:
# mlcommons/training_results_v4.0, NVIDIA/results/h200_ngc24.04_mxnet/resnet.
MLPERF_H200 = 7947.0


def main() -> int:
    """Measure and print a table; 1 where there is no GPU, or something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--compile", action="store_true", help="ours by torch.compile; timm does both"
    )
    options = parser.parse_args()
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if "torch" not in missing:
        import torch

        if not torch.cuda.is_available():
            print("error: no GPU here, and nothing to measure without one")
            return 1
    if missing:
        print(f"error: not installed here: {', '.join(missing)} (hint: pip install them)")
        return 1
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), options.batch_sizes, options.rounds, is_compiled=options.compile)
    notes = (f"GPU: {torch.cuda.get_device_name()}. PyTorch {torch.__version__}.",)
    print(table_text("ResNet-50 on a GPU", "python -m tests.bench.resnet50_gpu", rows, notes))
    return 0


def measure(folder: Path, batch_sizes: list[int], rounds: int, *, is_compiled: bool) -> list[Row]:
    """Run all programs in turn and give the goals."""
    has_horovod = importlib.util.find_spec("horovod") is not None
    plain = [] if has_horovod else ["--plain"]
    ours = [our_command(folder, size, is_compiled=is_compiled) for size in batch_sizes]
    horovod = [
        peer(f"horovod {size}", "synthetic_horovod.py", size, *plain)
        for size in (32, *batch_sizes)  # 32 is what it is shipped with
    ]
    timm = [
        peer(f"timm {size} {' '.join(more)}".strip(), "timm_train.py", size, *more)
        for size in batch_sizes
        for more in ((), ("--compile",))
    ]
    rates = rates_in_turn([*ours, *horovod, *timm], rounds=rounds)
    best = {
        title: max((rates[each.name], each.name) for each in commands)
        for title, commands in (("ours", ours), ("horovod", horovod), ("timm", timm))
    }
    rate, name = best["ours"]
    shown = f"{rate:,.0f} images/s ({name})"
    suffix = "" if has_horovod else ", without Horovod, which is not installed"
    return [
        Row(
            goal=f"ResNet-50 synthetic, against {title}",
            ours=shown,
            peer=text,
            ratio=rate / peer_rate,
            at_least=least,
        )
        for title, text, peer_rate, least in (
            (
                "Horovod's benchmark as shipped",
                f"{rates['horovod 32']:,.0f} images/s (32{suffix})",
                rates["horovod 32"],
                2.5,
            ),
            (
                "Horovod's benchmark at its best batch",
                f"{best['horovod'][0]:,.0f} images/s ({best['horovod'][1]}{suffix})",
                best["horovod"][0],
                2.5,
            ),
            (
                "timm at its best settings",
                f"{best['timm'][0]:,.0f} images/s ({best['timm'][1]})",
                best["timm"][0],
                1.0,
            ),
            (
                "MLPerf 4.0 on an H200 (published, not run here)",
                f"{MLPERF_H200:,.0f} images/s",
                MLPERF_H200,
                0.6,
            ),
        )
    ]


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


if __name__ == "__main__":
    sys.exit(main())
