"""Says what a PyTorch program is to the loop that trains it: its data, network, loss and evaluation."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.find_batch import require_one_gpu
from trainer.common.metrics import MainFigure
from trainer.common.position import Position
from trainer.common.schedule import Schedule
from trainer.data.pictures.predicted import Files, Row
from trainer.pytorch.guard import Guard
from trainer.pytorch.program import TorchOptions
from trainer.pytorch.strategy import Ranks, pick_device

OptionsT = TypeVar("OptionsT", bound=TorchOptions)
B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Part(Generic[B]):
    """This rank's part of a global batch: its `samples`, of `num_samples` over all ranks."""

    batch: B
    samples: Sequence[int]
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss of one part, as scalars on the device.

    The mean of `mean` over ranks is that of the global batch, and is what gradients are taken of.
    `total` is the sum over the part's samples, for metrics, and `num_right` how many of them were
    told right, where the task counts them.
    """

    mean: Tensor
    total: Tensor
    num_right: Tensor | None = None


def first_samples(number: int, num_train: int, take: Callable[[Sequence[int]], B]) -> Part[B]:
    """Make a part of so many samples, as `take` gives them: again and again where there are fewer."""
    samples = [place % num_train for place in range(number)]
    return Part(batch=take(samples), samples=samples, num_samples=number)


class Task(ABC, Generic[OptionsT, B]):
    """A training as a program says it; `run` (trainer.pytorch.loop) calls the methods in the order they stand here.

    Every rank calls all of them, so that each may be a collective. Randomness of the order and of
    augmentation comes from the options' seed, the epoch and the sample, never from the rank.
    """

    program: str
    main_figure: MainFigure
    # Figures of an evaluation that the line of an epoch shows; all of them where there are none.
    shown: ClassVar[Sequence[str]] = ()
    # The option that says how large a step is.
    batch_option: ClassVar[str] = "batch_size"
    # The fewest samples of a step, and what lets memory hold them.
    least_batch: ClassVar[int] = 1
    less_memory: ClassVar[str] = "--precision bf16"
    # What an evaluation looks at, where the option of a step's size does not say it.
    evaluation: ClassVar[str] = ""
    # The learning rate of every step, for a task that has no `rate` of its own.
    schedule: Schedule
    # Names the random stream that each rank has of its own while it trains.
    stream: ClassVar[str] = "dropout"

    def __init__(self, options: OptionsT, ranks: Ranks) -> None:
        """Pick the device and meet the other ranks."""
        self.options = options
        self.ranks = ranks
        self.device = pick_device(options.device, ranks.world)
        if self.device.type == "cuda":
            self.set_up_cuda()
        ranks.strategy.init(ranks.world, self.device)

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.ranks.world.is_main:
            clear = "\r\033[K" if sys.stdout.isatty() else ""  # over the progress line
            print(f"{clear}{text}", flush=True)

    def over_ranks(self, number: int) -> int:
        """Add up a rank's number over all ranks; a collective."""
        return int(self.ranks.strategy.sum(torch.tensor(float(number), device=self.device)))

    def set_up_cuda(self) -> None:
        """Choose TF32 as cuDNN's convolutions have it, and kernels by trying them."""
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")

    def require_search(self) -> None:
        """Raise TrainingError where `--find-batch` has not one GPU to try, or no option to find a value for."""
        require_one_gpu(self.device.type, self.ranks.world.size)
        if not hasattr(self.options, self.batch_option):
            message = f"--find-batch looks for the largest {self.batch_flag}, and {self.program} has no such option"
            raise TrainingError(message, hint="batch_option of the task: the name of its option")

    @property
    def batch_flag(self) -> str:
        """Give the option that says how large a step is, as it is typed."""
        return f"--{self.batch_option.replace('_', '-')}"

    @abstractmethod
    def prepare(self) -> None:
        """Open the data; raises TrainingError where it is not what the program takes."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Make the network, on the CPU; the seed is set, and all ranks begin with equal weights."""

    def select(self, network: nn.Module) -> nn.Module:
        """Give the part of a network, or of its moving average, that trains."""
        return network

    @abstractmethod
    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make the optimizer of the part that trains."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model of the strategy once more, as torch.compile does."""
        return model

    def require_weights(self) -> None:
        """Raise TrainingError where the network, as `build` made it, has weights that were not learnt."""
        self.options.require_learnt()

    @property
    def num_parts(self) -> int:
        """Parts of a step on each rank, whose gradients add up."""
        return 1

    @property
    def average_decay(self) -> float | None:
        """Share that the weights' moving average keeps in a step; None where there is none."""
        return None

    @property
    @abstractmethod
    def num_batches(self) -> int:
        """Steps of one epoch; known once the data is open."""

    @property
    def num_steps(self) -> int:
        """Steps of the whole training."""
        return self.options.epochs * self.num_batches

    @property
    def num_warmup_steps(self) -> int:
        """Steps that the rate of samples leaves out."""
        return min(10, self.num_batches)

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """Give what a resumed training has to agree in, beside the options: the data's sizes."""

    def rate(self, position: Position) -> float:
        """Give the learning rate of the step that begins at this position, also behind the last one.

        It is that of the optimizer's group with the largest `lr`; other groups keep their ratio to it.
        """
        return self.schedule.rate(position.step)

    def begin(self, network: nn.Module, position: Position) -> None:
        """Compute what training needs of the network as it is at this position, on its device."""

    @abstractmethod
    def batches(self, position: Position) -> Iterator[Part[B]]:
        """Yield this rank's part of each global batch that is left of the epoch, or `num_parts`.

        They are as many as `num_batches` says, less `position.batch`.
        Its tensors may lie in memory, pinned: `run` copies them, one part ahead.
        """

    def trial(self, number: int) -> Part[B]:
        """Make a batch of so many samples, on the device, for `--find-batch`."""
        message = f"{self.program} does not say how it makes a batch of {number} samples"
        raise TrainingError(message, hint="trial() of the task")

    @abstractmethod
    def loss(self, model: nn.Module, part: Part[B]) -> Loss:
        """Compute the loss of one part; runs under the precision's autocast."""

    @abstractmethod
    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give figures of the held-out set by `part` in eval mode, each sample counted once; settles the guard."""

    def about(self) -> Mapping[str, object]:
        """Give what lies beside a model's weights (trainer.pytorch.model_file); none by default."""
        return {}

    def predict(self, files: Files, folder: Path) -> Iterator[Row]:  # noqa: ARG002
        """Yield the table's rows of these files by the model of `options.saved`; draw into the folder.

        It is called instead of all the rest, on one process.
        """
        message = f"{self.program} does not say how it predicts a file"
        raise TrainingError(message, hint="predict() of the task, or predict= of own.Own")

    def summary(self) -> dict[str, object]:
        """Give the figures that the summary has of this program alone."""
        return {}

    def finish(self, network: nn.Module) -> None:
        """Write what else the program leaves of its trained network; on rank 0 only."""
