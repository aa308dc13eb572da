"""What the fault campaigns of PyTorch share: two programs, runs of them, and what a run left behind."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.fakes.torch_ranks import Gang, Strategy, Zygote, start_gang
from tests.seeds import dice
from trainer.data.pictures.idx import write_idx

WATCHED = "tests.faults.programs.torch_watched"
NUM_RANKS = 2
Rows = dict[tuple[int, int], list[int]]  # by step and rank


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program and the arguments that make it last a second or two."""

    name: str
    module: str
    arguments: tuple[str, ...]
    num_steps: int
    steps_per_epoch: int
    checkpoint_every: int

    def start(
        self,
        zygote: Zygote,
        folder: Path,
        strategy: Strategy,
        *more: str,
        attempt: int = 0,
        size: int = NUM_RANKS,
        env: dict[str, str] | None = None,
    ) -> Gang:
        """Start an attempt in a run directory, which holds checkpoints of those before."""
        every = ("--checkpoint-every", str(self.checkpoint_every))
        folder.mkdir(parents=True, exist_ok=True)
        watched = {"WATCH_INDEX": str(folder / "index"), "WATCH_ATTEMPT": str(attempt)}
        return start_gang(
            zygote,
            [WATCHED, self.module, *self.arguments, *every, *more],
            strategy=strategy,
            size=size,
            folder=folder,
            env={**watched, **(env or {})},
        )


def tiny(num_epochs: int = 6, *, checkpoint_every: int = 7) -> Program:
    """A small net with batch statistics and dropout."""
    return Program(
        name="batch norm",
        module="tests.faults.programs.torch_tiny",
        arguments=("--epochs", str(num_epochs)),
        num_steps=25 * num_epochs,
        steps_per_epoch=25,
        checkpoint_every=checkpoint_every,
    )


def mnist(data: Path) -> Program:
    """trainer.pytorch.mnist on a few pictures."""
    return Program(
        name="mnist",
        module="trainer.pytorch.mnist",
        arguments=("--data", str(data), "--batch-size", "6", "--epochs", "2"),
        num_steps=20,
        steps_per_epoch=10,
        checkpoint_every=4,
    )


def make_pictures(folder: Path, *, num_train: int = 57, num_test: int = 20) -> Path:
    """Write pictures of noise in MNIST's format; the last batch of six is incomplete."""
    folder.mkdir()
    generator = dice(1)
    for prefix, count in (("train", num_train), ("t10k", num_test)):
        pixels, labels = generator.randbytes(count * 784), bytes(i % 10 for i in range(count))
        write_idx(folder / f"{prefix}-images-idx3-ubyte", (count, 28, 28), pixels)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)
    return folder


def checkpoints(folder: Path) -> dict[int, dict[str, Any]]:
    """Manifests of a run's whole checkpoints by step."""
    found: dict[int, dict[str, Any]] = {}
    for each in folder.glob("checkpoints/*/manifest.json"):
        # One that is being written or taken away is not whole.
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            manifest = json.loads(each.read_text())
            found[manifest["step"]] = manifest
    return found


def state(manifest: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: the digest of every file (weights, optimizer, RNG, scaler), the position."""
    return {"files": manifest["files"], "position": manifest["about"]["position"]}


def newest(folder: Path) -> dict[str, Any]:
    """The state of a run's newest checkpoint."""
    found = checkpoints(folder)
    return state(found[max(found)])


@dataclass(frozen=True, kw_only=True)
class Index:
    """Which rank was fed which samples at which step, less what came to nothing."""

    rows: Rows
    most_lost: int
    errors: list[str]


def read_index(folder: Path) -> Index:
    """Read what all attempts did, each less the steps that were not in the next one's checkpoint."""
    attempts: dict[int, Rows] = {}
    errors: list[str] = []
    for line in (folder / "index").read_text().splitlines(keepends=True):
        if not line.endswith("\n"):  # being written
            continue
        attempt, rank, step, *samples = map(int, line.split())
        rows = attempts.setdefault(attempt, {})
        if (step, rank) in rows:
            errors.append(f"attempt {attempt} took step {step} twice on rank {rank}")
        rows[step, rank] = samples
    numbers = sorted(attempts)
    begins = {number: min(step for step, _ in attempts[number]) for number in numbers}
    kept: Rows = {}
    most_lost = 0
    for number, following in zip_longest(numbers, numbers[1:]):
        rows = attempts[number]
        last = max(step for step, _ in rows)
        if following is not None:
            most_lost = max(most_lost, last - begins[following] + 1)
            last = begins[following] - 1
        kept |= {(step, rank): each for (step, rank), each in rows.items() if step <= last}
    return Index(rows=kept, most_lost=most_lost, errors=errors)


def index_errors(index: Index, reference: Index, steps_per_epoch: int) -> list[str]:
    """Say what is wrong: a step missing, other samples than uninterrupted, a sample not once."""
    errors = list(index.errors)
    if index.rows != reference.rows:
        others = {
            key
            for key in index.rows.keys() | reference.rows.keys()
            if index.rows.get(key) != reference.rows.get(key)
        }
        errors.append(f"fed otherwise at (step, rank) {sorted(others)[:5]}")
    epochs: dict[int, Counter[int]] = {}
    for (step, _), samples in index.rows.items():
        epochs.setdefault((step - 1) // steps_per_epoch, Counter()).update(samples)
    for epoch, counts in sorted(epochs.items()):
        wrong = [sample for sample, count in counts.items() if count != 1]
        if wrong or len(counts) != max(counts) + 1:
            errors.append(f"epoch {epoch + 1} did not see each sample once: {wrong[:5]}")
    return errors
