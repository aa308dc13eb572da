"""Trains networks that draw, that no checkpoint holds, or of other samples, alone on the CPU, and prints what came of them as JSON."""

from __future__ import annotations

import collections
import contextlib
import io
import json
import os
import random
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from tests.integration.programs.one_rank import alone
from tests.integration.programs.own_checks import (
    DESCENT,
    NUM_TRAIN,
    NUM_VAL,
    SIDE,
    Counting,
    Cubes,
    clear,
    described,
    trained,
)
from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.common.world import World
from trainer.pytorch import classifier, own
from trainer.pytorch.batch_norms import share_batch_norms
from trainer.pytorch.loop import run
from trainer.pytorch.strategy import make_strategy
from trainer.pytorch.task import Task
from trainer.pytorch.transfer import each_tensor

STEPS = ("--batch-size", "8", "--epochs", "1", "--device", "cpu")
PICTURES = (
    *("--data", "random", "--image-size", "32", "--num-images", "8", "--num-classes", "2"),
    *("--batch-per-rank", "4", "--epochs", "1", "--device", "cpu"),
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
    """What building drew in each process, and what random and NumPy draw after the training."""
    Image.new("RGB", (40, 40)).save("one.png")
    found: dict[str, object] = {}
    for number, (name, task) in enumerate(builds()):
        new_process(number)
        told = said(task)
        found[name] = [Drawn.seen[-1], [random.random(), float(np.random.rand())], told]
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


def names() -> object:
    """The files of models by the names of their trainings, or what is said of a name."""
    found: dict[str, object] = {}
    for name in ("unet-v1.5", "trainer.pytorch.own_line", "mine/unet", ""):
        told = trained(described(name=name)).get("said")
        files = sorted(path.name for path in Path().rglob("outputs/model/*"))
        found[name] = told or files
        clear()
    return found


class Unnamed(own.OwnTask):
    """A task that names no option of its batch."""

    batch_option = "chunk"

    def require_search(self) -> None:
        """Take the CPU for one."""
        with mock.patch("trainer.pytorch.task.require_one_gpu"):
            super().require_search()


def unnamed() -> object:
    """What becomes of a task without an option for its batch, and of a search for it."""
    found = []
    for more in ((), ("--find-batch",)):
        options = parse_options(own.Options, [*STEPS, *more])
        found.append(said(Unnamed(options, alone(), described())))
    return found


class Two(NamedTuple):
    """A sample by its parts' names."""

    cube: Tensor
    mean: Tensor


class Shaped(Cubes):
    """Cubes as samples of another shape."""

    def __init__(self, number: int, shape: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__(number, 1)
        self._shape = shape

    def __getitem__(self, index: int) -> Any:
        return self._shape(*super().__getitem__(index))


def samples() -> object:
    """How many steps are taken of samples of each shape, or what is said of them."""
    shapes: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "list": lambda cube, mean: [cube, mean],
        "named": Two,
        "dictionary": lambda cube, mean: {"image": cube, "label": mean},
        "three": lambda cube, mean: (cube, mean, mean),
        "one": lambda cube, _: cube[:, :2].squeeze(0),
    }
    found: dict[str, object] = {}
    for name, shape in shapes.items():
        sets = Shaped(NUM_TRAIN, shape), Shaped(NUM_VAL, shape)
        result = trained(described(data=lambda _, sets=sets: sets))
        found[name] = result.get("said") or result["summary"]["steps"]
        clear()
    return found


def norms() -> object:
    """Whether a norm that stands in three places is one norm over all ranks in each, by their names."""
    norm = nn.BatchNorm2d(3)
    network = nn.Sequential(norm, nn.Conv2d(3, 3, 1), norm, nn.Sequential(norm))
    before = list(network.state_dict())
    share_batch_norms(network, make_strategy("single", World()))
    return [
        type(network[0]).__name__,
        network[0] is network[2] is network[3][0],
        list(network.state_dict()) == before,
    ]


def averages() -> object:
    """What is said of a moving average of a network that cannot be copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(SIDE**3, 1)))
    new = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(SIDE**3, 1)))
    found = []
    for network in (old, new):
        result = trained(described(build=lambda network=network: network), *DESCENT, "--ema", "0.5")
        found.append(result.get("said") or result["summary"]["steps"])
        clear()
    return found


def moved() -> object:
    """Where the tensors of batches of each kind are once they have been moved, and what kind that is."""
    one = torch.zeros(1)
    batches: dict[str, Any] = {
        "number first": (0.5, one),
        "name first": ["a", one],
        "numbers": [1, 2],
        "default": collections.defaultdict(list, {"a": one}),
        "ordered": collections.OrderedDict(a=one),
        "proxy": types.MappingProxyType({"a": one}),
        "named": Two(one, one),
        "packed": pack_sequence([torch.zeros(2, 1), torch.zeros(3, 1)], enforce_sorted=False),
    }
    found: dict[str, object] = {}
    for name, batch in batches.items():
        made: Any = each_tensor(batch, lambda tensor: tensor.to("meta"))
        if isinstance(made, PackedSequence):
            parts = [each for each in made if each is not None]
        else:
            parts = list(made.values() if hasattr(made, "values") else made)
        places = [each.device.type if isinstance(each, Tensor) else each for each in parts]
        found[name] = [type(made).__name__, places]
    made = each_tensor(batches["default"], lambda tensor: tensor)
    found["default's own"] = made["none"]
    found["taken apart"] = "none" in batches["default"]
    return found


CHECKS: Sequence[Callable[[], object]] = (
    *(draws, states, complexes, names, unnamed, samples, norms, averages, moved),
)


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
