"""Trains the small CNN of the MNIST examples on MNIST's IDX files, on any number of ranks.

    launch shell pytorch -- python -m trainer.pytorch.mnist --data data/digits
    launch run digits

The batch size is that of all ranks together, and so is the learning rate: 1, 2 and 4 ranks
see the same global batches in the same order and take the same steps, up to rounding and
dropout. One rank needs no strategy; more take DDP, or Horovod with `--strategy horovod`.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.metrics import MainFigure
from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.position import Position
from trainer.common.sharding import shard, shuffled_batches
from trainer.data.pictures.idx import read_idx
from trainer.data.pictures.predicted import Files, Row, tell_classes, whole_pictures
from trainer.data.synthesize.digits import make_default_digits
from trainer.pytorch.evaluation import evaluate
from trainer.pytorch.features import Features
from trainer.pytorch.guard import Guard
from trainer.pytorch.loader import Batch
from trainer.pytorch.loop import run
from trainer.pytorch.model_file import read_model
from trainer.pytorch.program import TorchOptions, run_program
from trainer.pytorch.task import Loss, Part, Task, first_samples

SYNTHETIC = "synthetic"
NUM_CLASSES = 10
SIDE = 28
EVALUATION_BATCH = 1024  # of all ranks together
# Mean and standard deviation of MNIST's training pixels, as its examples use them.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081


@dataclass(frozen=True, kw_only=True)
class Options(TorchOptions):
    """Hold the options of the command line, as parse_options reads them."""

    data: Annotated[
        str | None,
        "folder of IDX files, or `synthetic`; else the run's input `digits`",
        MAY_CHANGE,
    ] = None
    batch_size: Annotated[int, "pictures a step, over all ranks together"] = 64
    lr: Annotated[float, "Adadelta's learning rate for that total batch"] = 1.0
    lr_decay: Annotated[float, "factor on the learning rate after each epoch"] = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("batch_size", "lr", "lr_decay")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(options, lambda ranks: run(Digits(options, ranks)))


class Digits(Task[Options, Batch]):
    """Small pictures, all of them on the device, told apart by a CNN."""

    program = "trainer.pytorch.mnist"
    main_figure = MainFigure(split="test", name="accuracy", goal="max")
    shown = ("loss", "accuracy")
    evaluation = f"{EVALUATION_BATCH:,} pictures at once over all ranks"

    training: Features
    testing: Features

    def set_up_cuda(self) -> None:
        """Choose kernels that repeat themselves."""
        torch.backends.cudnn.deterministic = True

    def prepare(self) -> None:
        """Read training and test set whole; a synthetic one is made by whichever rank comes first."""
        data, seed = self.options.data, self.options.seed
        if data == SYNTHETIC:
            folder = make_default_digits(num_train=1500, num_test=500, seed=seed)
        else:
            folder = Path(data) if data else self.ranks.run_dir.input("digits")
        self.training = load_split(folder, "train", self.device)
        self.testing = load_split(folder, "t10k", self.device)
        batch_size, size = self.options.batch_size, self.ranks.world.size
        if batch_size < size:
            message = f"--batch-size {batch_size} leaves a rank of {size} without work"
            raise TrainingError(message, hint=f"--batch-size {size} or more")

    def build(self) -> nn.Module:
        """Make the CNN."""
        return build_network()

    def optimizer(self, part: nn.Module, _scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make Adadelta, as MNIST's examples have it."""
        return torch.optim.Adadelta(part.parameters(), lr=self.options.lr)

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the last batch may be smaller."""
        return math.ceil(len(self.training) / self.options.batch_size)

    def facts(self) -> dict[str, object]:
        """Give the size of the training set."""
        return {"num_samples": len(self.training)}

    def rate(self, position: Position) -> float:
        """Give the rate of the epoch."""
        return self.options.lr * self.options.lr_decay**position.epoch

    def batches(self, position: Position) -> Iterator[Part[Batch]]:
        """Yield this rank's pictures and labels of each batch that is left of the epoch."""
        order = shuffled_batches(
            len(self.training),
            self.options.batch_size,
            seed=self.options.seed,
            epoch=position.epoch + 1,
            first=position.batch,
        )
        wanted, told = tee(order)
        pictures = self.training.batches(shard(batch, self.ranks.world) for batch in wanted)
        for whole, mine in zip(told, pictures, strict=True):
            yield Part(batch=mine, samples=mine.samples, num_samples=len(whole))

    def trial(self, number: int) -> Part[Batch]:
        """Make a batch of the first pictures."""
        pictures = self.training
        return first_samples(number, len(pictures), lambda rows: next(pictures.batches([rows])))

    def loss(self, model: nn.Module, part: Part[Batch]) -> Loss:
        """Compute the cross entropy; the ranks' parts of a batch may differ in size by one."""
        labels = part.batch.labels
        scores = model(part.batch.images).float()
        total = functional.cross_entropy(scores, labels, reduction="sum")
        mean = total * (self.ranks.world.size / part.num_samples)
        return Loss(mean=mean, total=total, num_right=(scores.argmax(dim=1) == labels).sum())

    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give mean loss, accuracy and top-5 over the whole test set, each picture counted once."""
        found = evaluate(
            part,
            self.testing,
            num_images=len(self.testing),
            num_classes=NUM_CLASSES,
            batch_size=EVALUATION_BATCH,
            loss="ce",
            sees=lambda images: images,
            task=self,
            guard=guard,
            position=position,
        )
        return {"loss": found["loss"], "accuracy": found["top1"], "top5": found["top5"]}

    def about(self) -> dict[str, object]:
        """Give size and classes."""
        return {"image_size": SIDE, "classes": [str(digit) for digit in range(NUM_CLASSES)]}

    def predict(self, files: Files, folder: Path) -> Iterator[Row]:
        """Yield each picture's surest digits; it is made grey, and as small as MNIST's."""
        network, about = read_model(self.options.saved, lambda _: build_network())
        network.to(self.device)
        shares = ((index, each.tolist()) for index, each in self._shares(network, files))
        yield from tell_classes(files, shares, about.classes, folder)

    @torch.no_grad()
    def _shares(self, network: nn.Module, files: Files) -> Iterator[tuple[int, Tensor]]:
        for index, picture in whole_pictures(files):
            grey = picture.convert("L").resize((SIDE, SIDE))
            pixels = torch.frombuffer(bytearray(grey.tobytes()), dtype=torch.uint8)
            images = normalised(pixels.view(1, 1, SIDE, SIDE).to(self.device))
            yield index, network(images).float().softmax(dim=1)[0].cpu()

    def summary(self) -> dict[str, object]:
        """Give the sizes of batch and sets."""
        return {
            "batch_size": self.options.batch_size,
            "train_images": len(self.training),
            "test_images": len(self.testing),
        }


def build_network() -> nn.Module:
    """Make the CNN: 1 x 28 x 28 pixels to 10 scores."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 32, kernel_size=3),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, kernel_size=3),
            pool=nn.MaxPool2d(2),
            relu2=nn.ReLU(),  # of a maximum: the same as before the pool, for a quarter of the work
            dropout1=nn.Dropout(0.25),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * 12 * 12, 128),
            relu3=nn.ReLU(),
            dropout2=nn.Dropout(0.5),
            fc2=nn.Linear(128, NUM_CLASSES),
        )
    )


