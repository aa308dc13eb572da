"""Trains any classifier of pictures: torchvision's by name, timm's where it is installed, or yours.

    launch shell pytorch -- python -m trainer.pytorch.classifier \\
        --data synthetic --network mobilenet_v3_small --image-size 64 --epochs 4

`--data` takes a folder (docs/training-resnet50.md), `synthetic` for a small set of JPEGs that is
made on the spot, or `random` for one batch of noise on the device. `--recipe` sets many options at
once; those given beside it win. A file of your own calls `main` with a function that builds its
network (docs/own-model.md).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.common.errors import TrainingError
from trainer.common.model_about import About, require_scores
from trainer.common.options import MAY_CHANGE, parse_options
from trainer.common.position import Position
from trainer.common.resnet_options import ResnetOptions
from trainer.common.schedule import Schedule
from trainer.data.synthesize.picture_folder import MadeSet, picture_folder
from trainer.pytorch.decoding import Augment
from trainer.pytorch.loader import normalise, scale
from trainer.pytorch.loop import run
from trainer.pytorch.networks import build_network, load_pretrained, parameter_groups
from trainer.pytorch.optimizers import OptimizerName, make_optimizer
from trainer.pytorch.picture_data import RANDOM, Data, PictureOptions, make_noise, open_loaders
from trainer.pytorch.picture_task import PictureTask
from trainer.pytorch.precision import autocast
from trainer.pytorch.program import run_program
from trainer.pytorch.rand_augment import STRONGEST, augment_of
from trainer.pytorch.strategy import Ranks
from trainer.pytorch.whole_samples import looked_at

# Makes a network for pictures of so many classes, of so many pixels a side.
Build = Callable[[int, int], nn.Module]
# Peak rates for 256 pictures a step where none is given: those of the recipes below, and Adam's usual one.
USUAL_LR: dict[OptimizerName, float] = {"sgd": 0.1, "adamw": 0.001, "lamb": 0.001}
RecipeName = Literal["goyal", "a3"]
# Goyal et al. 2017, arXiv 1706.02677; Wightman et al. 2021, arXiv 2110.00476, table 2, whose rate
# of 0.008 is for 2,048 pictures a step.
RECIPES: dict[RecipeName, Sequence[str]] = {
    "goyal": (
        *("--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9", "--weight-decay", "1e-4"),
        *("--schedule", "step", "--warmup-epochs", "5", "--epochs", "90"),
        *("--label-smoothing", "0"),
    ),
    "a3": (
        *("--optimizer", "lamb", "--lr", "0.001", "--weight-decay", "0.02", "--loss", "bce"),
        *("--schedule", "cosine", "--warmup-epochs", "5", "--epochs", "100"),
        *("--mixup", "0.1", "--cutmix", "1", "--label-smoothing", "0", "--image-size", "160"),
        *("--rand-augment", "6"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Options(ResnetOptions, PictureOptions):
    """Hold the options of the command line, as parse_options reads them."""

    network: Annotated[str, "name of a classifier of torchvision, or of timm"] = "resnet50"
    recipe: Annotated[RecipeName | None, "set the options of a paper's recipe", MAY_CHANGE] = None
    optimizer: Annotated[OptimizerName, "optimizer; --momentum is that of sgd"] = "sgd"
    lr: Annotated[
        float | None,
        "peak learning rate for 256 pictures a step (default: 0.1 for sgd, 0.001 for adamw and lamb)",
    ] = None
    rand_augment: Annotated[
        float, "magnitude of RandAugment's changes of each picture; 0: none"
    ] = 0.0
    repeats: Annotated[int, "how often a picture is in its batch, each time cropped anew"] = 1
    compile: Annotated[bool, "let torch.compile make kernels for this network", MAY_CHANGE] = False

    def __post_init__(self) -> None:
        if self.lr is None:
            # From here on it is a number, which checkpoints tell as one that was given.
            object.__setattr__(self, "lr", USUAL_LR[self.optimizer])
        super().__post_init__()
        self.require_positive("repeats")
        if not 0 <= self.rand_augment <= STRONGEST:
            message = f"--rand-augment must be 0 to {STRONGEST}, not {self.rand_augment:g}"
            raise ValueError(message)
        if self.rand_augment and self.data == RANDOM and self.recipe is None:
            message = (
                "--rand-augment changes pictures as they are decoded, and --data random has none"
            )
            raise ValueError(message)


def main(
    argv: Sequence[str] | None = None,
    *,
    program: str = "trainer.pytorch.classifier",
    description: str = "",
    build: Build | None = None,
    defaults: Sequence[str] = (),
) -> int:
    """Run the program; gives its exit code.

    `build` makes the network in place of `--network`; its name in results is `program`, and
    `defaults` are flags that come before those of the command line.
    """
    options = read_options(
        Options if build is None else OwnOptions,
        sys.argv[1:] if argv is None else argv,
        defaults=defaults,
        description=(description or __doc__ or "").splitlines()[0],
    )
    return run_program(options, lambda ranks: run(Classifier(options, ranks, program, build)))


def read_options(
    kind: type[Options],
    given: Sequence[str],
    *,
    defaults: Sequence[str] = (),
    description: str = "",
) -> Options:
    """Parse the flags; what is given beside a recipe wins, on the command line or in `defaults`."""
    name = parse_options(kind, [*defaults, *given], description=description).recipe
    of_recipe = RECIPES[name] if name else ()
    is_typed = any(each.partition("=")[0] == "--recipe" for each in given)
    before = [*defaults, *of_recipe] if is_typed else [*of_recipe, *defaults]
    return parse_options(kind, [*before, *given], description=description)


@dataclass(frozen=True, kw_only=True)
class OwnOptions(Options):
    """Options of a program whose file builds the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network != Options.network:
            message = f"--network {self.network} is not what trains here: the program builds its own network"
            raise ValueError(message)


