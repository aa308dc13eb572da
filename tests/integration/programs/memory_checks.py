"""Prints what PyTorch programs say of a made-up device whose memory holds so many samples, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.integration.programs.one_rank import alone
from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.data.pictures.header import CorruptPicture
from trainer.data.pictures.predicted import Files, Row
from trainer.data.synthesize.digits import make_default_digits
from trainer.pytorch import classifier, hymenoptera, mnist, own
from trainer.pytorch.loader import Noise
from trainer.pytorch.loop import run
from trainer.pytorch.picture_data import Data
from trainer.pytorch.strategy import Ranks
from trainer.pytorch.task import Loss, Part, Task


class Small(nn.Module):
    """A network of a device whose memory holds so many pictures of its input."""

    room = room_to_evaluate = 5

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the scores."""
        if len(images) > (self.room if self.training else self.room_to_evaluate):
            raise torch.OutOfMemoryError
        return self.layers(images)

    def to(self, *given: object, **named: object) -> Small:
        """Move to the device, which holds the network or does not."""
        if not self.room:
            raise torch.OutOfMemoryError
        return super().to(*given, **named)


def build(_num_classes: int, size: int) -> nn.Module:
    network = Small()
    network.layers(torch.zeros(2, 3, size, size))
    return network


class OnGpu:
    """As if it were on a GPU."""

    def require_search(self) -> None:
        """Take it for one."""


class Classifier(OnGpu, classifier.Classifier):
    """Evaluates on eight pictures."""

    def open_data(self) -> Data:
        """Give noise."""
        noise = Noise(self.device, num_classes=2, batch=8, size=32, seed=1)
        return replace(super().open_data(), val=noise, num_val=8)


class WithoutTrial(Classifier):
    """Says of no batch how it is made, as tasks of one's own may."""

    trial = Task.trial


class WithoutRoom(classifier.Classifier):
    """Has neither room for its data nor for a file."""

    def open_data(self) -> Data:
        """Find no room."""
        raise torch.OutOfMemoryError

    def predict(self, files: Files, folder: Path) -> Iterator[Row]:
        """Find no room."""
        yield {"folder": str(folder)}
        raise torch.OutOfMemoryError(str(files))


class WithoutRoomToDraw(hymenoptera.Transfer):
    """Has no room for the pictures at its end."""

    def finish(self, network: nn.Module) -> None:
        """Find no room."""
        raise torch.OutOfMemoryError(str(network))


class FiveFit(OnGpu):
    """A step of six samples is too large, whatever they are."""

    room = 5

    def loss(self, model: nn.Module, part: Part[Any]) -> Loss:
        """Compute it where there is room."""
        if len(part.samples) > self.room:
            raise torch.OutOfMemoryError
        return super().loss(model, part)


class Digits(FiveFit, mnist.Digits):
    """Takes numbers of samples from --batch-size."""


class Own(FiveFit, own.OwnTask):
    """Takes numbers of samples from --batch-size."""


class Transfer(FiveFit, hymenoptera.Transfer):
    """Takes numbers of samples from --batch-per-rank."""


class WithoutRoomToEvaluate(mnist.Digits):
    """Has no room for the pictures of an evaluation, whatever the batch of a step is."""

    def evaluate(self, *_given: object) -> dict[str, float]:
        """Find no room."""
        raise torch.OutOfMemoryError


class Rows:
    """Samples of an own training, of which the first is corrupt."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not index:
            raise CorruptPicture("0", "the first one is cut off")
        return torch.zeros(2), torch.zeros(1)


ROWS = own.Own(
    name="rows",
    build=lambda: nn.Linear(2, 1),
    data=lambda _: (Rows(), Rows()),
    loss=nn.functional.mse_loss,
    figures=lambda outputs, targets: {"close": (outputs - targets).abs()[:, 0]},
    main="close",
)


def say_of(task: Task[Any, Any], warnings: io.StringIO | None = None) -> str:
    """Run it; gives its last line, or its error."""
    lines: list[str] = []
    task.say = lines.append
    errors = warnings or io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            run(task)
    except TrainingError as error:
        return str(error)
    return lines[-1] if lines else "trained"


def classifiers(ranks: Ranks) -> dict[str, str]:
    """What a training, an evaluation, a search and a prediction say."""
    said: dict[str, str] = {}
    made = ("--data", "random", "--num-classes", "2", "--num-images", "12", "--image-size", "32")
    made += ("--epochs", "1", "--batch-per-rank", "3")
    plain = parse_options(classifier.Options, made)
    search = replace(plain, find_batch=True)
    Path("a.png").touch()
    for name, kind, options, room in (
        ("on a CPU", classifier.Classifier, search, 5),
        ("search", Classifier, search, 5),
        ("train", Classifier, plain, 2),
        ("without trial", WithoutTrial, plain, 2),
        ("to", Classifier, plain, 0),
        ("evaluate", Classifier, plain, 5),
        ("two parts", Classifier, replace(plain, accumulate=2), 3),
        ("data", WithoutRoom, plain, 5),
        ("predict", WithoutRoom, replace(plain, predict=Path(), model=Path("m")), 5),
    ):
        Small.room = room
        Small.room_to_evaluate = 2 if name == "evaluate" else room
        said[name] = say_of(kind(options, ranks, "small", build))
    return said


def searches(ranks: Ranks) -> dict[str, str]:
    """What the other programs find."""
    digits = ("--find-batch", "--data", str(make_default_digits(num_train=9, num_test=4, seed=1)))
    made = ("--data", "synthetic", "--num-images", "8", "--image-size", "32")
    made += ("--batch-per-rank", "2", "--epochs", "1")
    pictures = (*made, "--find-batch")
    every = (*pictures, "--train", "all")
    warnings = io.StringIO()
    say_of(WithoutRoomToDraw(parse_options(hymenoptera.Options, made), ranks), warnings)
    few: dict[str, str] = {}
    tiny = ("--find-batch", "--batch-size", "4")
    one = parse_options(mnist.Options, [*digits[1:], "--epochs", "1"])
    for name, room, task in (
        ("one digit", 1, Digits(parse_options(mnist.Options, digits), ranks)),
        ("no digit", 0, Digits(parse_options(mnist.Options, digits), ranks)),
        ("one own", 1, Own(parse_options(own.Options, tiny), ranks, ROWS)),
        ("no own", 0, Own(parse_options(own.Options, tiny), ranks, ROWS)),
        ("digits to evaluate", 5, WithoutRoomToEvaluate(one, ranks)),
        ("one feature", 1, Transfer(parse_options(hymenoptera.Options, pictures), ranks)),
    ):
        task.room = room
        few[name] = say_of(task)
    drawing = warnings.getvalue().splitlines()[-1]
    return few | {
        "drawing": f"{drawing}, {Path('outputs/model/hymenoptera.safetensors').exists()}",
        "digits": say_of(Digits(parse_options(mnist.Options, digits), ranks)),
        "head": say_of(Transfer(parse_options(hymenoptera.Options, pictures), ranks)),
        "all": say_of(Transfer(parse_options(hymenoptera.Options, every), ranks)),
    }


def main(_argv: Sequence[str]) -> None:
    """Print what each says."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        ranks = alone()
        print(json.dumps(classifiers(ranks) | searches(ranks)))
