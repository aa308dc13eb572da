"""Teaches a pretrained ResNet to tell ants from bees, or any classes of few pictures.

    launch shell pytorch -- python -m trainer.pytorch.hymenoptera \\
        --data data/hymenoptera --weights resnet18.safetensors
    launch run hymenoptera-synthetic

`--train head` freezes the backbone: each picture runs through it once, uncropped but for its
middle and never mirrored, and only the head sees epochs. `--train all` fine-tunes every weight on
random crops. Source: torchvision's tutorial on transfer learning. `--data` takes a folder
(docs/training-resnet50.md), or `synthetic` for drawn insects. At the end validation pictures and
what they were taken for are drawn into predictions.png.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.common.messages import warn
from trainer.common.metrics import MainFigure, Metrics
from trainer.common.options import parse_options
from trainer.common.position import Position, TakenStep
from trainer.common.progress import Progress
from trainer.common.schedule import Schedule, ScheduleName
from trainer.common.sharding import rank_batches
from trainer.common.throughput import Throughput
from trainer.common.trackers import open_trackers
from trainer.common.training_options import TrainingOptions
from trainer.data.pictures.crops import Crop, picture_rng, random_crop
from trainer.data.pictures.grid import write_grid
from trainer.data.pictures.splits import Pictures
from trainer.data.synthesize.stripes import INSECTS
from trainer.pytorch.evaluation import evaluate
from trainer.pytorch.features import compute_features
from trainer.pytorch.finish import waiter, write_results
from trainer.pytorch.guard import Guard
from trainer.pytorch.keeper import Keeper, Trainable
from trainer.pytorch.loader import Source, normalise
from trainer.pytorch.networks import NetworkName, build_resnet, find_weights, load_pretrained
from trainer.pytorch.picture_data import (
    SYNTHETIC,
    Data,
    MadeSet,
    make_on_each_node,
    open_loaders,
    require_full_batch,
)
from trainer.pytorch.precision import PrecisionName, autocast, make_scaler, make_sgd, take_step
from trainer.pytorch.predictions import predict_some
from trainer.pytorch.program import run_program
from trainer.pytorch.strategy import (
    DeviceName,
    Ranks,
    StrategyName,
    pick_device,
)

PROGRAM = "trainer.pytorch.hymenoptera"
MAIN_FIGURE = MainFigure(split="val", name="top1", goal="max")
LR_BATCH = 256
NUM_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Options(TrainingOptions):
    """The command line; parse_options makes it."""

    data: Annotated[str | None, "folder, or `synthetic`; else the run's input `hymenoptera`"] = None
    strategy: Annotated[StrategyName | None, "how ranks work together"] = None
    device: Annotated[DeviceName, "device to compute on"] = "auto"
    precision: Annotated[
        PrecisionName, "precision of the network's arithmetic; weights are fp32"
    ] = "fp32"
    network: Annotated[NetworkName, "network of the weights"] = "resnet18"
    weights: Annotated[
        Path | None, "file of pretrained weights, here or in the data's folder; `none` for random"
    ] = None
    train: Annotated[Literal["head", "all"], "the last layer only, or every weight"] = "head"
    epochs: Annotated[int, "passes over the training set"] = 25
    batch_per_rank: Annotated[int, "pictures per step on each rank"] = 16
    image_size: Annotated[int, "side of the network's input, in pixels"] = 224
    lr: Annotated[float, "peak learning rate for 256 pictures a step"] = 0.06
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "cosine"
    momentum: Annotated[float, "momentum of SGD"] = 0.9
    workers: Annotated[int | None, "decoding threads per rank (default: its share of cores)"] = None
    num_images: Annotated[int, "training pictures of a synthetic set"] = 240

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "lr", "workers")
        self.require_at_least(2, "batch_per_rank")  # batch statistics of one picture are none
        self.require_at_least(32, "image_size")
        self.require_at_least(0, "momentum")
        self.require_at_least(len(INSECTS), "num_images")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Options, ranks, data, network and optimizer of a training, made once by `prepare`.

    `part` is what trains: the network or its head; `model` is that wrapped. `train` and `val` are
    the batches it gets, of pictures or of features; `sees` turns them into what it takes.
    """

    options: Options
    ranks: Ranks
    device: torch.device
    data: Data
    val_pictures: Pictures
    train: Source
    val: Source
    sees: Callable[[Tensor], Tensor]
    network: nn.Module
    part: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    throughput: Throughput

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks together."""
        return self.options.batch_per_rank * self.ranks.world.size

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the pictures of a last, smaller batch come in another epoch."""
        return self.data.num_train // self.batch_size


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
    folder = find_data(options, ranks)
    data, train_pictures, val_pictures = open_loaders(
        folder, ranks, device, size=options.image_size, workers=options.workers
    )
    require_full_batch(data.num_train, batch_per_rank=options.batch_per_rank, world_size=world.size)

    is_made = options.data == SYNTHETIC
    weights = find_weights(options.weights, folder, option="--weights", is_made=is_made)
    torch.manual_seed(options.seed)
    network = build_resnet(options.network, len(data.classes))
    if weights is not None:
        load_pretrained(network, weights, say=print if world.is_main else lambda _: None)
    elif options.train == "head" and world.is_main:
        warn("without --weights the frozen backbone is random")
    network = network.to(device, memory_format=torch.channels_last)
    throughput = Throughput(num_warmup_steps=1, synchronise=waiter(device))
    part, train, val, sees = network, data.train, data.val, normalise
    if options.train == "head":
        part, sees = network.fc, lambda rows: rows
        seen = partial(
            compute_features,
            *(network, ranks),
            device=device,
            precision=options.precision,
            throughput=throughput,
        )
        train = seen(data.train, train_pictures.labels)
        val = seen(data.val, val_pictures.labels)
    scaler = make_scaler(options.precision, device)
    optimizer = make_sgd(part.parameters(), lr=options.lr, momentum=options.momentum, scaler=scaler)
    model, optimizer = ranks.strategy.wrap(part, optimizer)
    return Job(
        options=options,
        ranks=ranks,
        device=device,
        data=data,
        val_pictures=val_pictures,
        train=train,
        val=val,
        sees=sees,
        network=network,
        part=part,
        model=model,
        optimizer=optimizer,
        scaler=scaler,
        throughput=throughput,
    )


