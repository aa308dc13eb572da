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

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.find_batch import SMALLER_PICTURES
from trainer.common.messages import warn
from trainer.common.metrics import MainFigure
from trainer.common.model_about import MOST_IMAGE_SIZE
from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.position import Position
from trainer.common.schedule import Schedule, ScheduleName, parse_steps
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.predicted import Files, Row
from trainer.pytorch.coco_cache import CachedSplit, open_cached, open_validation
from trainer.pytorch.guard import Guard
from trainer.pytorch.loop import run
from trainer.pytorch.maskrcnn_epochs import Epochs
from trainer.pytorch.maskrcnn_evaluation import evaluate
from trainer.pytorch.maskrcnn_loading import SYNTHETIC, Reader, Sample, find_data
from trainer.pytorch.maskrcnn_model import BackboneName, Design, build_network, make_network
from trainer.pytorch.maskrcnn_picture import predict
from trainer.pytorch.networks import NO_WEIGHTS
from trainer.pytorch.precision import make_sgd
from trainer.pytorch.program import TorchOptions, run_program
from trainer.pytorch.task import Loss, Part, Task
from trainer.pytorch.transfer import each_tensor, place

# The batch that `--lr` is for, and where the rate falls: after 16 and 22 of 26 epochs.
LR_BATCH = 16
STEPS_AT = (16 / 26, 22 / 26)


@dataclass(frozen=True, kw_only=True)
class Options(TorchOptions):
    """Hold the options of the command line, as parse_options reads them."""

    data: Annotated[
        str | None,
        "folder in COCO 2017's format, or `synthetic`; else the run's input `coco`",
        MAY_CHANGE,
    ] = None
    epochs: Annotated[int, "passes over the training set"] = 26
    max_steps: Annotated[
        int | None, "end after this many steps, or after --epochs if that is earlier", MAY_CHANGE
    ] = None
    batch_per_rank: Annotated[int, "pictures per step on each rank", MAY_CHANGE] = 2
    lr: Annotated[float, "peak of SGD's learning rate for 16 pictures a step over all ranks"] = 0.02
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "step"
    decay_steps: Annotated[
        str | None,
        "steps after which `step` takes a tenth, as 60000,80000 (else at 16 and 22 of 26)",
    ] = None
    momentum: Annotated[float, "momentum of SGD"] = 0.9
    weight_decay: Annotated[float, "weight decay"] = 1e-4
    warmup_steps: Annotated[int, "steps of linear warm-up (at most a quarter of all steps)"] = 1000
    backbone: Annotated[BackboneName, "the ResNet under the feature pyramid"] = "resnet50"
    image_size: Annotated[int, "pixels that a picture's shorter side is scaled to"] = 800
    regions_per_image: Annotated[
        int, "regions that the heads learn from; twice as many are looked at"
    ] = 512
    weights: Annotated[
        Path | None,
        "begin from, or predict with: .safetensors, torchvision's .pth, checkpoints",
        MAY_CHANGE,
    ] = None
    backbone_weights: Annotated[
        Path | None, "begin from a classifier's weights; `none` begins from random ones", MAY_CHANGE
    ] = None
    evaluate: Annotated[bool, "COCO's figures after each epoch and at the end", MAY_CHANGE] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("max_steps", "batch_per_rank", "lr", "regions_per_image")
        self.require_at_least(32, "image_size")
        if self.image_size > MOST_IMAGE_SIZE:
            message = f"--image-size is at most {MOST_IMAGE_SIZE}, not {self.image_size}"
            raise ValueError(message)
        self.require_at_least(0, "warmup_steps", "momentum", "weight_decay")
        if self.decay_steps is not None:
            parse_steps(self.decay_steps, option="--decay-steps")
        if self.weights and self.backbone_weights:
            message = "--weights hold a backbone: leave out --backbone-weights"
            raise ValueError(message)

    def steps_at(self, num_steps: int) -> tuple[float, ...]:
        """Give the parts of so many steps after which the rate falls."""
        if self.decay_steps is None:
            return STEPS_AT
        steps = parse_steps(self.decay_steps, option="--decay-steps")
        return tuple(step / num_steps for step in steps)

    @property
    def saved(self) -> Path:
        """Give the model file that --predict loads: --model's, else that of --weights."""
        return self.weights if self.model is None and self.weights is not None else super().saved

    @property
    def is_pretrained(self) -> bool:
        """True if training begins from weights of a file."""
        return {self.weights, self.backbone_weights} - {None, NO_WEIGHTS} != set()

    @property
    def hint(self) -> str:
        """Advice for a training that diverges."""
        return f"a smaller --lr than {self.lr:g}, or more --warmup-steps"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    options = parse_options(Options, argv, description=(__doc__ or "").splitlines()[0])
    return run_program(options, lambda ranks: run(MaskRcnn(options, ranks)))


