"""Trains the small CNN of the MNIST examples on MNIST's IDX files, on any number of ranks.

    python -m trainer.pytorch.mnist --data data/digits
    launch run digits

The batch size is that of all ranks together, and so is the learning rate: 1, 2 and 4 ranks
see the same global batches in the same order and take the same steps, up to rounding and
dropout. One rank needs no strategy; more take DDP, or Horovod with `--strategy horovod`.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.common.errors import TrainingError
from trainer.common.metrics import Metrics
from trainer.common.options import parse_options
from trainer.common.rundir import RunDir
from trainer.common.sharding import shard, shuffled_batches
from trainer.common.throughput import Throughput
from trainer.common.world import World
from trainer.data.idx import read_idx
from trainer.pytorch.state import save_weights, weights_digest
from trainer.pytorch.strategy import (
    DeviceName,
    Strategy,
    StrategyName,
    make_strategy,
    pick_device,
)

NUM_CLASSES = 10
EVALUATION_BATCH = 512
# Mean and standard deviation of MNIST's training pixels, as its examples use them.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line; parse_options makes it."""

    data: Annotated[Path | None, "folder of the IDX files; else the run's input `digits`"] = None
    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    device: Annotated[DeviceName, "where to compute"] = "auto"
    epochs: Annotated[int, "passes over the training set"] = 8
    batch_size: Annotated[int, "pictures a step, over all ranks together"] = 64
    lr: Annotated[float, "Adadelta's learning rate for that total batch"] = 1.0
    lr_decay: Annotated[float, "factor on the learning rate after each epoch"] = 0.7
    seed: Annotated[int, "of weights, order and dropout"] = 1
    log_every: Annotated[int, "steps between two lines of training metrics"] = 5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr", "lr_decay", "log_every"):
            if getattr(self, name) <= 0:
                message = f"--{name.replace('_', '-')} must be above 0, not {getattr(self, name)}"
                raise ValueError(message)


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
    """All that training needs, made once by `prepare`; `network` is `model` unwrapped."""

    options: Options
    world: World
    strategy: Strategy
    device: torch.device
    training: Split
    testing: Split
    network: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer

    @property
    def num_steps(self) -> int:
        """Steps of one epoch."""
        return math.ceil(len(self.training.labels) / self.options.batch_size)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    try:
        world = World.from_environment()
        strategy = make_strategy(options.strategy, world)
        run_dir = RunDir.from_environment()
        try:
            train(prepare(options, world, strategy, run_dir), run_dir)
        finally:
            strategy.shutdown()
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def prepare(options: Options, world: World, strategy: Strategy, run_dir: RunDir) -> Job:
    """Read the data, meet the other ranks, and make the model that all of them start from."""
    torch.set_num_threads(world.num_threads)
    device = pick_device(options.device, world)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
    training, testing = load_splits(options.data or run_dir.input("digits"), device)
    if options.batch_size < world.size:
        message = f"--batch-size {options.batch_size} leaves a rank of {world.size} without work"
        raise TrainingError(message, hint=f"--batch-size {world.size} or more")

    strategy.init(world, device)
    torch.manual_seed(options.seed)
    network = build_network().to(device)
    optimizer = torch.optim.Adadelta(network.parameters(), lr=options.lr)
    model, optimizer = strategy.wrap(network, optimizer)
    # Each rank drops other neurons, as it sees other pictures.
    torch.manual_seed(random.Random(f"{options.seed}/dropout/{world.rank}").getrandbits(63))
    return Job(
        options=options,
        world=world,
        strategy=strategy,
        device=device,
        training=training,
        testing=testing,
        network=network,
        model=model,
        optimizer=optimizer,
    )


