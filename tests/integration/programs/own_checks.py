"""Trains small networks by own.main's task, alone and on the CPU, and prints what came of them as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.integration.programs.one_rank import alone
from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.common.position import Position
from trainer.pytorch import own
from trainer.pytorch.guard import Guard
from trainer.pytorch.layout import to_device
from trainer.pytorch.loop import run
from trainer.pytorch.task import Part
from trainer.pytorch.whole_samples import Pair, Samples

NUM_TRAIN, NUM_VAL = 48, 10
SIDE = 4
# Of which a mean of gradients that is none would make other steps; Adam's would be the same.
DESCENT = ("--optimizer", "sgd", "--lr", "0.1")


class Cubes:
    """Samples of one feature, N x 1 x 4 x 4 x 4, and their mean."""

    def __init__(self, number: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._all = torch.randn(number, 1, SIDE, SIDE, SIDE, generator=generator)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        cube = self._all[index]
        return cube, cube.mean(dim=(1, 2, 3))


def data(seed: int) -> tuple[Samples, Samples]:
    return Cubes(NUM_TRAIN, seed), Cubes(NUM_VAL, seed + 1)


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE**3, 1))


def close(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return {"close": -(outputs - targets).abs()[:, 0]}


def described(**given: Any) -> own.Own:
    """Describe a training of cubes, but for what is given."""
    usual: dict[str, Any] = {
        "name": "cubes",
        "build": flat,
        "data": data,
        "loss": nn.functional.mse_loss,
        "figures": close,
        "main": "close",
    }
    return own.Own(**usual | given)


def trained(
    own_: own.Own, *arguments: str, kind: type[own.OwnTask] = own.OwnTask
) -> Mapping[str, Any]:
    """Train in the working folder; gives its summary and its losses, or what is said of it."""
    given = ("--batch-size", "8", "--epochs", "1", "--device", "cpu", "--log-every", "1")
    given += ("--checkpoint-dir", "checkpoints")
    options = parse_options(own.Options, [*given, *arguments])
    ranks = alone()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            run(kind(options, ranks, own_))
    except TrainingError as error:
        return {"said": str(error)}
    lines = [json.loads(line) for line in ranks.run_dir.metrics.read_text().splitlines()]
    losses = [line["value"] for line in lines if (line["split"], line["name"]) == ("train", "loss")]
    summary = json.loads((ranks.run_dir.outputs / "summary.json").read_text())
    goals = {line["name"]: line["goal"] for line in lines if "goal" in line}
    return {"summary": summary, "losses": losses, "goals": goals}


def clear() -> None:
    """Remove what a training has left."""
    shutil.rmtree("outputs", ignore_errors=True)
    shutil.rmtree("checkpoints", ignore_errors=True)


def convolved() -> object:
    """How the weights of two and of three dimensions lie after a training of both."""
    layers = nn.Sequential(
        nn.Conv3d(1, 2, 3, padding=1),
        nn.Flatten(1, 2),
        nn.Conv2d(2 * SIDE, 2, 3),
        nn.Flatten(),
        nn.LazyLinear(1),
    )
    layers(torch.zeros(1, 1, SIDE, SIDE, SIDE))
    found = trained(described(build=lambda: layers))
    last = layers[2].weight.is_contiguous(memory_format=torch.channels_last)
    grey = nn.Conv2d(1, 4, 3)
    to_device(grey, torch.device("cpu"))
    outputs = grey(torch.zeros(2, 1, 8, 8))
    are_last = outputs.is_contiguous(memory_format=torch.channels_last)
    return {
        "grey pictures become channels last": are_last and not outputs.is_contiguous(),
        "steps": found["summary"]["steps"] if "summary" in found else found["said"],
        "2d is channels last": last,
        "3d is contiguous": layers[0].weight.is_contiguous(),
    }


class Counting(nn.Module):
    """A network that counts how often it was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.num_steps = flat(), 0

    def forward(self, cubes: Tensor) -> Tensor:
        """Compute the outputs."""
        self.num_steps += self.training
        return self.layers(cubes)


