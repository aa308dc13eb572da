"""Says how a classifier of pictures trains: random crops, cross entropy, top-1 and top-5."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from trainer.common.find_batch import SMALLER_PICTURES
from trainer.common.metrics import MainFigure
from trainer.common.model_about import About, require_scores
from trainer.common.position import Position
from trainer.common.sharding import LEAST_BATCH, rank_batches, require_full_batch
from trainer.data.pictures.crops import center_crop, epoch_crop
from trainer.data.pictures.predicted import Files, Row, tell_classes
from trainer.pytorch.decoding import Augment, DecodingWorkers
from trainer.pytorch.evaluation import evaluate
from trainer.pytorch.guard import Guard
from trainer.pytorch.labels import LOSSES, mix
from trainer.pytorch.layout import to_device
from trainer.pytorch.loader import Batch, Loader, Noise, Source, normalise
from trainer.pytorch.model_file import read_model
from trainer.pytorch.picture_data import Data, PictureOptions, num_workers
from trainer.pytorch.predictions import picture_shares
from trainer.pytorch.task import Loss, Part, Task

OptionsT = TypeVar("OptionsT", bound=PictureOptions)


class PictureTask(Task[OptionsT, Batch]):
    """Pictures of class folders as batches of crops; a program says which data and which network."""

    main_figure = MainFigure(split="val", name="top1", goal="max")
    batch_option = "batch_per_rank"
    least_batch = LEAST_BATCH
    less_memory = SMALLER_PICTURES

    data: Data

    def prepare(self) -> None:
        """Open the data; raises TrainingError where it fills no batch of all ranks."""
        self.data = self.open_data()
        require_full_batch(
            self.data.num_train,
            batch_per_rank=self.options.batch_per_rank,
            world_size=self.ranks.world.size,
            accumulate=self.num_parts,
        )

    @abstractmethod
    def open_data(self) -> Data:
        """Give the pictures; a collective."""

    @property
    def train_source(self) -> Source:
        """Give the training batches of the part of the network that trains."""
        return self.data.train

    @property
    def val_source(self) -> Source:
        """Give the batches of the validation set."""
        return self.data.val

    @property
    def repeats(self) -> int:
        """Give the number of copies of each picture in its batch."""
        return 1

    def augment(self, epoch: int) -> Augment | None:  # noqa: ARG002
        """Give what changes the pixels of an epoch's crops, if anything does."""
        return None

    def sees(self, images: Tensor) -> Tensor:
        """Turn a batch's pictures into what the part that trains takes."""
        return normalise(images)

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks and parts together."""
        return self.options.batch_per_rank * self.num_parts * self.ranks.world.size

    @property
    def num_parts(self) -> int:
        """Batches of a rank that make a step."""
        return self.options.accumulate

    @property
    def average_decay(self) -> float | None:
        """Decay of the weights' moving average (Polyak and Juditsky 1992), as the options say."""
        return self.options.ema

    @property
    def num_batches(self) -> int:
        """Steps of one epoch; the pictures of a last, smaller batch come in another epoch."""
        return self.data.num_train // self.batch_size

    def facts(self) -> dict[str, object]:
        """Give the sizes of batch and set."""
        return {
            "batch_size": self.batch_size,
            "num_classes": len(self.data.classes),
            "num_samples": self.data.num_train,
        }

    def about(self) -> dict[str, object]:
        """Give size, classes and loss, by which a saved model is read again."""
        return {
            "image_size": self.options.image_size,
            "classes": list(self.data.classes),
            "loss": self.options.loss,
        }

    @abstractmethod
    def rebuild(self, about: About) -> nn.Module:
        """Make the network of a saved model again, with random weights."""

    def predict(self, files: Files, folder: Path) -> Iterator[Row]:
        """Yield each picture's surest classes, and draw the pictures with them.

        Probabilities are those of the loss that lies beside the model, or else of the options.
        """
        network, about = read_model(self.options.saved, self.rebuild)
        to_device(network, self.device)
        number = num_workers(self.options, self.ranks, self.device)
        source = Loader(
            files,
            self.device,
            size=about.image_size,
            workers=DecodingWorkers(min(number, len(files.paths))),
            corrupt=files.corrupt,
        )
        every = range(len(files.paths))
        loss = about.loss or self.options.loss
        precision = self.options.precision
        told = picture_shares(network, source, every, precision=precision, loss=loss)
        shares = ((index, each.tolist()) for index, each in told)
        yield from tell_classes(files, shares, about.classes, folder)

    def batches(self, position: Position) -> Iterator[Part[Batch]]:
        """Yield random crops of this rank's pictures of each full batch that is left."""
        seed, epoch = self.options.seed, position.epoch + 1
        mine = rank_batches(
            self.data.num_train,
            self.batch_size,
            self.ranks.world,
            seed=seed,
            epoch=epoch,
            shard_sizes=self.data.shard_sizes,
            first=position.batch,
            repeats=self.repeats,
        )

        size = self.options.batch_per_rank
        parts = (
            batch[start : start + size] for batch in mine for start in range(0, len(batch), size)
        )
        number = self.data.num_train
        for batch in self.train_source.batches(
            parts, partial(epoch_crop, seed, epoch), self.augment(epoch)
        ):
            samples = [each % number for each in batch.samples]
            yield Part(batch=batch, samples=samples, num_samples=size * self.ranks.world.size)

    def trial(self, number: int) -> Part[Batch]:
        """Make a batch of so many pictures of noise."""
        options, samples = self.options, range(number)
        noise = Noise(
            self.device,
            num_classes=len(self.data.classes),
            batch=number,
            size=options.image_size,
            seed=options.seed,
        )
        (batch,) = noise.batches([samples], center_crop)
        return Part(batch=batch, samples=samples, num_samples=number)

    def loss(self, model: nn.Module, part: Part[Batch]) -> Loss:
        """Compute the cross entropy, of labels that are smoothed and mixed as the options say."""
        options = self.options
        images, labels = self.sees(part.batch.images), part.batch.labels
        if options.mixup or options.cutmix:
            images, labels = mix(
                images,
                labels,
                mixup=options.mixup,
                cutmix=options.cutmix,
                num_classes=len(self.data.classes),
            )
        scores = model(images)
        if not isinstance(scores, Tensor):  # in training alone, as with auxiliary heads
            require_scores(None, self.data.classes)
        mean = LOSSES[options.loss](scores, labels, options.label_smoothing)
        return Loss(mean=mean, total=mean.detach() * len(part.samples))

    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give mean loss and top-1 over the validation set, top-5 of more classes."""
        return evaluate(
            part,
            self.val_source,
            num_images=self.data.num_val,
            num_classes=len(self.data.classes),
            # As many at once as a part of a step has: a step of many parts may be beyond memory.
            batch_size=self.batch_size // self.num_parts,
            loss=self.options.loss,
            sees=self.sees,
            task=self,
            guard=guard,
            position=position,
        )

    def summary(self) -> dict[str, object]:
        """Give the sizes of batch, pictures and sets, and how often a picture was skipped.

        A collective.
        """
        corrupt = self.data.corrupt
        return {
            "batch_size": self.batch_size,
            "image_size": self.options.image_size,
            "train_images": self.data.num_train,
            "val_images": self.data.num_val,
            "pictures_skipped": self.over_ranks(corrupt.num_skipped if corrupt else 0),
        }
