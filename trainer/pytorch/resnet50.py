"""Trains ResNet-50 on ImageNet, or on any pictures in class folders, on any number of ranks.

    launch shell pytorch -- python -m trainer.pytorch.resnet50 \\
        --data synthetic --image-size 64 --epochs 4
    launch run resnet50-pytorch-synthetic

`--data` takes a folder (docs/training-resnet50.md), `synthetic` for a small set of JPEGs that is
made on the spot, or `random` for one batch of noise on the device, to measure speed. The recipe is
that of Goyal et al. 2017 (arXiv 1706.02677): the learning rate grows with the batch of all ranks,
after a warm-up. One rank needs no strategy; more take DDP, or Horovod with `--strategy horovod`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn
from torch.nn import functional

from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule
from trainer.common.sharding import rank_batches
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.data.pictures.crops import Crop, picture_rng, random_crop
from trainer.pytorch.evaluation import evaluate
from trainer.pytorch.finish import waiter, write_results
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.loader import normalise
from trainer.pytorch.networks import build_resnet, load_pretrained, parameter_groups
from trainer.pytorch.picture_data import (
    RANDOM,
    SYNTHETIC,
    Data,
    MadeSet,
    make_noise,
    make_on_each_node,
    open_loaders,
    require_full_batch,
)
from trainer.pytorch.precision import autocast, make_scaler, make_sgd, take_step
from trainer.pytorch.program import run_program
from trainer.pytorch.strategy import Ranks, StrategyName, pick_device

PROGRAM = "trainer.pytorch.resnet50"
MAIN_FIGURE = MainFigure(split="val", name="top1", goal="max")


@dataclass(frozen=True, kw_only=True)
class Options(ResnetOptions):
    """The command line; parse_options makes it."""

    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    compile: Annotated[bool, "let torch.compile make kernels for this network"] = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """Options, ranks, data, network and optimizer of a training, made once by `prepare`.

    `network` is `model` unwrapped.
    """

    options: Options
    ranks: Ranks
    device: torch.device
    data: Data
    network: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks together."""
        return self.options.batch_per_rank * self.ranks.world.size

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the pictures of a last, smaller batch come in another epoch."""
        return self.data.num_train // self.batch_size

    @property
    def schedule(self) -> Schedule:
        """The learning rate of every step."""
        return self.options.rates(batch_size=self.batch_size, num_batches=self.num_batches)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(options, options.strategy, lambda ranks: train(prepare(options, ranks)))


def prepare(options: Options, ranks: Ranks) -> Job:
    """Meet the other ranks, open the data, and make the model that all of them start from."""
    world = ranks.world
    device = pick_device(options.device, world)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")  # TF32, as cuDNN's convolutions have it
    ranks.strategy.init(world, device)
    data = open_data(options, ranks, device)
    require_full_batch(data.num_train, batch_per_rank=options.batch_per_rank, world_size=world.size)

    torch.manual_seed(options.seed)
    network = build_resnet("resnet50", len(data.classes))
    if options.weights is not None:
        load_pretrained(network, options.weights, say=print if world.is_main else lambda _: None)
    network = network.to(device, memory_format=torch.channels_last)
    groups = parameter_groups(network, weight_decay=options.weight_decay)
    scaler = make_scaler(options.precision, device)
    optimizer = make_sgd(groups, lr=options.lr, momentum=options.momentum, scaler=scaler)
    model, optimizer = ranks.strategy.wrap(network, optimizer)
    return Job(
        options=options,
        ranks=ranks,
        device=device,
        data=data,
        network=network,
        model=torch.compile(model) if options.compile else model,
        optimizer=optimizer,
        scaler=scaler,
    )


def open_data(options: Options, ranks: Ranks, device: torch.device) -> Data:
    """Open the folder, or make what `--data` names; a collective."""
    made = MadeSet(
        num_classes=options.num_classes,
        num_train=options.num_images,
        size=options.image_size,
        seed=options.seed,
    )
    if options.data == RANDOM:
        return make_noise(made, device, batch=options.batch_per_rank)
    if options.data == SYNTHETIC:
        folder = make_on_each_node(made, ranks)
    else:
        folder = Path(options.data) if options.data else ranks.run_dir.input("imagenet")
    data, _, _ = open_loaders(
        folder, ranks, device, size=options.image_size, workers=options.workers
    )
    return data


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
        guard = Guard(job.ranks, job.device, keeper, on_loss=progress.on_loss, hint=options.hint)
        while True:
            if position.epoch and not position.batch:
                found = evaluate(
                    job.network,
                    job.data.val,
                    num_images=job.data.num_val,
                    num_classes=len(job.data.classes),
                    batch_size=job.batch_size,
                    sees=normalise,
                    ranks=job.ranks,
                    device=job.device,
                    precision=options.precision,
                    guard=guard,
                    position=position,
                    hint=options.hint,
                )
                progress.on_epoch(position, found, split="val")
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
        hint=options.hint,
    )


def summary_of(job: Job, found: Mapping[str, float], throughput: Throughput) -> dict[str, object]:
    """Give the figures that this program's summary has of its own."""
    options, threads = job.options, job.data.threads
    return {
        "precision": options.precision,
        "epochs": options.epochs,
        "batch_size": job.batch_size,
        "image_size": options.image_size,
        "seed": options.seed,
        "parameters": sum(each.numel() for each in job.network.parameters()),
        "train_images": job.data.num_train,
        "val_images": job.data.num_val,
        **{f"val_{name}": value for name, value in found.items()},
        "images_per_s": throughput.samples_per_s,
        "decoded_per_core_per_s": threads.decoded_per_core_per_s if threads else None,
    }


def make_keeper(job: Job) -> Keeper:
    """Keep the weights, the optimizer and the generators of this training."""
    trained = Trainable(
        network=job.network, optimizer=job.optimizer, device=job.device, scaler=job.scaler
    )
    recipe = job.options.recipe(
        PROGRAM,
        batch_size=job.batch_size,
        num_samples=job.data.num_train,
        num_classes=len(job.data.classes),
    )
    return Keeper(trained, job.ranks, options=job.options, recipe=recipe)


def train_epoch(job: Job, position: Position, guard: Guard, throughput: Throughput) -> Position:
    """Take one step per global batch that is left of the epoch; each rank computes its part."""
    options, schedule = job.options, job.schedule
    job.model.train()
    epoch = position.epoch + 1
    mine = rank_batches(
        job.data.num_train,
        job.batch_size,
        job.ranks.world,
        seed=options.seed,
        epoch=epoch,
        shard_sizes=job.data.shard_sizes,
        first=position.batch,
    )

    def crop_of(index: int, width: int, height: int) -> Crop:
        return random_crop(width, height, picture_rng(options.seed, epoch, index))

    for batch in job.data.train.batches(mine, crop_of):
        for group in job.optimizer.param_groups:
            group["lr"] = schedule.rate(position.step)
        with autocast(options.precision, job.device):
            scores = job.model(normalise(batch.images))
            loss = functional.cross_entropy(
                scores, batch.labels, label_smoothing=options.label_smoothing
            )
        job.optimizer.zero_grad()
        take_step(loss, job.optimizer, strategy=job.ranks.strategy, scaler=job.scaler)

        throughput.step(job.batch_size)
        taken = TakenStep(
            step=position.step + 1, epoch=epoch, batch=position.batch + 1, samples=batch.samples
        )
        position = position.after_batch(job.num_batches)
        num_mine = len(batch.samples)
        guard.step(position, loss.detach() * num_mine, num_mine, taken=taken)
    guard.settle()
    return position


if __name__ == "__main__":
    sys.exit(main())
