"""PyTorch's ranks on the CPU: MNIST against PyTorch's examples, two ranks against two processes."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.bench.gang import alone_side_by_side, gang_line
from tests.bench.pairs import Command
from tests.bench.rates import rates_in_turn
from tests.bench.table import Row
from tests.bench.workspace import cpu_precision, runtime_bin
from tests.fakes.torch_ranks import Strategy
from trainer.data.pictures.idx import write_idx

PROGRAMS = Path(__file__).parent / "ranks"
NUM_TRAIN, NUM_TEST, BATCH_PER_RANK = 10_000, 1_000, 64


def mnist_rows(project: Path, rounds: int) -> list[Row]:
    """The MNIST program on two ranks of DDP (P7): images/s of the epochs, warm-up left out."""
    tools = runtime_bin(project)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = make_digits(folder / "pictures")
        torchrun = [str(tools / "torchrun"), "--standalone", "--nproc-per-node", "2"]
        env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(project)}
        whole = ["--data", str(data), "--epochs", "2"]
        ours = Command(
            name="trainer.pytorch.mnist",
            argv=[
                *(*torchrun, str(PROGRAMS / "rate_of.py"), "trainer.pytorch.mnist", *whole),
                *("--strategy", "ddp", "--batch-size", str(2 * BATCH_PER_RANK)),
                *("--precision", cpu_precision()),
            ],
            env=env,
            cwd=folder,
        )
        peer = Command(
            name="PyTorch's examples",
            argv=[
                *(*torchrun, str(PROGRAMS / "mnist_examples.py"), *whole),
                *("--batch-size", str(BATCH_PER_RANK)),
            ],
            env=env,
            cwd=folder,
        )
        rates = rates_in_turn([ours, peer], rounds=min(rounds, 3))
    return [
        Row(
            goal="MNIST, 2 ranks, DDP, CPU, batch 64 a rank",
            ours=f"{rates[ours.name]:,.0f} images/s ({cpu_precision()})",
            peer=f"{peer.name} {rates[peer.name]:,.0f} images/s",
            ratio=rates[ours.name] / rates[peer.name],
            at_least=3.0,
        )
    ]


def tax_rows(project: Path, rounds: int) -> list[Row]:
    """What Horovod (P3), DDP and our agreement add to a step of one rank."""
    python = str(runtime_bin(project) / "python")
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(project)}
    titles = {
        "horovod": "Step under Horovod, 1 rank, MNIST's net, batch 64",
        "agreement": "Step with the ranks' agreement, 1 rank, MNIST's net, batch 64",
    }
    commands = [
        Command(name=what, argv=[python, str(PROGRAMS / "tax_torch.py"), "--with", what], env=env)
        for what in titles
    ]
    ratios = rates_in_turn(commands, rounds=min(rounds, 3))
    return [
        Row(
            goal=goal,
            ours=f"{ratios[what]:.3f}",
            peer="plain step 1.000",
            ratio=ratios[what],
            at_most=1.02,
        )
        for what, goal in titles.items()
    ]


def scaling_rows(project: Path, rounds: int) -> list[Row]:
    """Two ranks with a core each against two processes that do not talk (S1, S2)."""
    return [
        *_scaling(project, rounds, net="resnet50", batch=8, steps=5, at_least=0.9),
        *_scaling(project, rounds, net="mnist", batch=64, steps=60, at_least=0.9),
        *_scaling(project, rounds, net="mnist", batch=128, steps=30, at_least=0.9),
    ]


def _scaling(
    project: Path, rounds: int, *, net: str, batch: int, steps: int, at_least: float
) -> list[Row]:
    python = runtime_bin(project) / "python"
    argv = [str(PROGRAMS / "steps_torch.py"), "--net", net, "--batch", str(batch)]
    argv += ["--steps", str(steps)]
    rates: dict[Strategy, list[float]] = {"single": [], "ddp": [], "horovod": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(min(rounds, 2 if net == "resnet50" else 3)):
            for strategy, found in rates.items():
                if strategy == "single":
                    rate = alone_side_by_side(python, argv, project=project, cwd=Path(folder))
                else:
                    rate = float(
                        gang_line(
                            python, argv, strategy=strategy, project=project, cwd=Path(folder)
                        )
                    )
                found.append(rate)
                print(
                    f"  round {number + 1} {net}, batch {batch}, {strategy}: {rate:.1f}/s",
                    file=sys.stderr,
                )
    alone, ddp, horovod = (median(found) for found in rates.values())
    goal = f"{net}, batch {batch} a rank, 2 ranks, a core each"
    ours = f"Horovod {horovod:,.1f} images/s"
    return [
        Row(
            goal=f"Efficiency: {goal}",
            ours=ours,
            peer=f"two processes that do not talk {2 * alone:,.1f} images/s",
            ratio=horovod / (2 * alone),
            at_least=at_least,
        ),
        Row(
            goal=f"Horovod against DDP: {goal}",
            ours=ours,
            peer=f"DDP {ddp:,.1f} images/s",
            ratio=horovod / ddp,
            at_least=1.0,
        ),
    ]


def make_digits(folder: Path) -> Path:
    """Make IDX files of noise, as many as the benchmarks train on."""
    folder.mkdir()
    generator = random.Random(1)
    for prefix, count in (("train", NUM_TRAIN), ("t10k", NUM_TEST)):
        labels = bytes(number % 10 for number in range(count))
        pixels = generator.randbytes(count * 784)
        write_idx(folder / f"{prefix}-images-idx3-ubyte", (count, 28, 28), pixels)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)
    return folder
