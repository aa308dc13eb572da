"""Trains a network of yours on a data set of yours, with your own loss and figures.

A file of your own calls `main` with a network, a data set and a loss
(docs/own-model.md, examples/own-model/segmentation.py).
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import unquote

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, default_collate

from trainer.common.errors import TrainingError
from trainer.common.metrics import MainFigure
from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.position import Position
from trainer.common.schedule import Schedule, ScheduleName
from trainer.common.sharding import batches_in_order, rank_batches, shard
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.header import CorruptPicture
from trainer.data.pictures.predicted import Files, Row
from trainer.pytorch.guard import Guard
from trainer.pytorch.loop import run
from trainer.pytorch.model_file import load_model
from trainer.pytorch.networks import parameter_groups
from trainer.pytorch.optimizers import OptimizerName, make_optimizer
from trainer.pytorch.precision import autocast
from trainer.pytorch.program import StepOptions, run_program
from trainer.pytorch.strategy import Ranks
from trainer.pytorch.task import Loss, Part, Task, first_samples
from trainer.pytorch.transfer import copied_ahead, place
from trainer.pytorch.whole_samples import (
    Pair,
    Samples,
    WholeSamples,
    draws_apart,
    looked_at,
    require_corrupt,
    seed_draws,
)

# Each costs a fork in each epoch.
MOST_WORKERS = 4
# Stands in for an epoch's number, which begins at 1: a validation set is drawn alike each time.
OF_VALIDATION = 0
# Stands beside the figures of a validation set.
LOSS = "loss"
# Names that are no figure's, and what has them.
TAKEN = {LOSS: "loss()'s own mean"} | dict.fromkeys(("epoch", "split", "step"), "a metric's place")
# Samples whose figures are asked for before a training begins.
NUM_ASKED = 2


@dataclass(frozen=True, kw_only=True)
class Own:
    """Describe a user's training: its network, data, loss and figures.

    `data` takes the seed, at which the global generators begin in it, too: each rank makes the same
    sets. `loss` gives the mean over a batch, `figures` the value of each figure for each sample (N), if
    any; both take the network's outputs and the targets. `main` names the figure that counts, of which
    more is better, or is "loss", of which less is. `predict` looks at one file by the network, which is in eval mode, may draw into the
    folder, and gives the cells of a table by column.
    """

    name: str
    build: Callable[[], nn.Module]
    data: Callable[[int], tuple[Samples, Samples]]
    loss: Callable[[Any, Tensor], Tensor]
    figures: Callable[[Any, Tensor], Mapping[str, Tensor]] = lambda *_: {}
    main: str = LOSS
    predict: Callable[[nn.Module, Path, Path], Row] | None = None


@dataclass(frozen=True, kw_only=True)
class Options(StepOptions):
    """Hold the options of the command line, as parse_options reads them."""

    batch_size: Annotated[int, "samples a batch, over all ranks together", MAY_CHANGE] = 32
    optimizer: Annotated[OptimizerName, "optimizer; --momentum is that of sgd"] = "adamw"
    lr: Annotated[float, "peak learning rate for that total batch, by any optimizer"] = 0.001
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "cosine"
    warmup_steps: Annotated[int, "steps in which the learning rate rises"] = 0
    momentum: Annotated[float, "momentum of SGD"] = 0.9
    weight_decay: Annotated[float, "weight decay; none for norms and biases"] = 0.0
    workers: Annotated[
        int | None, "processes that load samples, per rank (default: a few for a GPU)", MAY_CHANGE
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("batch_size", "lr")
        self.require_at_least(0, "warmup_steps", "momentum", "weight_decay", "workers")


def main(own: Own, argv: Sequence[str] | None = None, *, description: str = "") -> int:
    """Train; gives the exit code. `argv` is that of the command line."""
    options = parse_options(Options, argv, description=description)
    return run_program(options, lambda ranks: run(OwnTask(options, ranks, own)))


class OwnTask(Task[Options, Pair]):
    """Samples of a data set, whichever they are."""

    train: Samples
    val: Samples
    corrupt: CorruptPictures

    def __init__(self, options: Options, ranks: Ranks, own: Own) -> None:
        """Take the user's own part."""
        super().__init__(options, ranks)
        self.program = own.name
        goal = "min" if own.main == LOSS else "max"
        self.main_figure = MainFigure(split="val", name=own.main, goal=goal)
        self._own = own

    def prepare(self) -> None:
        """Open both sets; raises TrainingError where one is too small."""
        with draws_apart():
            seed_draws(f"{self.options.seed}/data")
            self.train, self.val = self._own.data(self.options.seed)
        if isinstance(self._own.loss, nn.Module):
            require_no_weights(self._own.loss)
            self._own.loss.to(self.device)
        self.corrupt = CorruptPictures(self.options.max_corrupt, fail=self.ranks.notice.fail)
        size, num_ranks = self.options.batch_size, self.ranks.world.size
        if size % num_ranks:
            message = f"--batch-size {size} cannot be shared equally by {num_ranks} ranks"
            raise TrainingError(message, hint=f"--batch-size {-(-size // num_ranks) * num_ranks}")
        if len(self.train) < self.batch_size or not len(self.val):
            message = f"{len(self.train)} samples to train on and {len(self.val)} to evaluate"
            by = "--batch-size" if self.num_parts == 1 else "--batch-size x --accumulate"
            raise TrainingError(message, hint=f"at least {self.batch_size} ({by}) and 1")

    def build(self) -> nn.Module:
        """Make the user's network."""
        return self._own.build()

    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make the optimizer; norms and biases do not decay."""
        options = self.options
        return make_optimizer(
            options.optimizer,
            parameter_groups(part, weight_decay=options.weight_decay),
            lr=options.lr,
            momentum=options.momentum,
            scaler=scaler,
        )

    @property
    def batch_size(self) -> int:
        """Samples a step, over all ranks and parts together."""
        return self.options.batch_size * self.num_parts

    @property
    def num_parts(self) -> int:
        """Batches that make a step."""
        return self.options.accumulate

    @property
    def average_decay(self) -> float | None:
        """Decay of the weights' moving average (Polyak and Juditsky 1992), as the options say."""
        return self.options.ema

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the samples of a last, smaller batch come in another epoch."""
        return len(self.train) // self.batch_size

    def facts(self) -> dict[str, object]:
        """Give the sizes of batch and training set."""
        return {"batch_size": self.batch_size, "num_samples": len(self.train)}

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Give the learning rate of every step."""
        options = self.options
        return Schedule(
            name=options.schedule,
            peak=options.lr,
            num_steps=self.num_steps,
            num_warmup_steps=options.warmup_steps,
        )

    @torch.no_grad()
    def begin(self, network: nn.Module, position: Position) -> None:  # noqa: ARG002
        """Ask for the figures of few samples; raises TrainingError where names or shapes are wrong.

        Nothing is counted or drawn for the training, which goes on as if it had not been asked.
        """
        if self.options.find_batch:
            return
        samples = WholeSamples(self.val, stream=f"{self.options.seed}/{OF_VALIDATION}")
        rows = range(min(NUM_ASKED, len(self.val)))
        pair = self._pair(samples, rows)
        with looked_at(network, self.device):
            loss, figures = self._look(network, pair)
        require_mean(loss)
        require_names(list(figures), main=self._own.main)
        require_values(figures, num_samples=len(rows))

    def batches(self, position: Position) -> Iterator[Part[Pair]]:
        """Yield this rank's samples of each part of each full batch that is left of the epoch."""
        mine = rank_batches(
            len(self.train),
            self.batch_size,
            self.ranks.world,
            seed=self.options.seed,
            epoch=position.epoch + 1,
            first=position.batch,
        )
        size = self.options.batch_size
        own = size // self.ranks.world.size
        parts = [
            batch[start : start + own] for batch in mine for start in range(0, len(batch), own)
        ]
        for pair, samples in self._load(self.train, parts, epoch=position.epoch + 1):
            yield Part(batch=pair, samples=samples, num_samples=size)

    def trial(self, number: int) -> Part[Pair]:
        """Make a batch of the first samples, as the first epoch reads them."""
        samples = WholeSamples(self.train, stream=f"{self.options.seed}/1")
        return first_samples(number, len(self.train), lambda rows: self._pair(samples, rows))

    def _pair(self, samples: WholeSamples, rows: Sequence[int]) -> Pair:
        """Read these samples as one pair on the device."""
        pair = default_collate([each[:2] for each in samples.__getitems__(rows)])
        return place(pair, self.device)

    def loss(self, model: nn.Module, part: Part[Pair]) -> Loss:
        """Compute the user's loss."""
        inputs, targets = part.batch
        mean = self._own.loss(model(inputs), targets)
        return Loss(mean=mean, total=mean.detach() * len(part.samples))

    @torch.no_grad()
    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give the mean of the loss and of each figure over all samples."""
        num_val = len(self.val)
        batches = [*map(list, batches_in_order(num_val, self.options.batch_size))]
        # Every rank has a picture of each batch, so that all know the figures' names; those that a
        # smaller last batch lacks count for nothing.
        mine = [shard(batch, self.ranks.world) or batch[:1] for batch in batches]
        totals: dict[str, Tensor] = {}
        loaded = copied_ahead(self._load(self.val, mine, epoch=OF_VALIDATION), self.device)
        for batch, (pair, samples) in zip(batches, loaded, strict=True):
            is_spare = not shard(batch, self.ranks.world)
            loss, figures = self._look(part, pair)
            require_values(figures, num_samples=len(samples))
            found = {LOSS: loss.double() * len(samples)}
            found |= {key: each.double().sum() for key, each in figures.items()}
            for name, value in found.items():
                totals[name] = totals.get(name, torch.zeros_like(value)) + value * (not is_spare)
            guard.check(position)
        guard.settle()
        means = (self.ranks.strategy.sum(torch.stack([*totals.values()])) / num_val).tolist()
        told = dict(zip(totals, means, strict=True))
        require_finite(told, hint=self.options.hint)
        return told

    def _look(self, part: nn.Module, pair: Pair) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Give the mean loss of a batch, and the figures of its samples."""
        with autocast(self.options.precision, self.device):
            outputs = part(pair[0])
            loss = self._own.loss(outputs, pair[1])
        figures = self._own.figures(outputs, pair[1])
        if not isinstance(figures, Mapping):
            message = f"figures() gives a {type(figures).__name__}, not figures by their names"
            raise TrainingError(
                message, hint='{"iou": values}, a tensor (N) of a value for each sample'
            )
        return loss, {
            key: each.to(self.device) if isinstance(each, Tensor) else each
            for key, each in figures.items()
        }

    @torch.no_grad()
    def predict(self, files: Files, folder: Path) -> Iterator[Row]:
        """Yield what the user's own function finds in each file."""
        if self._own.predict is None:
            yield from super().predict(files, folder)
            return
        network = self._own.build()
        load_model(network, self.options.saved)
        network.to(self.device).eval()
        for index, path in enumerate(files.paths):
            try:
                found = self._own.predict(network, path, folder)
            except (CorruptPicture, OSError) as error:
                why = require_corrupt(error)
                reason = why if str(path) in why else f"predict() failed at `{path}`: {why}"
                files.corrupt.skip(CorruptPicture(str(path), reason))
                continue
            yield {"file": files.shown(index), **found}

    def summary(self) -> dict[str, object]:
        """Give the sizes of batch and sets, and how often a sample was skipped; a collective."""
        return {
            "batch_size": self.batch_size,
            "train_samples": len(self.train),
            "val_samples": len(self.val),
            "samples_skipped": self.over_ranks(self.corrupt.num_skipped),
        }

    @property
    def num_workers(self) -> int:
        """Processes that load: for a GPU, so that it computes meanwhile; none beside a CPU's threads."""
        if self.options.workers is not None:
            return self.options.workers
        if self.device.type == "cpu":
            return 0
        return min(MOST_WORKERS, self.ranks.world.num_workers(self.device.type))

    def _load(
        self, data: Samples, order: Sequence[list[int]], *, epoch: int
    ) -> Iterator[tuple[Pair, list[int]]]:
        """Give the samples of each list as one pair in memory, pinned where the device is a GPU."""
        loader: DataLoader[Any] = DataLoader(
            cast("Dataset[Any]", WholeSamples(data, stream=f"{self.options.seed}/{epoch}")),
            batch_sampler=order,
            num_workers=self.num_workers,
            pin_memory=self.device.type == "cuda",
            # Its own draw would move the generator that dropout draws from.
            generator=torch.Generator().manual_seed(self.options.seed),
        )
        for (inputs, targets, told), samples in zip(loader, order, strict=True):
            for line in "\n".join(told).split():
                number, _, reason = line.partition(":")
                split = "val" if epoch == OF_VALIDATION else "train"
                self.corrupt.skip(CorruptPicture(f"{split}/{number}", unquote(reason)))
            yield (inputs, targets), samples


