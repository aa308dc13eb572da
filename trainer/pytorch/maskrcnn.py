"""Trains torchvision's Mask R-CNN on data in COCO's format, on any number of ranks.

    launch shell pytorch -- python -m trainer.pytorch.maskrcnn \\
        --data synthetic --backbone resnet18 --image-size 128
    launch run maskrcnn-synthetic
    launch shell pytorch -- python -m trainer.pytorch.maskrcnn \\
        --predict photo.jpg --weights outputs/model/maskrcnn.safetensors

Each rank takes `--batch-per-rank` pictures a step; the learning rate is for 16 pictures and grows
with the global batch. COCO's own figures for boxes and masks are taken after each epoch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn

from trainer.common.errors import TrainingError
from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress
from trainer.common.schedule import Schedule, ScheduleName
from trainer.common.sharding import shard
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.common.training_options import TrainingOptions
from trainer.data.pictures.coco import CocoPicture, CocoSplit, open_splits
from trainer.data.pictures.coco_batches import count_batches, grouped_batches, is_flipped
from trainer.pytorch.finish import waiter, write_results
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.loader import num_workers
from trainer.pytorch.maskrcnn_evaluation import evaluate
from trainer.pytorch.maskrcnn_loading import SYNTHETIC, Reader, Sample, find_data, read_sample
from trainer.pytorch.maskrcnn_model import BackboneName, Design, make_network, write_design
from trainer.pytorch.maskrcnn_picture import predict
from trainer.pytorch.networks import NO_WEIGHTS
from trainer.pytorch.precision import PrecisionName, autocast, make_scaler, make_sgd, take_step
from trainer.pytorch.program import run_program
from trainer.pytorch.strategy import (
    DeviceName,
    Ranks,
    StrategyName,
    average_buffers,
    pick_device,
)

PROGRAM = "trainer.pytorch.maskrcnn"
MAIN_FIGURE = MainFigure(split="val", name="mask_ap", goal="max")
# The batch that `--lr` is for, and where the rate falls: after 16 and 22 of 26 epochs.
LR_BATCH = 16
STEPS_AT = (16 / 26, 22 / 26)
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4


@dataclass(frozen=True, kw_only=True)
class Options(TrainingOptions):
    """The command line; parse_options makes it."""

    data: Annotated[
        str | None, "folder in COCO 2017's format, or `synthetic`; else the run's input `coco`"
    ] = None
    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    device: Annotated[DeviceName, "device to compute on"] = "auto"
    epochs: Annotated[int, "passes over the training set"] = 26
    max_steps: Annotated[int | None, "end after this many steps, in place of --epochs"] = None
    batch_per_rank: Annotated[int, "pictures per step on each rank"] = 2
    lr: Annotated[float, "peak of SGD's learning rate for 16 pictures a step over all ranks"] = 0.02
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "step"
    warmup_steps: Annotated[int, "steps of linear warm-up (at most a quarter of all steps)"] = 1000
    precision: Annotated[
        PrecisionName, "precision of the network's arithmetic; weights are fp32"
    ] = "fp32"
    backbone: Annotated[BackboneName, "the ResNet under the feature pyramid"] = "resnet50"
    image_size: Annotated[int, "pixels that a picture's shorter side is scaled to"] = 800
    regions_per_image: Annotated[
        int, "regions that the heads learn from; twice as many are looked at"
    ] = 512
    weights: Annotated[
        Path | None, "begin from, or predict with: .safetensors, torchvision's .pth, checkpoints"
    ] = None
    backbone_weights: Annotated[
        Path | None, "begin from a classifier's weights; `none` begins from random ones"
    ] = None
    evaluate: Annotated[bool, "COCO's figures after each epoch and at the end"] = True
    predict: Annotated[
        Path | None, "draw the objects that --weights find in this picture; do not train"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "max_steps", "batch_per_rank", "lr", "regions_per_image")
        self.require_at_least(32, "image_size")
        self.require_at_least(0, "warmup_steps")
        if self.weights and self.backbone_weights:
            message = "--weights hold a backbone: leave out --backbone-weights"
            raise ValueError(message)
        if self.predict and not self.weights:
            message = "--predict needs --weights"
            raise ValueError(message)

    @property
    def is_pretrained(self) -> bool:
        """True if training begins from weights of a file."""
        return {self.weights, self.backbone_weights} - {None, NO_WEIGHTS} != set()


@dataclass(frozen=True, kw_only=True)
class Job:
    """Options, ranks, data, network and optimizer of a training, made once by `prepare`.

    `network` is `model` unwrapped. `training` holds the pictures that have objects to learn.
    """

    options: Options
    ranks: Ranks
    device: torch.device
    design: Design
    training: Sequence[CocoPicture]
    validation: CocoSplit
    network: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks together."""
        return self.options.batch_per_rank * self.ranks.world.size

    @property
    def is_wide(self) -> list[bool]:
        """The orientation of each training picture."""
        return [picture.width >= picture.height for picture in self.training]

    @property
    def num_batches(self) -> int:
        """Steps of one epoch."""
        return count_batches(self.is_wide, self.batch_size)

    @property
    def num_steps(self) -> int:
        """Steps of the whole training."""
        num_steps = self.options.epochs * self.num_batches
        return min(num_steps, self.options.max_steps or num_steps)

    @property
    def schedule(self) -> Schedule:
        """The learning rate of every step."""
        return Schedule(
            name=self.options.schedule,
            peak=self.options.lr * self.batch_size / LR_BATCH,
            num_steps=self.num_steps,
            num_warmup_steps=min(self.options.warmup_steps, self.num_steps // 4),
            steps_at=STEPS_AT,
        )

    @property
    def boxes_per_image(self) -> float:
        """Objects that a training picture has on average: the speed depends on it."""
        return sum(len(picture.objects) for picture in self.training) / len(self.training)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    if options.predict is not None and options.weights is not None:
        picture, weights = options.predict, options.weights
        return run_program(options, "single", lambda ranks: predict(picture, weights, ranks))
    return run_program(options, options.strategy, lambda ranks: train(prepare(options, ranks)))


def prepare(options: Options, ranks: Ranks) -> Job:
    """Meet the other ranks, open the data, and make the model that all of them start from."""
    world = ranks.world
    device = pick_device(options.device, world)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, as cuDNN's convolutions have it
    ranks.strategy.init(world, device)
    folder = find_data(options.data, ranks.run_dir, seed=options.seed)
    training, validation = open_splits(folder)
    design = Design(
        backbone=options.backbone, image_size=options.image_size, classes=training.classes
    )
    torch.manual_seed(options.seed)
    network = make_network(
        design,
        weights=options.weights,
        backbone_weights=options.backbone_weights,
        folder=folder,
        is_made=options.data == SYNTHETIC,
        regions_per_image=options.regions_per_image,
        say=print if world.is_main else lambda _: None,
    )
    network = network.to(device, memory_format=torch.channels_last)
    learning = [each for each in network.parameters() if each.requires_grad]
    scaler = make_scaler(options.precision, device)
    group = {"params": learning, "weight_decay": WEIGHT_DECAY}
    optimizer = make_sgd([group], lr=options.lr, momentum=MOMENTUM, scaler=scaler)
    model, optimizer = ranks.strategy.wrap(network, optimizer)
    # Each rank draws other regions to learn from, as it sees other pictures.
    torch.manual_seed(random.Random(f"{options.seed}/regions/{world.rank}").getrandbits(63))
    job = Job(
        options=options,
        ranks=ranks,
        device=device,
        design=design,
        training=tuple(picture for picture in training.pictures if picture.objects),
        validation=validation,
        network=network,
        model=model,
        optimizer=optimizer,
        scaler=scaler,
    )
    if job.num_batches == 0:
        message = f"{len(job.training)} pictures with objects fill no batch of {job.batch_size}"
        raise TrainingError(message, hint="a smaller --batch-per-rank, or fewer ranks")
    if training.num_unusable and world.is_main:
        warn(f"{training.num_unusable} objects without area or outline are left out of training")
    return job


def train(job: Job) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model."""
    began_s = time.perf_counter()
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    throughput = Throughput(
        num_warmup_steps=min(10, job.num_steps // 2), synchronise=waiter(job.device)
    )
    keeper = make_keeper(job)
    position = keeper.restore(options.epochs)
    trackers = open_trackers(run_dir.outputs / "tensorboard", world, warn=warn)
    figures: dict[str, float] = {}
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
            num_epochs=math.ceil(job.num_steps / job.num_batches),
            num_steps=job.num_steps,
        )
        guard = Guard(job.ranks, job.device, keeper, on_loss=progress.on_loss, hint=hint(options))
        while True:
            is_over = position.step >= job.num_steps
            if is_over or (position.epoch and not position.batch):
                found = judge(job, position, guard, progress, metrics)
                figures = {f"val_{name}": value for name, value in found.items()}
            if is_over:
                break
            with throughput.training():
                position = train_epoch(job, position, guard, throughput)

    if job.ranks.world.is_main:
        write_design(job.design, run_dir.output("model") / "maskrcnn.json")
    write_results(
        job.network,
        job.ranks,
        job.device,
        keeper,
        {**summary_of(job, position, throughput), **figures},
        program=PROGRAM,
        began_s=began_s,
        hint=hint(options),
    )


def summary_of(job: Job, position: Position, throughput: Throughput) -> dict[str, object]:
    """Give the figures that this program's summary has of its own."""
    options = job.options
    return {
        "precision": options.precision,
        "backbone": options.backbone,
        "image_size": options.image_size,
        "epochs": options.epochs,
        "steps": position.step,
        "batch_size": job.batch_size,
        "seed": options.seed,
        "train_images": len(job.training),
        "val_images": len(job.validation.pictures),
        "images_per_s": throughput.samples_per_s,
        "boxes_per_image": job.boxes_per_image,
    }


def make_keeper(job: Job) -> Keeper:
    """Keep the weights, the optimizer and the generators of this training."""
    trained = Trainable(
        network=job.network, optimizer=job.optimizer, device=job.device, scaler=job.scaler
    )
    recipe = {
        "program": PROGRAM,
        "batch_size": job.batch_size,
        "precision": job.options.precision,
        "seed": job.options.seed,
        "num_samples": len(job.training),
        "is_pretrained": job.options.is_pretrained,
        "lr": job.options.lr,
        "schedule": job.options.schedule,
        "warmup_steps": job.options.warmup_steps,
        "regions_per_image": job.options.regions_per_image,
        **job.design.as_json(),
    }
    return Keeper(trained, job.ranks, options=job.options, recipe=recipe)


def train_epoch(job: Job, position: Position, guard: Guard, throughput: Throughput) -> Position:
    """Take one step per global batch that is left of the epoch; each rank computes its part."""
    options, schedule = job.options, job.schedule
    job.model.train()
    with Reader(num_workers(job.ranks.world, job.device)) as reader:
        for samples in reader.batches(reads_left(job, position)):
            for group in job.optimizer.param_groups:
                group["lr"] = schedule.rate(position.step)
            images, targets = zip(*(sample.on(job.device) for sample in samples), strict=True)
            with autocast(options.precision, job.device):
                losses = job.model(list(images), list(targets))
            loss = torch.stack([each.float() for each in losses.values()]).sum()
            job.optimizer.zero_grad()
            take_step(loss, job.optimizer, strategy=job.ranks.strategy, scaler=job.scaler)

            throughput.step(job.batch_size)
            taken = TakenStep(
                step=position.step + 1,
                epoch=position.epoch + 1,
                batch=position.batch + 1,
                samples=[sample.picture.id for sample in samples],
            )
            position = position.after_batch(job.num_batches)
            guard.step(position, loss.detach() * len(samples), len(samples), taken=taken)
    guard.settle()
    return position


def reads_left(job: Job, position: Position) -> Iterator[list[Callable[[], Sample]]]:
    """Yield the readers of this rank's part of each batch that is left of the epoch."""
    seed, epoch = job.options.seed, position.epoch + 1
    order = grouped_batches(job.is_wide, job.batch_size, seed=seed, epoch=epoch)
    last = position.batch + job.num_steps - position.step
    for batch in itertools.islice(order, position.batch, last):
        yield [
            functools.partial(
                read_sample,
                job.training[index],
                is_flipped=is_flipped(index, seed=seed, epoch=epoch),
            )
            for index in shard(batch, job.ranks.world)
        ]


def judge(
    job: Job, position: Position, guard: Guard, progress: Progress, metrics: Metrics
) -> dict[str, float]:
    """Give COCO's figures on rank 0 and log them; only two of them are worth a line."""
    guard.settle()
    average_buffers(job.network, job.ranks.strategy, job.ranks.world)
    if not job.options.evaluate:
        progress.on_epoch(position, {}, split="val")
        return {}
    figures = evaluate(
        job.network,
        job.validation,
        job.ranks,
        job.device,
        check=lambda: guard.check(position),
        say=progress.say,
    )
    guard.settle()
    shown = {name: figures[name] for name in ("box_ap", "mask_ap") if name in figures}
    progress.on_epoch(position, shown, split="val")
    others = {name: value for name, value in figures.items() if name not in shown}
    epoch = position.step / job.num_batches
    metrics.log(step=position.step, epoch=epoch, split="val", **others)
    return figures


def hint(options: Options) -> str:
    """Give advice for a training that diverges."""
    return f"a smaller --lr than {options.lr:g}, or more --warmup-steps"


if __name__ == "__main__":
    sys.exit(main())