def of_classes(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return {"close": close(outputs, targets)["close"].mean().repeat(2)}


def with_log(outputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, float]]:
    return nn.functional.mse_loss(outputs, targets), {}


def figures() -> object:
    """What is said of wrong figures, and after how many steps."""

    def undefined(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return close(outputs, targets) | {"iou": (outputs - outputs)[:, 0] / 0}

    def as_loss(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return close(outputs, targets) | {"loss": outputs[:, 0]}

    def mean(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {name: each.mean() for name, each in close(outputs, targets).items()}

    def number(outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return {name: float(each) for name, each in mean(outputs, targets).items()}

    def broken(outputs: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(outputs, targets)
        return loss if torch.is_grad_enabled() else loss / 0

    def by_number(outputs: Tensor, targets: Tensor) -> dict[Any, Tensor]:
        return close(outputs, targets) | {7: outputs[:, 0]}

    def as_step(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return close(outputs, targets) | {"step": outputs[:, 0]}

    def row(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets).reshape(1)

    wrong: dict[str, dict[str, Any]] = {
        "main": {"main": "closs"},
        "no main": {"figures": lambda *_: {}},
        "named loss": {"figures": as_loss},
        "named step": {"figures": as_step},
        "named 7": {"figures": by_number},
        "a loss of one row": {"loss": row},
        "a loss and more": {"loss": with_log},
        "no loss": {"loss": lambda *_: None},
        "no names": {"figures": lambda outputs, _: outputs[:, 0]},
        "of two classes": {"figures": of_classes},
        "a loss that learns": {"loss": nn.Sequential(nn.Linear(1, 1), nn.MSELoss())},
        "a mean": {"figures": mean},
        "a number": {"figures": number},
        "undefined": {"figures": undefined},
        "diverged": {"loss": broken},
        "main is the loss": {"main": "loss"},
    }
    found: dict[str, object] = {}
    for name, given in wrong.items():
        network = Counting()
        result = trained(described(**given, build=lambda network=network: network))
        found[name] = [network.num_steps, result.get("said") or result["goals"]]
        clear()
    return found


def accumulated() -> object:
    """Losses of steps of 16 samples, at once and in halves, and what is resumed in another way."""
    found: dict[str, object] = {}
    for name, given in {
        "at once": ("--batch-size", "16"),
        "in halves": ("--batch-size", "8", "--accumulate", "2"),
        "resumed by eighths": ("--batch-size", "2", "--accumulate", "8", "--epochs", "2"),
        "resumed by others": ("--batch-size", "8", "--epochs", "3"),
    }.items():
        if not name.startswith("resumed"):
            clear()
        torch.manual_seed(1)
        found[name] = trained(described(), *given, *DESCENT)
    return found


def averaged() -> object:
    """How far the model that is kept is from the average by hand, and the losses of both."""
    network, seen = flat(), list[Tensor]()

    def vector() -> Tensor:
        return nn.utils.parameters_to_vector(network.parameters()).detach().clone()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            seen.append(vector())
        return nn.functional.mse_loss(outputs, targets)

    result = trained(described(build=lambda: network, loss=loss), *DESCENT, "--ema", "0.5")
    first, *others = [*seen[1:], vector()]
    average = first
    for each in others:
        average = (average + each) / 2
    kept = flat()
    kept.load_state_dict(load_file("outputs/model/cubes.safetensors"))
    val = data(1)[1]
    cubes, means = map(torch.stack, zip(*(val[index] for index in range(NUM_VAL)), strict=True))
    losses: dict[str, float] = {}
    for name, weights in (("average", average), ("last", others[-1])):
        nn.utils.vector_to_parameters(weights, network.parameters())
        losses[name] = nn.functional.mse_loss(network(cubes), means).item()
    furthest = (nn.utils.parameters_to_vector(kept.parameters()) - average).abs().max().item()
    return {
        "num_steps": len(seen),
        "furthest": furthest,
        "by hand": losses,
        "evaluated": result["summary"]["val_loss"],
    }


class Indexed(nn.Module):
    """A network with an index, a mask that turns, and a parameter that is seen as complex numbers."""

    index: Tensor
    is_new: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = flat()
        self.register_buffer("index", torch.arange(169))
        self.register_buffer("is_new", torch.tensor(data=True))
        self.filter = nn.Parameter(torch.ones(1, 3, 1, 2))

    def forward(self, cubes: Tensor) -> Tensor:
        """Compute the outputs."""
        self.is_new.fill_(value=False)
        return self.layers(cubes) * torch.view_as_complex(self.filter).abs().mean()


def odd_buffers() -> object:
    """What a moving average makes of buffers that have no mean."""
    result = trained(described(build=Indexed), "--ema", "0.9")
    kept = load_file("outputs/model/cubes.safetensors")
    return {
        "index": kept["index"].tolist() == list(range(169)),
        "is_new": kept["is_new"].item(),
        "steps": result["summary"]["steps"],
    }


class Odd(own.OwnTask):
    """A task that says other things than own.main's."""

    said: ClassVar[int] = 6
    made: ClassVar[list[torch.optim.Optimizer]] = []

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, as the task says."""
        return self.said

    def optimizer(
        self, part: nn.Module, scaler: torch.amp.GradScaler | None
    ) -> torch.optim.Optimizer:
        """Make one whose weight learns at a tenth of the bias's rate."""
        weight, bias = part.parameters()
        groups = [{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": 1.0}]
        self.made.append(torch.optim.SGD(groups))
        return self.made[-1]

    def rate(self, position: Position) -> float:
        """Give the rate of every step."""
        return 0.25


def tasks() -> object:
    """What comes of a task whose epochs have another number of batches than it says, and of its groups' rates."""
    found: dict[str, object] = {}
    for name, number in {"none": 0, "more": 5, "fewer": 7, "right": 6}.items():
        Odd.said = number
        result = trained(described(), kind=Odd)
        found[name] = result.get("said") or result["summary"]["steps"]
        clear()
    return {**found, "rates": [group["lr"] for group in Odd.made[-1].param_groups]}


class UsedUp(own.OwnTask):
    """A task whose batches are an iterator that the first epoch uses up."""

    def prepare(self) -> None:
        """Make it."""
        super().prepare()
        self._all = super().batches(Position())

    def batches(self, position: Position) -> Iterator[Part[Pair]]:
        """Give it, in each epoch."""
        return self._all


class Evaluated(own.OwnTask):
    """A task with an evaluation of its own, which sets no mode."""

    modes: ClassVar[list[bool]] = []
    figure: ClassVar[float] = 1.0

    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give a figure."""
        self.modes.append(part.training)
        guard.settle()
        return {"close": self.figure}


def loops() -> object:
    """What comes of a task without batches in its second epoch, and of evaluations of its own."""
    two = ("--epochs", "2")
    found: dict[str, object] = {"used up": trained(described(), *two, kind=UsedUp).get("said")}
    clear()
    found["steps"] = trained(described(), *two, kind=Evaluated)["summary"]["steps"]
    clear()
    Evaluated.figure = float("nan")
    found["not finite"] = trained(described(), *two, kind=Evaluated).get("said")
    clear()
    least = own.Own(name="least", build=flat, data=data, loss=nn.functional.mse_loss)
    found["least"] = trained(least)["goals"]
    return {**found, "modes": Evaluated.modes}


CHECKS: Sequence[Callable[[], object]] = (
    *(convolved, figures, accumulated, averaged, odd_buffers, tasks, loops),
)


def main(_argv: Sequence[str]) -> None:
    """Print what each found, each in a folder of its own."""
    found: dict[str, object] = {}
    for each in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found[each.__name__] = each()
            os.chdir(Path(folder).parent)
    print(json.dumps(found))
