"""Defines the options of the ResNet-50 programs of all frameworks, and their recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from trainer.common.options import MAY_CHANGE
from trainer.common.schedule import Schedule, ScheduleName
from trainer.common.training_options import DeviceName, PrecisionName, TrainingOptions

# The learning rate is given for as many pictures a step, as papers do.
LR_BATCH = 256
# Where no warm-up is given: so many epochs, and no more than this part of all of them.
WARMUP_EPOCHS = 5.0
MOST_WARMUP = 1 / 4


@dataclass(frozen=True, kw_only=True)
class ResnetOptions(TrainingOptions):
    """Options that all ResNet-50 programs have; a framework's own extend them."""

    data: Annotated[
        str | None, "folder, `synthetic` or `random`; else the input `imagenet`", MAY_CHANGE
    ] = None
    device: Annotated[DeviceName, "device to compute on", MAY_CHANGE] = "auto"
    precision: Annotated[
        PrecisionName, "precision of the network's arithmetic; weights are fp32"
    ] = "fp32"
    weights: Annotated[Path | None, "file of pretrained weights to begin from", MAY_CHANGE] = None
    epochs: Annotated[int, "passes over the training set", MAY_CHANGE] = 90
    batch_per_rank: Annotated[int, "pictures per step on each rank", MAY_CHANGE] = 32
    image_size: Annotated[int, "side of the network's input, in pixels"] = 224
    lr: Annotated[float, "peak learning rate for 256 pictures a step"] = 0.1
    schedule: Annotated[ScheduleName, "how the learning rate falls"] = "step"
    warmup_epochs: Annotated[
        float | None,
        "epochs in which the learning rate rises (default: 5, at most a quarter of --epochs)",
    ] = None
    momentum: Annotated[float, "momentum of SGD"] = 0.9
    weight_decay: Annotated[float, "weight decay; none for batch norms and biases"] = 1e-4
    label_smoothing: Annotated[float, "share of a label that all classes get"] = 0.1
    workers: Annotated[
        int | None,
        "threads or processes that decode, per rank (default: its share of cores)",
        MAY_CHANGE,
    ] = None
    num_images: Annotated[int, "training pictures of a synthetic or random set", MAY_CHANGE] = 1280
    num_classes: Annotated[int, "classes of a synthetic or random set", MAY_CHANGE] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("epochs", "lr", "workers", "num_images", "num_classes")
        self.require_at_least(2, "batch_per_rank")  # batch statistics of one picture are none
        self.require_at_least(32, "image_size")
        if self.data == "synthetic":  # a class without a picture could not be opened
            self.require_at_least(self.num_classes, "num_images")
        self.require_at_least(0, "warmup_epochs", "momentum", "weight_decay")
        self.require_share("label_smoothing")

    @property
    def hint(self) -> str:
        """Advice for a training that diverges."""
        return f"a smaller --lr than {self.lr:g}, or more --warmup-epochs"

    def rates(self, *, batch_size: int, num_batches: int) -> Schedule:
        """Give the learning rate of every step, for epochs of so many batches of all ranks."""
        return Schedule(
            name=self.schedule,
            peak=self.lr * batch_size / LR_BATCH,
            num_steps=self.epochs * num_batches,
            num_warmup_steps=round(self._num_warmup_epochs * num_batches),
        )

    @property
    def facts(self) -> dict[str, object]:
        """Give what checkpoints tell of a warm-up that is not given, whatever the number of epochs.

        That number may change, and an earlier version told the same of any.
        """
        return {"warmup_epochs": WARMUP_EPOCHS} if self.warmup_epochs is None else {}

    @property
    def _num_warmup_epochs(self) -> float:
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return min(WARMUP_EPOCHS, MOST_WARMUP * self.epochs)