class MaskRcnn(Task[Options, Sequence[Sample]]):
    """Pictures with boxes and outlines; `training` reads those that have objects to learn."""

    program = "trainer.pytorch.maskrcnn"
    main_figure = MainFigure(split="val", name="mask_ap", goal="max")
    shown = ("box_ap", "mask_ap")
    batch_option = "batch_per_rank"
    less_memory = SMALLER_PICTURES
    evaluation = "one picture at a time"
    # Each rank draws other regions to learn from, as it sees other pictures.
    stream = "regions"

    folder: Path
    design: Design
    training: Epochs
    validation: CachedSplit | None = None
    corrupt: CorruptPictures
    # What the file of `--weights` does not know of the classes.
    unknown: str = ""

    def set_up_cuda(self) -> None:
        """Choose TF32; pictures of many sizes would have kernels tried without end."""
        torch.set_float32_matmul_precision("high")

    def prepare(self) -> None:
        """Open the splits; a collective."""
        options = self.options
        self.folder = find_data(options.data, self.ranks.run_dir, seed=options.seed)
        self.corrupt = CorruptPictures(options.max_corrupt, fail=self.ranks.notice.fail)
        training = open_cached(self.folder, "train2017", self.ranks)
        if options.evaluate:
            self.validation = open_validation(
                self.folder, training, self.ranks, is_needed=options.evaluate_only
            )
        self.design = Design(
            backbone=options.backbone, image_size=options.image_size, classes=training.classes
        )
        pictures = training.pictures.with_objects()
        self.training = Epochs(
            pictures=pictures,
            batch_size=self.batch_size,
            seed=options.seed,
            world=self.ranks.world,
            corrupt=self.corrupt,
        )
        if self.num_batches == 0:
            message = f"{len(pictures)} pictures with objects fill no batch of {self.batch_size}"
            raise TrainingError(message, hint="a smaller --batch-per-rank, or fewer ranks")
        if training.num_unusable and self.ranks.world.is_main:
            left_out = (
                f"{training.num_unusable} objects without outline, or with a side below 1/64 pixel,"
            )
            warn(f"{left_out} are left out of training")

    def build(self) -> nn.Module:
        """Make the network, from the weights that the options name; `run` loads those of `--model`."""
        options = self.options
        if options.model is not None:
            return build_network(
                self.design, is_pretrained=True, regions_per_image=options.regions_per_image
            )
        network, self.unknown = make_network(
            self.design,
            weights=options.weights,
            backbone_weights=options.backbone_weights,
            folder=self.folder,
            is_made=options.data == SYNTHETIC,
            regions_per_image=options.regions_per_image,
            say=self.say,
        )
        return network

    def require_weights(self) -> None:
        """Raise TrainingError where the network, or its outputs of a class, are random."""
        weights = self.options.weights
        self.options.require_learnt(
            None if weights == NO_WEIGHTS else weights, unknown=self.unknown
        )

    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make SGD of what is not frozen."""
        learning = [each for each in part.parameters() if each.requires_grad]
        options = self.options
        group = {"params": learning, "weight_decay": options.weight_decay}
        return make_sgd([group], lr=options.lr, momentum=options.momentum, scaler=scaler)

    @property
    def batch_size(self) -> int:
        """Pictures a step, over all ranks together."""
        return self.options.batch_per_rank * self.ranks.world.size

    @property
    def num_batches(self) -> int:
        """Steps of one epoch."""
        return self.training.num_batches

    @property
    def num_steps(self) -> int:
        """Steps of the whole training."""
        num_steps = super().num_steps
        return min(num_steps, self.options.max_steps or num_steps)

    @property
    def num_warmup_steps(self) -> int:
        """Steps that the rate of pictures leaves out."""
        return min(10, self.num_steps // 2)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Give the learning rate of every step."""
        return Schedule(
            name=self.options.schedule,
            peak=self.options.lr * self.batch_size / LR_BATCH,
            num_steps=self.num_steps,
            num_warmup_steps=min(self.options.warmup_steps, self.num_steps // 4),
            steps_at=self.options.steps_at(self.num_steps),
        )

    def facts(self) -> dict[str, object]:
        """Give the sizes of batch and set, the classes, and whether weights were given."""
        return {
            "batch_size": self.batch_size,
            "num_samples": len(self.training.pictures),
            "is_pretrained": self.options.is_pretrained,
            **self.design.as_json(),
        }

    def batches(self, position: Position) -> Iterator[Part[Sequence[Sample]]]:
        """Yield this rank's pictures, decoded ahead, of each batch that is left of the epoch."""
        end = position.batch + self.num_steps - position.step
        reads = self.training.reads(position.epoch + 1, first=position.batch, end=end)
        with Reader(self.ranks.world.num_workers(self.device.type), self.device) as reader:
            for samples in reader.batches(reads):
                yield Part(
                    batch=samples,
                    samples=[sample.number for sample in samples],
                    num_samples=self.batch_size,
                )

    def trial(self, number: int) -> Part[Sequence[Sample]]:
        """Make a batch of the picture with the most objects, which takes the most memory."""
        sample = place(self.training.read_fullest(), self.device)
        samples = [sample.number] * number
        batch = [each_tensor(sample, torch.clone) for _ in range(number)]
        return Part(batch=batch, samples=samples, num_samples=number)

    def loss(self, model: nn.Module, part: Part[Sequence[Sample]]) -> Loss:
        """Add up the losses of regions, boxes, classes and masks."""
        images = [sample.image.to(torch.float32).div_(255) for sample in part.batch]
        losses = model(images, [sample.target for sample in part.batch])
        mean = torch.stack([each.float() for each in losses.values()]).sum()
        return Loss(mean=mean, total=mean.detach() * len(part.samples))

    def evaluate(self, part: nn.Module, guard: Guard, position: Position) -> dict[str, float]:
        """Give COCO's figures on rank 0, where they are asked for."""
        if self.validation is None:
            return {}
        figures = evaluate(
            part,
            self.validation,
            self.ranks,
            self.device,
            corrupt=self.corrupt,
            check=lambda: guard.check(position),
            say=self.say,
        )
        guard.settle()
        return figures

    def about(self) -> dict[str, object]:
        """Give the design, by which a saved model is read again."""
        return self.design.as_json()

    def predict(self, files: Files, folder: Path) -> Iterator[Row]:
        """Yield the objects of each picture, and draw the picture with them."""
        return predict(self.options.saved, files, folder, self.device)

    def summary(self) -> dict[str, object]:
        """Give sizes, and how often a picture was skipped; a collective.

        The speed depends on how many objects a picture has.
        """
        options, pictures = self.options, self.training.pictures
        return {
            "backbone": options.backbone,
            "image_size": options.image_size,
            "batch_size": self.batch_size,
            "train_images": len(pictures),
            "val_images": len(self.validation.pictures) if self.validation else 0,
            "boxes_per_image": int(pictures.num_objects.sum()) / len(pictures),
            "pictures_skipped": self.over_ranks(self.corrupt.num_skipped),
        }


if __name__ == "__main__":
    sys.exit(main())