def require_no_weights(loss: nn.Module) -> None:
    """Raise TrainingError for a loss with parameters, which no optimizer is given."""
    if any(each.requires_grad for each in loss.parameters()):
        message = (
            f"the loss {type(loss).__name__} has parameters, and only the network's are trained"
        )
        raise TrainingError(message, hint="keep them in the network that build() makes")


def require_mean(loss: Tensor) -> None:
    """Raise TrainingError for a loss that is no single number."""
    if not isinstance(loss, Tensor) or loss.dim():
        is_tensor = isinstance(loss, Tensor)
        what = f"tensor of shape {tuple(loss.shape)}" if is_tensor else type(loss).__name__
        message = f"loss() gives a {what}, not one number"
        raise TrainingError(message, hint="the mean over the batch: .mean()")


def require_names(names: Sequence[str], *, main: str) -> None:
    """Raise TrainingError where no figure is the main one, or one would stand in another's place."""
    for name in names:
        if not isinstance(name, str):
            message = f"figures() gives a figure named {name!r}, which is no text"
            raise TrainingError(message, hint=f'"class_{name}", say')
        if name in TAKEN:
            message = f"figures() gives a figure `{name}`, a name that {TAKEN[name]} has"
            raise TrainingError(message, hint="another name for that figure")
    if main not in (LOSS, *names):
        near = [*difflib.get_close_matches(main, names, n=1), *names, LOSS]
        message = f"main={main!r} names no figure: figures() gives {', '.join(names) or 'none'}"
        raise TrainingError(message, hint=f"main={near[0]!r}")


def require_values(figures: Mapping[str, Tensor], *, num_samples: int) -> None:
    """Raise TrainingError for a figure without a value for each sample, of which a mean would be wrong."""
    for name, each in figures.items():
        if isinstance(each, Tensor) and each.numel() == num_samples:
            continue
        shape = f"shape {tuple(each.shape)}" if isinstance(each, Tensor) else type(each).__name__
        message = f"figures() gives `{name}` as {shape} for {num_samples} samples"
        raise TrainingError(message, hint="a tensor (N) of a value for each sample, not their mean")


def require_finite(figures: Mapping[str, float], *, hint: str) -> None:
    """Raise TrainingError for the first mean that is not finite; only the loss tells a divergence."""
    for name, mean in figures.items():
        if math.isfinite(mean):
            continue
        if name == LOSS:
            message = "training has diverged: the loss of the validation set is not finite"
            raise TrainingError(message, hint=hint)
        message = f"figures() gives a figure `{name}` whose mean over the validation set is {mean}"
        hint = "a number for each sample, also where 0/0 would be none: torch.nan_to_num"
        raise TrainingError(message, hint=hint)
