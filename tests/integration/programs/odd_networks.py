"""Trains networks that draw, that no checkpoint holds, or of other samples, alone on the CPU, and prints what came of them as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tests.integration.programs.own_checks import (
    SIDE,
    Counting,
    clear,
    described,
    trained,
)
from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.common.preemption import Notice
from trainer.common.program import RanksOf
from trainer.common.rundir import RunDir
from trainer.common.world import World
from trainer.pytorch import classifier, own
from trainer.pytorch.loop import run
from trainer.pytorch.strategy import Ranks, make_strategy
from trainer.pytorch.task import Task

STEPS = ("--batch-size", "8", "--epochs", "1", "--device", "cpu")
PICTURES = (
    *("--data", "random", "--image-size", "32", "--num-images", "8", "--num-classes", "2"),
    *("--batch-per-rank", "4", "--epochs", "1", "--device", "cpu"),
)


def alone() -> Ranks:
    """One rank, in the working folder."""
    world = World()
    return RanksOf(
        world=world,
        strategy=make_strategy("single", world),
        run_dir=RunDir.from_environment({}),
        notice=Notice(),
    )


def said(task: Task[Any, Any]) -> str:
    """What is said of a task as it runs, if anything."""
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    try:
        with quiet[0], quiet[1]:
            run(task)
    except TrainingError as error:
        return str(error)
    return ""


class Drawn(nn.Module):
    """Takes features in an order that it draws by each generator, and does not keep."""

    seen: ClassVar[list[list[float]]] = []

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(num_inputs), persistent=False)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(num_inputs, num_outputs))
        found = [*self.order[:4].tolist(), random.random(), float(np.random.rand())]
        self.seen.append(found)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the outputs."""
        return self.layers(inputs.flatten(1)[:, self.order])


def new_process(number: int) -> None:
    """Let the generators begin elsewhere, as those of each process do."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def builds() -> Iterator[tuple[str, Task[Any, Any]]]:
    """Trainings of each seed, and predictions by the model of the last, of own.main and of a classifier."""

    def predict(_network: nn.Module, _file: Path, _folder: Path) -> dict[str, object]:
        return {"found": 1}

    mine = described(build=lambda: Drawn(SIDE**3, 1), predict=predict)

    def of_cubes(*arguments: str) -> Task[Any, Any]:
        return own.OwnTask(parse_options(own.Options, [*STEPS, *arguments]), alone(), mine)

    def of_pictures(*arguments: str) -> Task[Any, Any]:
        options = parse_options(classifier.OwnOptions, [*PICTURES, *arguments])
        build = lambda classes, size: Drawn(3 * size * size, classes)  # noqa: E731
        return classifier.Classifier(options, alone(), "drawn", build)

    for name, make in (("cubes", of_cubes), ("drawn", of_pictures)):
        model = ("--model", f"outputs/model/{name}.safetensors", "--predict", "one.png")
        for what, arguments in {
            "seed 1": (),
            "again": (),
            "seed 2": ("--seed", "2"),
            "predict": model,
            "predict again": model,
        }.items():
            yield f"{name}, {what}", make(*arguments, "--checkpoint-dir", f"kept-{name}-{what}")


def draws() -> object:
    """What building drew in each process, and whether random and NumPy then go on as they would have."""
    Image.new("RGB", (40, 40)).save("one.png")
    found: dict[str, object] = {}
    for number, (name, task) in enumerate(builds()):
        new_process(number)
        told = said(task)
        after = [random.random(), float(np.random.rand())]
        new_process(number)
        stays = after == [random.random(), float(np.random.rand())]
        found[name] = [Drawn.seen[-1], stays, told]
    torch.manual_seed(1)
    found["by torch.manual_seed(1)"] = torch.randperm(SIDE**3)[:4].tolist()
    return found


class Holding(Counting):
    """Counts its steps, and holds something more."""

    def __init__(self, hold: Callable[[nn.Module], object]) -> None:
        super().__init__()
        hold(self)


class Stateful(Holding):
    """Holds a state of its own kind."""

    def __init__(self, state: object) -> None:
        super().__init__(lambda _: None)
        self._state = state

    def get_extra_state(self) -> Any:
        """Give it."""
        return self._state

    def set_extra_state(self, state: Any) -> None:
        """Take it."""
        self._state = state


def states() -> object:
    """What is said of networks that no checkpoint holds, and after how many steps."""
    eye = torch.eye(3)
    networks: dict[str, Callable[[], Counting]] = {
        "extra state": lambda: Stateful({"version": 2}),
        "sparse": lambda: Holding(lambda me: me.register_buffer("edges", eye.to_sparse())),
        "sparse, not kept": lambda: Holding(
            lambda me: me.register_buffer("edges", eye.to_sparse_csr(), persistent=False)
        ),
        "lazy": lambda: Holding(lambda me: setattr(me, "last", nn.LazyLinear(2))),
        "of 128 bits": lambda: Holding(
            lambda me: me.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
        ),
        "a tensor": lambda: Stateful(torch.tensor([2])),
    }
    found: dict[str, object] = {}
    for name, make in networks.items():
        network = make()
        result = trained(described(build=lambda network=network: network))
        found[name] = [network.num_steps, result.get("said")]
        clear()
    return found


class Spectral(nn.Module):
    """Weighs the features by complex numbers, which it keeps as such or as pairs of real ones."""

    def __init__(self, *, is_complex: bool) -> None:
        super().__init__()
        values = torch.randn(SIDE**3, 2) / SIDE**3
        self.weights = nn.Parameter(torch.view_as_complex(values) if is_complex else values)

    def forward(self, cubes: Tensor) -> Tensor:
        """Compute the outputs."""
        weights = self.weights
        weights = weights if weights.is_complex() else torch.view_as_complex(weights)
        return (torch.fft.fft(cubes.flatten(1)) * weights).real.mean(1, keepdim=True)


def complexes() -> object:
    """Trainings of complex parameters and of the same as real ones, resumed, and what is said of some."""
    found: dict[str, object] = {}
    more = ("--ema", "0.5", "--clip-norm", "1", "--lr", "0.1")
    for optimizer in ("sgd", "adamw"):
        for is_complex in (True, False):
            mine = described(build=lambda is_complex=is_complex: Spectral(is_complex=is_complex))
            given = ("--optimizer", optimizer, *more)
            begun = trained(mine, *given)
            resumed = trained(mine, *given, "--epochs", "2")
            steps = resumed["summary"]["resumed_from_step"], resumed["summary"]["steps"]
            kind = "complex" if is_complex else "real"
            loss = resumed["summary"]["val_loss"]
            found[f"{optimizer}, {kind}"] = [steps, begun["losses"], resumed["losses"], loss]
            clear()
    mine = described(build=lambda: Spectral(is_complex=True))
    for name, given in {"lamb": ("--optimizer", "lamb"), "fp16": ("--precision", "fp16")}.items():
        found[name] = trained(mine, *given).get("said")
        clear()
    network = Spectral(is_complex=True)
    try:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        make_strategy("horovod", World()).wrap(network, optimizer)
    except TrainingError as error:
        found["horovod"] = str(error)
    return found


CHECKS: Sequence[Callable[[], object]] = (*(draws, states, complexes),)


def main(argv: Sequence[str]) -> None:
    """Print what each found, or those that are named, each in a folder of its own."""
    found: dict[str, object] = {}
    for each in CHECKS:
        if argv and each.__name__ not in argv:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found[each.__name__] = each()
            os.chdir(Path(folder).parent)
    print(json.dumps(found))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
