"""Builds what the TensorFlow and the Keras program share: options, data, model, results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import keras
import numpy as np

from trainer.common.errors import TrainingError
from trainer.common.metrics import Metrics
from trainer.common.options import MAY_CHANGE, recipe_of
from trainer.common.position import Position
from trainer.common.progress import Progress
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule
from trainer.common.sharding import rank_batches, shard
from trainer.common.throughput import Throughput
from trainer.data.pictures.crops import Crop, center_crop, picture_rng, random_crop
from trainer.data.pictures.splits import open_splits
from trainer.data.synthesize.folders import default_folder
from trainer.data.synthesize.stripes import make_pictures
from trainer.tf.keeper import Keeper
from trainer.tf.loader import Batch, Loader, Noise, Source, num_workers
from trainer.tf.network import build_resnet50, load_pretrained, save_weights
from trainer.tf.optimizer import make_optimizer, set_precision
from trainer.tf.state import rank_state, seed_generators, weights_digest, write_statistics
from trainer.tf.strategy import DeviceName, Ranks, StrategyName, pick_device

SYNTHETIC, RANDOM = "synthetic", "random"
NUM_TOP = 5


@dataclass(frozen=True, kw_only=True)
class Options(ResnetOptions):
    """The command line; parse_options makes it."""

    strategy: Annotated[StrategyName | None, "how ranks work together", MAY_CHANGE] = None
    xla: Annotated[bool, "let XLA compile the network", MAY_CHANGE] = False


@dataclass(frozen=True, kw_only=True)
class Data:
    """Training and validation pictures as batches, and how many there are."""

    train: Source
    val: Source
    num_train: int
    num_val: int
    num_classes: int
    # Of the training pictures, where they are in shards: the order keeps to few of them.
    shard_sizes: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """Options, ranks, data, network and optimizer of a training, made once by `prepare`."""

    program: str
    options: Options
    ranks: Ranks
    device: DeviceName
    data: Data
    network: keras.Model
    optimizer: keras.optimizers.Optimizer
    schedule: Schedule

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks together."""
        return self.options.batch_per_rank * self.ranks.world.size

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the pictures of a last, smaller batch come in another epoch."""
        return self.data.num_train // self.batch_size

    @property
    def num_val_batches(self) -> int:
        """Batches of an evaluation, over all ranks together."""
        return math.ceil(self.data.num_val / self.batch_size)

    def train_batches(self, position: Position) -> Iterator[Batch]:
        """Give this rank's part of each global batch that is left of the epoch."""
        seed, epoch = self.options.seed, position.epoch + 1

        def crop_of(index: int, width: int, height: int) -> Crop:
            return random_crop(width, height, picture_rng(seed, epoch, index))

        mine = rank_batches(
            self.data.num_train,
            self.batch_size,
            self.ranks.world,
            seed=seed,
            epoch=epoch,
            shard_sizes=self.data.shard_sizes,
            first=position.batch,
        )
        return self.data.train.batches(mine, crop_of)

    def val_batches(self) -> Iterator[Batch]:
        """Give this rank's part of the validation set; the last may have no picture."""
        num_images, size = self.data.num_val, self.batch_size
        starts = range(0, num_images, size)
        batches = (list(range(start, min(start + size, num_images))) for start in starts)
        mine = (shard(batch, self.ranks.world) for batch in batches)
        return self.data.val.batches(mine, lambda _, *size: center_crop(*size))

    def make_keeper(self) -> Keeper:
        """Keep the weights, the optimizer and the generators of this training."""
        recipe = recipe_of(
            self.options,
            program=self.program,
            batch_size=self.batch_size,
            num_samples=self.data.num_train,
            num_classes=self.data.num_classes,
        )
        return Keeper(self.network, self.optimizer, self.ranks, options=self.options, recipe=recipe)

    def make_progress(self, metrics: Metrics, throughput: Throughput) -> Progress:
        """Make the metrics and progress lines of this training."""
        return Progress(
            metrics,
            self.ranks.world,
            throughput,
            log_every=self.options.log_every,
            num_batches=self.num_batches,
            num_epochs=self.options.epochs,
        )


def prepare(
    program: str,
    options: Options,
    ranks: Ranks,
    *,
    build: Callable[[int, int], keras.Model] = build_resnet50,
) -> Job:
    """Meet the other ranks, open the data, and make the model that all of them start from.

    `build` makes a network for so many classes and a size of pictures.
    """
    world = ranks.world
    device = pick_device(options.device, world)
    ranks.strategy.init(world, device)
    data = open_data(options, ranks, device)
    require_full_batch(options, data, world.size)
    set_precision(options.precision)
    keras.utils.set_random_seed(options.seed)
    network = build(data.num_classes, options.image_size)
    if options.weights is not None:
        load_pretrained(network, options.weights, say=print if world.is_main else lambda _: None)
    optimizer = make_optimizer(
        network,
        precision=options.precision,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
    )
    # Each rank drops other neurons, as it sees other pictures.
    seed_generators(network, f"{options.seed}/0/{world.rank}")
    ranks.strategy.broadcast([variable.value for variable in network.weights])
    batch_size = options.batch_per_rank * world.size
    num_batches = data.num_train // batch_size
    schedule = options.rates(batch_size=batch_size, num_batches=num_batches)
    return Job(
        program=program,
        options=options,
        ranks=ranks,
        device=device,
        data=data,
        network=network,
        optimizer=optimizer,
        schedule=schedule,
    )


