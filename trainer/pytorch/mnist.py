"""Trains the small CNN of the MNIST examples on MNIST's IDX files, on any number of ranks.

    launch shell pytorch -- python -m trainer.pytorch.mnist --data data/digits
    launch run digits

The batch size is that of all ranks together, and so is the learning rate: 1, 2 and 4 ranks
see the same global batches in the same order and take the same steps, up to rounding and
dropout. One rank needs no strategy; more take DDP, or Horovod with `--strategy horovod`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress
from trainer.common.sharding import shard, shuffled_batches
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.common.training_options import DeviceName, PrecisionName, TrainingOptions
from trainer.common.world import Backend, RankArguments
from trainer.data.pictures.idx import read_idx
from trainer.data.synthesize.digits import make_default_digits
from trainer.pytorch.finish import waiter, write_results
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.precision import autocast, make_scaler, take_step
from trainer.pytorch.program import run_program
from trainer.pytorch.strategy import Ranks, StrategyName, pick_device

PROGRAM = "trainer.pytorch.mnist"
MAIN_FIGURE = MainFigure(split="test", name="accuracy", goal="max")
SYNTHETIC = "synthetic"
NUM_CLASSES = 10
EVALUATION_BATCH = 1024  # of all ranks together
# Mean and standard deviation of MNIST's training pixels, as its examples use them.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081


@dataclass(frozen=True, kw_only=True)
class Options(TrainingOptions):
    """The command line; parse_options makes it."""

    data: Annotated[
        str | None, "folder of IDX files, or `synthetic`; else the run's input `digits`"
    ] = None
    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    device: Annotated[DeviceName, "device to compute on"] = "auto"
    epochs: Annotated[int, "passes over the training set"] = 8
    batch_size: Annotated[int, "pictures a step, over all ranks together"] = 64
    lr: Annotated[float, "Adadelta's learning rate for that total batch"] = 1.0
    lr_decay: Annotated[float, "factor on the learning rate after each epoch"] = 0.7
    precision: Annotated[PrecisionName, "precision of the network's arithmetic"] = "fp32"
    dist_backend: Annotated[Backend | None, "backend by which DDP's ranks communicate"] = None
    dist_url: Annotated[
        str | None, "where DDP's ranks meet, tcp://HOST:PORT or file:///FILE; else MASTER_ADDR"
    ] = None
    rank: Annotated[int | None, "rank of this process, from 0 (default: RANK)"] = None
    world_size: Annotated[int | None, "number of ranks (default: WORLD_SIZE)"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "batch_size", "lr", "lr_decay")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Pictures (N x 1 x 28 x 28, bytes) and labels (N) of one split, on the device."""

    images: Tensor
    labels: Tensor

    def batch(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Give the rows as normalised floats, and their labels."""
        picked = torch.tensor(rows, dtype=torch.long, device=self.labels.device)
        pixels = self.images[picked].to(torch.float32).div_(255)
        return pixels.sub_(PIXEL_MEAN).div_(PIXEL_STD), self.labels[picked]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Options, ranks, data, network and optimizer of a training, made once by `prepare`.

    `network` is `model` unwrapped.
    """

    options: Options
    ranks: Ranks
    device: torch.device
    training: Split
    testing: Split
    network: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None

    @property
    def num_batches(self) -> int:
        """Steps of one epoch."""
        return math.ceil(len(self.training.labels) / self.options.batch_size)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    arguments = RankArguments(
        dist_backend=options.dist_backend,
        dist_url=options.dist_url,
        rank=options.rank,
        world_size=options.world_size,
    )
    return run_program(
        options, options.strategy, lambda ranks: train(prepare(options, ranks)), arguments
    )


def prepare(options: Options, ranks: Ranks) -> Job:
    """Read the data, meet the other ranks, and make the model that all of them start from."""
    world = ranks.world
    device = pick_device(options.device, world)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
    training, testing = load_splits(find_data(options, ranks), device)
    if options.batch_size < world.size:
        message = f"--batch-size {options.batch_size} leaves a rank of {world.size} without work"
        raise TrainingError(message, hint=f"--batch-size {world.size} or more")

    ranks.strategy.init(world, device)
    torch.manual_seed(options.seed)
    network = build_network().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adadelta(network.parameters(), lr=options.lr)
    model, optimizer = ranks.strategy.wrap(network, optimizer)
    # Each rank drops other neurons, as it sees other pictures.
    torch.manual_seed(random.Random(f"{options.seed}/dropout/{world.rank}").getrandbits(63))
    return Job(
        options=options,
        ranks=ranks,
        device=device,
        training=training,
        testing=testing,
        network=network,
        model=model,
        optimizer=optimizer,
        scaler=make_scaler(options.precision, device),
    )


def train(job: Job) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model."""
    began_s = time.perf_counter()
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    throughput = Throughput(
        num_warmup_steps=min(10, job.num_batches), synchronise=waiter(job.device)
    )
    keeper = make_keeper(job)
    position = keeper.restore(options.epochs)
    trackers = open_trackers(run_dir.outputs / "tensorboard", world, warn=warn)
    found: dict[str, float] = {}
    with (
        contextlib.closing(keeper),
        Metrics(
            run_dir.metrics,
            world,
            after_step=position.step,
            trackers=trackers,
            main=MAIN_FIGURE,
        ) as metrics,
    ):
        progress = Progress(
            metrics,
            world,
            throughput,
            log_every=options.log_every,
            num_batches=job.num_batches,
            num_epochs=options.epochs,
        )
        guard = Guard(job.ranks, job.device, keeper, on_loss=progress.on_loss, hint=hint(options))
        while True:
            if position.epoch and not position.batch:
                loss, accuracy = evaluate(job, position, guard)
                found = {"loss": loss, "accuracy": accuracy}
                progress.on_epoch(position, found)
            if position.epoch == options.epochs:
                break
            with throughput.training():
                position = train_epoch(job, position, guard, throughput)

    write_results(
        job.network,
        job.ranks,
        job.device,
        keeper,
        summary_of(job, found, throughput),
        program=PROGRAM,
        began_s=began_s,
        hint=hint(options),
    )


def summary_of(job: Job, found: Mapping[str, float], throughput: Throughput) -> dict[str, object]:
    """Give the figures that this program's summary has of its own."""
    options = job.options
    return {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "precision": options.precision,
        "seed": options.seed,
        "train_images": len(job.training.labels),
        "test_images": len(job.testing.labels),
        **{f"test_{name}": value for name, value in found.items()},
        "images_per_s": throughput.samples_per_s,
    }


def make_keeper(job: Job) -> Keeper:
    """Keep the weights, the optimizer and the generators of this training."""
    return Keeper(
        Trainable(
            network=job.network, optimizer=job.optimizer, device=job.device, scaler=job.scaler
        ),
        job.ranks,
        options=job.options,
        recipe={
            "program": PROGRAM,
            "batch_size": job.options.batch_size,
            "precision": job.options.precision,
            "lr": job.options.lr,
            "lr_decay": job.options.lr_decay,
            "seed": job.options.seed,
            "num_samples": len(job.training.labels),
        },
    )


def train_epoch(job: Job, position: Position, guard: Guard, throughput: Throughput) -> Position:
    """Take one step per global batch that is left of the epoch; each rank computes its part."""
    options, world = job.options, job.ranks.world
    job.model.train()
    for group in job.optimizer.param_groups:
        group["lr"] = options.lr * options.lr_decay**position.epoch
    order = shuffled_batches(
        len(job.training.labels), options.batch_size, seed=options.seed, epoch=position.epoch + 1
    )
    for number, batch in enumerate(
        itertools.islice(order, position.batch, None), position.batch + 1
    ):
        mine = shard(batch, world)
        images, labels = job.training.batch(mine)
        with autocast(options.precision, job.device):
            scores = job.model(images)
        loss_sum = functional.cross_entropy(scores.float(), labels, reduction="sum")
        job.optimizer.zero_grad()
        # Strategies average over ranks, whose parts of a batch may differ in size by one.
        loss = loss_sum * (world.size / len(batch))
        take_step(loss, job.optimizer, strategy=job.ranks.strategy, scaler=job.scaler)

        throughput.step(len(batch))
        taken = TakenStep(
            step=position.step + 1, epoch=position.epoch + 1, batch=number, samples=mine
        )
        position = position.after_batch(job.num_batches)
        guard.step(position, loss_sum, len(mine), taken=taken)
    guard.settle()
    return position


@torch.no_grad()
def evaluate(job: Job, position: Position, guard: Guard) -> tuple[float, float]:
    """Give mean loss and accuracy over the whole test set, each picture counted once."""
    job.network.eval()
    totals = torch.zeros(2, dtype=torch.float64, device=job.device)  # sum of losses, right ones
    num_images = len(job.testing.labels)
    for start in range(0, num_images, EVALUATION_BATCH):
        batch = list(range(start, min(start + EVALUATION_BATCH, num_images)))
        images, labels = job.testing.batch(shard(batch, job.ranks.world))
        with autocast(job.options.precision, job.device):
            scores = job.network(images).float()
        totals[0] += functional.cross_entropy(scores, labels, reduction="sum")
        totals[1] += (scores.argmax(dim=1) == labels).sum()
        guard.check(position)
    guard.settle()
    loss_total, num_right = job.ranks.strategy.sum(totals).tolist()
    if not math.isfinite(loss_total):
        message = "training has diverged: the loss of the test set is not finite"
        raise TrainingError(message, hint=hint(job.options))
    return loss_total / num_images, num_right / num_images


def hint(options: Options) -> str:
    """Give advice for a training that diverges."""
    return f"a smaller --lr than {options.lr:g}"


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


def find_data(options: Options, ranks: Ranks) -> Path:
    """Give the folder of the IDX files; a synthetic set is made by whichever rank comes first."""
    if options.data == SYNTHETIC:
        return make_default_digits(num_train=1500, num_test=500, seed=options.seed)
    return Path(options.data) if options.data else ranks.run_dir.input("digits")


def load_splits(folder: Path, device: torch.device) -> tuple[Split, Split]:
    """Read training and test set whole; raises TrainingError where they are not MNIST-like."""
    return load_split(folder, "train", device), load_split(folder, "t10k", device)


def load_split(folder: Path, prefix: str, device: torch.device) -> Split:
    """Read one split's pictures and labels."""
    image_shape, pixels = read_idx(folder, f"{prefix}-images-idx3-ubyte")
    label_shape, classes = read_idx(folder, f"{prefix}-labels-idx1-ubyte")
    num_images = label_shape[0]
    if image_shape != (num_images, 28, 28) or num_images == 0 or max(classes) >= NUM_CLASSES:
        message = (
            f"`{folder}` holds {prefix} pictures of shape {image_shape} and {num_images} labels; "
            f"wanted are 28 x 28 pictures with a label of 0 to {NUM_CLASSES - 1} each"
        )
        raise TrainingError(message, hint="launch data prepare digits --to DIR makes such a folder")
    # A copy, since a tensor over immutable bytes would be written through.
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(classes), dtype=torch.uint8)
    return Split(
        images=images.view(num_images, 1, 28, 28).to(device),
        labels=labels.to(device, torch.long),
    )


if __name__ == "__main__":
    sys.exit(main())
