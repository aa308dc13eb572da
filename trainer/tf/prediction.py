"""Predicts the classes of pictures by a saved model of TensorFlow or Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras
import tensorflow as tf

from trainer.common.messages import say
from trainer.common.model_about import read_about
from trainer.common.sharding import batches_in_order
from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.predicted import Files, find_files, tell_classes, tell_rows
from trainer.tf.decoding import decoding_of_batches
from trainer.tf.job import Build, Options, make_network
from trainer.tf.loader import Loader
from trainer.tf.model_file import load_model
from trainer.tf.optimizer import set_precision
from trainer.tf.strategy import Ranks, pick_device

BATCH = 32


def predict(place: Path, options: Options, ranks: Ranks, *, build: Build | None) -> None:
    """Write the table of a file's or a folder's pictures, and draw the first ones, in `predictions`.

    Raises TrainingError for a model that cannot be read, and for corrupt pictures as `find_files` says.
    """
    files = find_files(place, max_corrupt=options.max_corrupt)
    folder = ranks.run_dir.output("predictions")
    device = pick_device(options.device, ranks.world)
    about = read_about(options.saved)
    set_precision(options.precision)
    network = make_network(build, about.classes, about.image_size, batch=BATCH)
    load_model(network, options.saved)
    num_workers = options.workers or ranks.world.num_workers(device)
    loader = Loader(
        files,
        batch=BATCH,
        size=about.image_size,
        decoding=decoding_of_batches(min(num_workers, -(-len(files.paths) // BATCH))),
        device=device,
        corrupt=files.corrupt,
    )
    # PyTorch's programs write models that were trained by a binary loss of each class.
    scale = tf.nn.sigmoid if about.loss == "bce" else tf.nn.softmax
    shares = shares_of(network, loader, files, scale)
    rows = tell_classes(files, shares, about.classes, folder)
    tell_rows(rows, files, folder, say=say)


def shares_of(
    network: keras.Model, loader: Loader, files: Files, scale: Callable[[tf.Tensor], tf.Tensor]
) -> Iterator[tuple[int, Sequence[float]]]:
    """Yield number and share of each class, of every file that is whole, cropped as in evaluation.

    `scale` makes shares of a batch's scores.
    """

    @tf.function(autograph=False)
    def shares(images: tf.Tensor) -> tf.Tensor:
        return scale(tf.cast(network(images, training=False), tf.float32))

    order = [*batches_in_order(len(files.paths), BATCH)]
    with loader.read(order, center_crop) as reading:
        for _, (images, _) in zip(order, reading.dataset, strict=False):
            samples = reading.take()
            found = shares(images).numpy()[: len(samples)].tolist()
            yield from zip(samples, found, strict=True)