def find_data(options: Options, ranks: Ranks) -> Path:
    """Give the folder of pictures; drawn first where `--data` says so. A collective."""
    if options.data != SYNTHETIC:
        return Path(options.data) if options.data else ranks.run_dir.input("hymenoptera")
    drawn = MadeSet(
        names=INSECTS,
        num_classes=len(INSECTS),
        num_train=options.num_images,
        size=options.image_size,
        seed=options.seed,
    )
    return make_on_each_node(drawn, ranks)


def train(job: Job) -> None:
    """Train from where the last checkpoint left off, evaluate after every epoch, write the model."""
    began_s = time.perf_counter()
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    # A step on features sees no picture: only the pass that made them has a rate of pictures.
    throughput = (
        job.throughput if options.train == "all" else Throughput(num_warmup_steps=sys.maxsize)
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
                found = evaluate(
                    job.part,
                    job.val,
                    num_images=job.data.num_val,
                    num_classes=len(job.data.classes),
                    batch_size=job.batch_size,
                    sees=job.sees,
                    ranks=job.ranks,
                    device=job.device,
                    precision=options.precision,
                    guard=guard,
                    position=position,
                    hint=hint(options),
                )
                progress.on_epoch(position, found, split="val")
            if position.epoch == options.epochs:
                break
            with throughput.training():
                position = train_epoch(job, position, guard, throughput)

    if world.is_main:
        draw_predictions(job)
    write_results(
        job.network,
        job.ranks,
        job.device,
        keeper,
        summary_of(job, found, job.throughput),
        program=PROGRAM,
        began_s=began_s,
        hint=hint(options),
    )


def draw_predictions(job: Job) -> None:
    """Draw validation pictures with what the network takes them for."""
    predictions = predict_some(
        job.network,
        job.data.val,
        job.val_pictures,
        number=NUM_SHOWN,
        precision=job.options.precision,
    )
    write_grid(job.ranks.run_dir.output("predictions") / "predictions.png", predictions)


def summary_of(job: Job, found: Mapping[str, float], throughput: Throughput) -> dict[str, object]:
    """Give the figures that this program's summary has of its own."""
    options = job.options
    return {
        "precision": options.precision,
        "network": options.network,
        "train": options.train,
        "epochs": options.epochs,
        "batch_size": job.batch_size,
        "image_size": options.image_size,
        "seed": options.seed,
        "classes": list(job.data.classes),
        "train_images": job.data.num_train,
        "val_images": job.data.num_val,
        **{f"val_{name}": value for name, value in found.items()},
        "images_per_s": throughput.samples_per_s,
    }


def make_keeper(job: Job) -> Keeper:
    """Keep the weights, the optimizer and the generators of this training."""
    trained = Trainable(
        network=job.network, optimizer=job.optimizer, device=job.device, scaler=job.scaler
    )
    recipe = {
        "program": PROGRAM,
        "network": job.options.network,
        "train": job.options.train,
        "batch_size": job.batch_size,
        "image_size": job.options.image_size,
        "seed": job.options.seed,
        "num_classes": len(job.data.classes),
        "num_samples": job.data.num_train,
    }
    return Keeper(trained, job.ranks, options=job.options, recipe=recipe)


def train_epoch(job: Job, position: Position, guard: Guard, throughput: Throughput) -> Position:
    """Take one step per global batch that is left of the epoch; each rank computes its part."""
    options = job.options
    job.model.train()
    schedule = Schedule(
        name=options.schedule,
        peak=options.lr * job.batch_size / LR_BATCH,
        num_steps=options.epochs * job.num_batches,
    )
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

    for batch in job.train.batches(mine, crop_of):
        for group in job.optimizer.param_groups:
            group["lr"] = schedule.rate(position.step)
        with autocast(options.precision, job.device):
            loss = functional.cross_entropy(job.model(job.sees(batch.images)), batch.labels)
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


def hint(options: Options) -> str:
    """Give advice for a training that diverges."""
    return f"a smaller --lr than {options.lr:g}"


if __name__ == "__main__":
    sys.exit(main())