class Classifier(PictureTask[Options]):
    """ImageNet, or any pictures in class folders, and any network."""

    def __init__(
        self, options: Options, ranks: Ranks, program: str, build: Build | None = None
    ) -> None:
        """Take the name of the program, and what builds its network in place of `--network`."""
        super().__init__(options, ranks)
        self.program = program
        self._build = build
        # What the file of `--weights` does not know of the network.
        self._unknown = ""

    def open_data(self) -> Data:
        """Open the folder, or make what `--data` names; a collective."""
        options, ranks = self.options, self.ranks
        made = MadeSet(
            num_classes=options.num_classes,
            num_train=options.num_images,
            size=options.image_size,
            seed=options.seed,
        )
        if options.data == RANDOM:
            return make_noise(made, self.device, batch=options.batch_per_rank)
        folder = picture_folder(options.data, made, ranks, input_name="imagenet")
        data, _, _ = open_loaders(
            folder,
            ranks,
            self.device,
            options,
            repeats=self.repeats,
            modules=(augment_of.__module__,) if options.rand_augment else (),
        )
        return data

    @property
    def repeats(self) -> int:
        """Give the copies of a picture in a batch; raises TrainingError if the batch is no multiple."""
        repeats = self.options.repeats
        if self.batch_size % repeats:
            message = f"--repeats {repeats} do not fill a batch of {self.batch_size} pictures"
            raise TrainingError(message, hint="a number that divides the batch of all ranks")
        return repeats

    def augment(self, epoch: int) -> Augment | None:
        """Give RandAugment of an epoch, which depends on seed, epoch and picture alone."""
        options = self.options
        if not options.rand_augment:
            return None
        return functools.partial(augment_of, f"{options.seed}/{epoch}", options.rand_augment)

    def build(self) -> nn.Module:
        """Make the network, from scratch or from the file of `--weights`."""
        options, num_classes = self.options, len(self.data.classes)
        network = self._make(options.network, num_classes, options.image_size)
        if options.weights is not None:
            self._unknown = load_pretrained(
                network, options.weights, classes=self.data.classes, say=self.say
            )
        return network

    def _make(self, name: str, num_classes: int, image_size: int) -> nn.Module:
        if self._build is not None:
            return self._build(num_classes, image_size)
        return build_network(name, num_classes, image_size)

    def about(self) -> dict[str, object]:
        """Give size, classes, and the name of the network."""
        return {**super().about(), **({} if self._build else {"network": self.options.network})}

    def rebuild(self, about: About) -> nn.Module:
        """Make the network of a saved model again, with random weights."""
        name = about.network or self.options.network
        return self._make(name, len(about.classes), about.image_size)

    def require_weights(self) -> None:
        """Raise TrainingError where the network, or its head, is random."""
        self.options.require_learnt(self.options.weights, unknown=self._unknown)

    def optimizer(self, part: nn.Module, scaler: torch.amp.GradScaler | None) -> Optimizer:
        """Make the optimizer; batch norms and biases do not decay."""
        options = self.options
        return make_optimizer(
            options.optimizer,
            parameter_groups(part, weight_decay=options.weight_decay),
            lr=options.lr,
            momentum=options.momentum,
            scaler=scaler,
        )

    def wrap(self, model: nn.Module) -> nn.Module:
        """Compile the model where the options say so."""
        return torch.compile(model) if self.options.compile else model

    def sees(self, images: Tensor) -> Tensor:
        """Turn a batch's pictures into what the network takes; by one kernel with `--compile`."""
        return normalise(images, self._scale)

    @functools.cached_property
    def _scale(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return torch.compile(scale) if self.options.compile else scale

    @torch.no_grad()
    def begin(self, network: nn.Module, position: Position) -> None:  # noqa: ARG002
        """Ask a network of the user's own for the scores of pictures; raises TrainingError for other outputs.

        Nothing is counted or drawn for the training, which goes on as if it had not been asked.
        """
        if self._build is None:
            return
        size = self.options.image_size
        # Two: of one, squeeze() would take the batch's axis away.
        pictures = torch.zeros(2, 3, size, size, dtype=torch.uint8, device=self.device)
        with looked_at(network, self.device), autocast(self.options.precision, self.device):
            scores = network(normalise(pictures))
        shape = scores.shape if isinstance(scores, Tensor) else None
        require_scores(shape, self.data.classes)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Give the learning rate of every step."""
        return self.options.rates(batch_size=self.batch_size, num_batches=self.num_batches)

    def facts(self) -> dict[str, object]:
        """Give the sizes of batch and set, options that were not given, and which network it is."""
        is_own = {"is_own": True} if self._build else {}
        return {**super().facts(), **self.options.facts, **is_own}

    def summary(self) -> dict[str, object]:
        """Give sizes, and the rates at which a core decodes and the store gives to a rank."""
        workers, flow = self.data.workers, self.data.flow
        return {
            **super().summary(),
            **({} if self._build else {"network": self.options.network}),
            "decoded_per_core_per_s": workers.decoded_per_core_per_s if workers else None,
            "streamed_bytes_per_s": flow.bytes_per_s if flow else None,
        }


if __name__ == "__main__":
    sys.exit(main())