def train(job: Job, run_dir: RunDir) -> None:
    """Train, evaluate after every epoch, and write metrics, summary and model."""
    began = time.perf_counter()
    options = job.options
    throughput = Throughput(num_warmup_steps=min(10, job.num_steps), synchronise=waiter(job.device))
    test_loss, accuracy = math.nan, math.nan
    recent = torch.zeros(2, dtype=torch.float64, device=job.device)  # sum of losses, samples
    with Metrics(run_dir.metrics, job.world) as metrics:
        for epoch in range(1, options.epochs + 1):
            for group in job.optimizer.param_groups:
                group["lr"] = options.lr * options.lr_decay ** (epoch - 1)
            with throughput.training():
                train_epoch(job, epoch, recent, throughput, metrics)
            test_loss, accuracy = evaluate(job)
            step = epoch * job.num_steps
            metrics.log(step=step, epoch=epoch, split="test", loss=test_loss, accuracy=accuracy)
            rate = throughput.samples_per_s
            if rate is not None:
                metrics.log(step=step, epoch=epoch, split="train", images_per_s=rate)
            if job.world.is_main:
                speed = "" if rate is None else f"   {rate:,.0f} images/s"
                figures = f"test loss {test_loss:.4f}   test accuracy {accuracy:.2%}"
                print(f"epoch {epoch:2}/{options.epochs}   {figures}{speed}", flush=True)

    digests = gather_digests(job)
    if job.world.is_main:
        save_weights(job.network, run_dir.output("model") / "mnist.pt")
        run_dir.write_summary(
            {
                "program": "trainer.pytorch.mnist",
                "strategy": job.strategy.name,
                "world_size": job.world.size,
                "device": job.device.type,
                "epochs": options.epochs,
                "batch_size": options.batch_size,
                "seed": options.seed,
                "train_images": len(job.training.labels),
                "test_images": len(job.testing.labels),
                "test_loss": test_loss,
                "test_accuracy": accuracy,
                "images_per_s": throughput.samples_per_s,
                "train_s": round(time.perf_counter() - began, 3),
                "weights_sha256": digests,
            }
        )
    # No rank says that all is well before the model is on disk.
    job.strategy.barrier()


def train_epoch(
    job: Job, epoch: int, recent: Tensor, throughput: Throughput, metrics: Metrics
) -> None:
    """Take one step per global batch; each rank computes its part of every batch.

    `recent` holds this rank's sum of losses and number of samples since the last line of
    metrics, across epochs, so that every line is about as many samples.
    """
    options, world = job.options, job.world
    job.model.train()
    step = (epoch - 1) * job.num_steps
    for batch in shuffled_batches(
        len(job.training.labels), options.batch_size, seed=options.seed, epoch=epoch
    ):
        images, labels = job.training.batch(shard(batch, world))
        loss_sum = functional.cross_entropy(job.model(images), labels, reduction="sum")
        job.optimizer.zero_grad()
        # Strategies average over ranks, whose parts of a batch may differ in size by one.
        (loss_sum * (world.size / len(batch))).backward()
        job.optimizer.step()

        step += 1
        throughput.step(len(batch))
        recent[0] += loss_sum.detach()
        recent[1] += len(labels)
        if step % options.log_every == 0:
            loss_total, num_samples = job.strategy.sum(recent).tolist()
            loss = check_loss(loss_total / num_samples, f"step {step} (epoch {epoch})", options)
            metrics.log(step=step, epoch=step / job.num_steps, split="train", loss=loss)
            recent.zero_()


@torch.no_grad()
def evaluate(job: Job) -> tuple[float, float]:
    """Give mean loss and accuracy over the whole test set, each picture counted once."""
    job.network.eval()
    totals = torch.zeros(2, dtype=torch.float64, device=job.device)  # sum of losses, right ones
    mine = shard(list(range(len(job.testing.labels))), job.world)
    for start in range(0, len(mine), EVALUATION_BATCH):
        images, labels = job.testing.batch(mine[start : start + EVALUATION_BATCH])
        scores = job.network(images)
        totals[0] += functional.cross_entropy(scores, labels, reduction="sum")
        totals[1] += (scores.argmax(dim=1) == labels).sum()
    loss_total, num_right = job.strategy.sum(totals).tolist()
    num_images = len(job.testing.labels)
    return check_loss(loss_total / num_images, "the test set", job.options), num_right / num_images


def check_loss(loss: float, where: str, options: Options) -> float:
    """Give the loss back; raises TrainingError, on all ranks alike, where it is no number."""
    if not math.isfinite(loss):
        message = f"the loss is {loss} at {where}: training has diverged"
        raise TrainingError(message, hint=f"a smaller --lr than {options.lr:g}")
    return loss


def build_network() -> nn.Module:
    """Make the CNN: 1 x 28 x 28 pixels to 10 scores."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 32, kernel_size=3),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, kernel_size=3),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            dropout1=nn.Dropout(0.25),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * 12 * 12, 128),
            relu3=nn.ReLU(),
            dropout2=nn.Dropout(0.5),
            fc2=nn.Linear(128, NUM_CLASSES),
        )
    )


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


def gather_digests(job: Job) -> list[str]:
    """Give the SHA-256 of every rank's weights; raises TrainingError where two differ."""
    digest = list(weights_digest(job.network))
    mine = torch.tensor(digest, dtype=torch.uint8, device=job.device)
    digests = [bytes(part.tolist()).hex() for part in job.strategy.gather(mine)]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            message = f"rank {rank} ended with other weights than rank 0"
            raise TrainingError(message)
    return digests


def waiter(device: torch.device) -> Callable[[], None]:
    """Give what waits until the device has done all it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


if __name__ == "__main__":
    sys.exit(main())
