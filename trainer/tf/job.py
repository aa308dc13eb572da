"""Builds what a TensorFlow or a Keras training consists of: options, data, network, optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import keras

from trainer.common.accelerators import warn_of_emulation
from trainer.common.errors import TrainingError
from trainer.common.messages import say, warn
from trainer.common.metrics import Metrics
from trainer.common.model_about import model_name, require_scores
from trainer.common.model_options import ModelOptions
from trainer.common.options import MAY_CHANGE, recipe_of
from trainer.common.position import Position
from trainer.common.progress import Progress
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule
from trainer.common.sharding import batches_in_order, rank_batches, shard
from trainer.common.throughput import Throughput
from trainer.data.pictures.crops import center_crop, epoch_crop
from trainer.data.pictures.jpeg_crop import DecoderName
from trainer.tf.data import Data, open_data
from trainer.tf.keeper import Keeper
from trainer.tf.loader import Reading
from trainer.tf.model_file import load_model, load_pretrained
from trainer.tf.network import build_resnet50
from trainer.tf.optimizer import make_optimizer, set_precision
from trainer.tf.state import seed_generators, take_effect
from trainer.tf.strategy import DeviceName, Ranks, StrategyName, pick_device

# Makes a network for so many classes, of pictures of so many pixels a side.
Build = Callable[[int, int], keras.Model]


@dataclass(frozen=True, kw_only=True)
class Options(ResnetOptions, ModelOptions):
    """Hold the options of the command line, as parse_options reads them."""

    strategy: Annotated[StrategyName | None, "how ranks work together", MAY_CHANGE] = None
    xla: Annotated[bool, "let XLA compile the network", MAY_CHANGE] = False
    find_batch: Annotated[
        bool,
        "tell about the largest batch of a step that a GPU's memory holds; do not train",
        MAY_CHANGE,
    ] = False
    decoder: Annotated[DecoderName, "JPEG decoder: Pillow's, or Trainyard's, compiled here"] = (
        "library"
    )


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
    # Whether the network is one of the user's own.
    is_own: bool
    # What the file of `--weights` does not know of the network, if anything.
    unknown: str

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

    def read_training(self, position: Position) -> Reading:
        """Read this rank's part of each global batch that is left of the epoch."""
        seed, epoch = self.options.seed, position.epoch + 1
        mine = rank_batches(
            self.data.num_train,
            self.batch_size,
            self.ranks.world,
            seed=seed,
            epoch=epoch,
            shard_sizes=self.data.shard_sizes,
            first=position.batch,
        )
        return self.data.train.read(mine, partial(epoch_crop, seed, epoch))

    def read_validation(self) -> Reading:
        """Read this rank's part of the validation set; the last batch may have no picture."""
        batches = batches_in_order(self.data.num_val, self.batch_size)
        mine = (shard(list(batch), self.ranks.world) for batch in batches)
        return self.data.val.read(mine, center_crop)

    def make_keeper(self) -> Keeper:
        """Keep the weights, the optimizer and the generators of this training."""
        recipe = recipe_of(
            self.options,
            program=self.program,
            batch_size=self.batch_size,
            num_samples=self.data.num_train,
            num_classes=self.data.num_classes,
            **self.options.facts,
            **({"is_own": True} if self.is_own else {}),
        )
        return Keeper(
            self.network,
            self.optimizer,
            self.ranks,
            options=self.options,
            recipe=recipe,
            rate=lambda position: self.schedule.rate(position.step),
        )

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


def make_network(
    build: Build | None, classes: Sequence[str], image_size: int, *, batch: int
) -> keras.Model:
    """Make the user's own network, else ResNet-50; all its weights are made.

    Raises TrainingError where the user's own takes no such pictures, or does not give a score for each class,
    of batches of so many.
    """
    if build is None:
        return build_resnet50(len(classes), image_size)
    network: Any = build(len(classes), image_size)
    if not isinstance(network, keras.Model):
        message = f"build() gives {type(network).__name__}, no network"
        raise TrainingError(message, hint="`return` a keras.Model")
    # A trace, which builds what a class of layers is made of, does not build these.
    has_build = not getattr(type(network).build, "_is_default", False)
    if not network.built and (isinstance(network, keras.Sequential) or has_build):
        network.build((None, image_size, image_size, 3))
    # A call of a functional model casts pictures to the dtype of its input; a trace does not.
    inputs = getattr(network, "inputs", None)
    dtype = inputs[0].dtype if inputs else "uint8"
    images = keras.KerasTensor((batch, image_size, image_size, 3), dtype=dtype)
    if inputs:
        require_pictures([each.shape for each in inputs], image_size)
        scores = network.compute_output_spec(images)  # a trace: nothing is computed or drawn
    else:
        # Of the call, whatever a class says of its shapes; in training, which may use more layers.
        given = {"training": True} if "training" in network.call_signature_parameters else {}
        scores = keras.Operation.compute_output_spec(network, images, **given)
    require_scores(getattr(scores, "shape", None), classes)
    return network


def require_pictures(shapes: Sequence[Sequence[int | None]], image_size: int) -> None:
    """Raise TrainingError where inputs of these shapes, each with its batch, take no pictures of this size."""
    wanted = (image_size, image_size, 3)
    if len(shapes) == 1 and len(shapes[0]) == len(wanted) + 1:
        found = zip(shapes[0][1:], wanted, strict=True)
        if all(size in (None, of_picture) for size, of_picture in found):
            return
    takes = " and ".join(str((*shape[1:],)) for shape in shapes)
    message = f"build() makes a network that takes {takes}: pictures are {wanted}"
    raise TrainingError(message, hint="an input of `image_size`, which build() is given")


def warn_of_own_statistics(network: keras.Model) -> None:
    """Warn once where batch norms ask for the statistics of all ranks' pictures."""
    for layer in network._flatten_layers():  # noqa: SLF001 (`layers` leaves out those within others)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized:
            why = "normalizes by the pictures of its own rank: `synchronized` has no effect"
            warn(f"`{layer.name}` {why}")
            return


def prepare(
    program: str,
    options: Options,
    ranks: Ranks,
    *,
    build: Build | None = None,
) -> Job:
    """Meet the other ranks, open the data, and make the model that all of them start from.

    `build` makes a network of the user's own in place of ResNet-50.
    """
    model_name(program)
    world = ranks.world
    device = pick_device(options.device, world)
    ranks.strategy.init(world, device)
    data = open_data(options, ranks, device)
    if world.is_main:
        warn_of_emulation(options.precision, device)
    set_precision(options.precision)
    keras.utils.set_random_seed(options.seed)
    network = make_network(build, data.classes, options.image_size, batch=options.batch_per_rank)
    if world.is_main and world.size > 1 and not options.evaluate_only:
        warn_of_own_statistics(network)
    if not options.evaluate_only and not network.trainable_variables:
        message = "build() makes a network without a weight that learns"
        raise TrainingError(message, hint="leave some layers' `trainable` True, or --evaluate-only")
    unknown = ""
    if options.weights is not None:
        tell = say if world.is_main else lambda _: None
        unknown = load_pretrained(network, options.weights, classes=data.classes, say=tell)
    if options.model is not None:
        load_model(network, options.model, classes=list(data.classes))
    optimizer = make_optimizer(
        network,
        precision=options.precision,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
    )
    # Each rank drops other neurons, as it sees other pictures.
    seed_generators(network, f"{options.seed}/0/{world.rank}")
    ranks.strategy.broadcast([variable.value for variable in network.weights])
    take_effect(network)
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
        is_own=build is not None,
        unknown=unknown,
    )