def load_split(folder: Path, prefix: str, device: torch.device) -> Features:
    """Read one split whole; raises TrainingError where it is not MNIST-like."""
    image_shape, pixels = read_idx(folder, f"{prefix}-images-idx3-ubyte")
    label_shape, classes = read_idx(folder, f"{prefix}-labels-idx1-ubyte")
    num_images = image_shape[0] if image_shape else 0
    is_like = image_shape == (num_images, SIDE, SIDE) and label_shape == (num_images,)
    if not is_like or num_images == 0 or max(classes) >= NUM_CLASSES:
        message = (
            f"`{folder}` holds {prefix} pictures of shape {image_shape} and labels of {label_shape}; "
            f"wanted are {SIDE} x {SIDE} pictures with a label of 0 to {NUM_CLASSES - 1} each"
        )
        raise TrainingError(message, hint="launch data prepare digits --to DIR makes such a folder")
    # A copy, since a tensor over immutable bytes would be written through.
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(classes), dtype=torch.uint8)
    pictures = normalised(images.view(num_images, 1, SIDE, SIDE).to(device))
    return Features(pictures, labels.to(device, torch.long))


def normalised(images: Tensor) -> Tensor:
    """Give bytes as floats whose mean and standard deviation are those of MNIST's pixels."""
    return images.to(torch.float32).div_(255).sub_(PIXEL_MEAN).div_(PIXEL_STD)


if __name__ == "__main__":
    sys.exit(main())