def open_data(options: Options, ranks: Ranks, device: DeviceName) -> Data:
    """Open the folder, or make what `--data` names; a collective."""
    num_train, num_classes = options.num_images, options.num_classes
    made = {"num_classes": num_classes, "size": options.image_size, "seed": options.seed}
    if options.data == RANDOM:
        noise = Noise(batch=options.batch_per_rank, **made)
        return Data(
            train=noise,
            val=noise,
            num_train=num_train,
            num_val=max(1, num_train // 4),
            num_classes=num_classes,
        )
    if options.data == SYNTHETIC:
        made |= {"num_train": num_train, "num_val": max(num_classes, num_train // 4)}
        folder = default_folder(names=None, **made)
        if ranks.world.local_rank == 0:
            make_pictures(folder, **made)
        ranks.strategy.barrier()
    else:
        folder = Path(options.data) if options.data else ranks.run_dir.input("imagenet")
    train, val = open_splits(folder)
    workers = options.workers or num_workers(ranks.world, device)
    return Data(
        train=Loader(train, size=options.image_size, num_workers=workers),
        val=Loader(val, size=options.image_size, num_workers=workers),
        num_train=len(train.labels),
        num_val=len(val.labels),
        num_classes=len(train.classes),
        shard_sizes=train.shard_sizes,
    )


def require_full_batch(options: Options, data: Data, world_size: int) -> None:
    """Raises TrainingError where a training set is smaller than a batch of all ranks."""
    wanted = options.batch_per_rank * world_size
    if data.num_train < wanted:
        message = (
            f"--batch-per-rank {options.batch_per_rank} on {world_size} ranks is a batch of "
            f"{wanted}, more than the {data.num_train} training pictures"
        )
        raise TrainingError(
            message, hint=f"--batch-per-rank {data.num_train // world_size} or less"
        )


def average_statistics(job: Job) -> None:
    """Give all ranks the mean of their batch statistics; a collective, for before an evaluation."""
    own = rank_state(job.network)["buffers"]
    if own.size and job.ranks.world.size > 1:
        total = job.ranks.strategy.sum(own, "statistics").numpy()
        write_statistics(job.network, total / np.float32(job.ranks.world.size))


def require_finite(job: Job, found: Mapping[str, float]) -> None:
    """Raises TrainingError where an evaluation's loss is not finite."""
    if not math.isfinite(found["loss"]):
        message = "training has diverged: the loss of the validation set is not finite"
        raise TrainingError(message, hint=job.options.hint)


def write_results(
    job: Job, found: Mapping[str, float], *, throughput: Throughput, keeper: Keeper, began_s: float
) -> None:
    """Write model and summary; a collective, after which all is on disk."""
    options, world, run_dir = job.options, job.ranks.world, job.ranks.run_dir
    keeper.finish(hint=options.hint)
    digests = gather_digests(job)
    if world.is_main:
        save_weights(job.network, run_dir.output("model") / "resnet50.safetensors")
        sizes = (math.prod(variable.shape) for variable in job.network.trainable_variables)
        run_dir.write_summary(
            {
                "program": job.program,
                "strategy": job.ranks.strategy.name,
                "world_size": world.size,
                "device": job.device,
                "precision": options.precision,
                "epochs": options.epochs,
                "batch_size": job.batch_size,
                "image_size": options.image_size,
                "seed": options.seed,
                "parameters": sum(sizes),
                "train_images": job.data.num_train,
                "val_images": job.data.num_val,
                **{f"val_{name}": value for name, value in found.items()},
                "images_per_s": throughput.samples_per_s,
                "train_s": round(time.perf_counter() - began_s, 3),
                "weights_sha256": digests,
                **keeper.figures(),
            }
        )
    # No rank says that all is well before the model is on disk.
    job.ranks.strategy.barrier()


def gather_digests(job: Job) -> Sequence[str]:
    """Give the SHA-256 of every rank's weights; raises TrainingError where two differ."""
    mine = np.frombuffer(weights_digest(job.network), np.uint8)
    digests = [part.tobytes().hex() for part in job.ranks.strategy.gather(mine)]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            message = f"rank {rank} ended with other weights than rank 0"
            raise TrainingError(message)
    return digests
