"""Runs parts of a training recipe in the image's Python: optimizers, losses, votes, networks."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar
from unittest import mock

import torch
from torch import nn
from torchvision.ops.misc import FrozenBatchNorm2d

from tests.integration.programs.one_rank import alone
from trainer.common.errors import TrainingError
from trainer.common.options import parse_options
from trainer.common.world import World
from trainer.pytorch import classifier, own
from trainer.pytorch.average import Average
from trainer.pytorch.batch_norms import share_batch_norms
from trainer.pytorch.guard import require_whole_sums
from trainer.pytorch.labels import LOSSES, mix
from trainer.pytorch.loader import normalise
from trainer.pytorch.loop import run
from trainer.pytorch.networks import build_network, load_pretrained, parameter_groups
from trainer.pytorch.optimizers import Lamb, make_optimizer
from trainer.pytorch.precision import take_step
from trainer.pytorch.rand_augment import CHANGES, rand_augment
from trainer.pytorch.strategy import make_strategy
from trainer.pytorch.whole_samples import WholeSamples


def lamb() -> object:
    """Two steps on tensors that decay or adapt or do not, at once and by an old checkpoint."""
    return {
        "at once": two_steps_of_lamb(is_resumed=False),
        "resumed": two_steps_of_lamb(is_resumed=True),
    }


def two_steps_of_lamb(*, is_resumed: bool) -> object:
    """Give the weights after two steps, between which lies a checkpoint of before 2026-11-26, or none."""
    network = nn.Sequential(nn.Linear(2, 1), nn.Linear(2, 1, bias=False))
    matrix, plain, other = network.parameters()
    for each, values in ((matrix, [[3.0, 4.0]]), (plain, [1.0]), (other, [[3.0, 4.0]])):
        each.data = torch.tensor(values)
    groups = [
        *parameter_groups(network[0], weight_decay=0.1),
        parameter_groups(network[1], weight_decay=0.0)[0],
    ]
    optimizer = Lamb(groups, lr=0.01)
    for gradients in (([[0.5, -1.0]], [2.0]), ([[0.25, 0.5]], [-1.0])):
        matrix.grad, plain.grad = (torch.tensor(each) for each in gradients)
        other.grad = matrix.grad.clone()
        optimizer.step()
        if is_resumed:
            kept = optimizer.state_dict()
            for state in kept["state"].values():
                state["step"] = int(state.pop("num_steps"))
            optimizer = Lamb(groups, lr=0.01)
            optimizer.load_state_dict(kept)
    return [each.flatten().tolist() for each in (matrix, plain, other)]


def scaled() -> object:
    """Three steps under a scaler, the first of which overflows, and two without it."""
    found = {}
    for name in ("sgd", "adamw", "lamb"):
        for scaler in (torch.amp.GradScaler("cpu"), None):
            weights = nn.Parameter(torch.tensor([3.0, 4.0]))
            optimizer = make_optimizer(
                name,
                [{"params": [weights], "weight_decay": 0.1}],
                lr=0.1,
                momentum=0.9,
                scaler=scaler,
            )
            for gradients in ((float("inf"), 1.0), (0.5, -1.0), (0.25, 0.5)):
                if scaler is None and gradients[0] > 1:
                    continue
                scale = 1.0 if scaler is None else scaler.scale(torch.ones(())).item()
                weights.grad = torch.tensor(gradients) * scale
                take_step(optimizer, strategy=make_strategy("single", World()), scaler=scaler)
            found[f"{name}, {'scaled' if scaler else 'plain'}"] = weights.tolist()
    return found


def losses() -> object:
    """Both losses of numbers and of shares of classes."""
    scores, labels = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]]), torch.tensor([0, 2])
    shares = nn.functional.one_hot(labels, 3).float()
    return {
        name: [loss(scores, each, 0.1).item() for each in (labels, shares)]
        for name, loss in LOSSES.items()
    }


def mixed() -> object:
    """Pictures of one value each: what is left of them, and the shares of their labels."""
    torch.manual_seed(1)
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, 8, 8).contiguous()
    found = {}
    for name, alphas in (("mixup", (1.0, 0.0)), ("cutmix", (0.0, 1.0))):
        seen, shares = mix(
            images, torch.tensor([0, 1]), mixup=alphas[0], cutmix=alphas[1], num_classes=3
        )
        found[name] = [seen.mean(dim=(1, 2, 3)).tolist(), shares.tolist(), seen.unique().numel()]
    return found


def votes() -> object:
    """What is said of Horovod's variable, by strategy and value."""
    said = {}
    for strategy in ("horovod", "ddp"):
        for value in ("1", "0", ""):
            try:
                require_whole_sums(strategy, {"HOROVOD_ENABLE_ASYNC_COMPLETION": value})
            except TrainingError as error:
                said[f"{strategy}/{value}"] = str(error)
    return said


def networks() -> object:
    """The scores' shape of some networks by name, and what is said of one that is none."""
    found: dict[str, object] = {}
    for name, size in (("squeezenet1_1", 64), ("vit_b_32", 64), ("googlenet", 64)):
        with torch.device("meta"):  # shapes alone: some take seconds to fill their weights
            scores = build_network(name, 5, size)(torch.zeros(2, 3, size, size))
        found[name] = list(scores.shape)
    try:
        build_network("resnet51", 5, 64)
    except TrainingError as error:
        found["resnet51"] = str(error)
    return found


def files() -> object:
    """Whether networks whose norms count batches, or do not, take files with such counts and without."""
    counting = nn.Sequential(nn.BatchNorm2d(3), nn.Linear(2, 2))
    frozen = nn.Sequential(FrozenBatchNorm2d(3, eps=1e-5), nn.Linear(2, 2))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, source in (("counted", counting), ("uncounted", frozen)):
            torch.save(source.state_dict(), path := Path(folder) / f"{kind}.pth")
            for network in (counting, frozen):
                taken = copy.deepcopy(network)
                for each in taken.parameters():
                    each.data.zero_()
                load_pretrained(taken, path, classes=["one"] * 2, say=lambda _: None)
                found[f"{kind} {type(network[0]).__name__}"] = all(
                    torch.equal(taken.state_dict()[name], value)
                    for name, value in source.state_dict().items()
                    if "num_batches" not in name
                )
        torch.save({"1.weight": torch.zeros(2, 2), "1.bias": torch.zeros(2)}, path)
        try:
            load_pretrained(counting, path, classes=["one"] * 2, say=lambda _: None)
        except TrainingError as error:
            found["without norms"] = str(error).partition("` ")[2]
    return found


class OfTimm(nn.Module):
    """A network as timm makes transformers: for pictures of one size."""

    pretrained_cfg: ClassVar = {"input_size": (3, 48, 48)}

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 48 * 48, num_classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the scores."""
        assert images.shape[-1] == 48, "Input height doesn't match model"
        return self.layers(images)


def stand_in_of_timm() -> ModuleType:
    """A module with the two functions of timm that we call, and one network."""
    timm = ModuleType("timm")
    timm.is_model = lambda name: name == "small_vit"
    timm.create_model = lambda _name, num_classes: OfTimm(num_classes)
    return timm


def sizes() -> object:
    """What networks make of pictures of a size: the shape of their scores, or what is said of it."""
    found: dict[str, object] = {}
    sys.modules["timm"] = stand_in_of_timm()
    for name, size in (
        *(("vit_b_16", 100), ("vit_b_16", 160), ("maxvit_t", 160), ("alexnet", 32)),
        *(("small_vit", 48), ("small_vit", 64), ("smal_vit", 48)),
    ):
        try:
            with torch.device("meta"):
                scores = build_network(name, 5, size)(torch.zeros(2, 3, size, size))
            found[f"{name} {size}"] = list(scores.shape)
        except TrainingError as error:
            found[f"{name} {size}"] = str(error)
    del sys.modules["timm"]
    # What a network's own making fails by is no matter of the size.
    full = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    for name, size in (("alexnet", 64), ("vit_b_16", 224)):
        with (
            mock.patch("torchvision.models.get_model", side_effect=full),
            contextlib.suppress(RuntimeError),
        ):
            build_network(name, 5, size)
    return found


def changed() -> object:
    """What RandAugment makes of one picture, by generators and by magnitude."""
    torch.manual_seed(1)
    image = torch.randint(20, 200, (3, 24, 24), dtype=torch.uint8)
    found = [
        rand_augment(image, random.Random(seed), magnitude=6) for seed in (*range(30), *range(30))
    ]
    at_nought = [
        "autocontrast or equalize"
        for change in CHANGES
        if not torch.equal(change(image, 0.0), image)
    ]
    return {
        "is_the_same_again": all(map(torch.equal, found[:30], found[30:])),
        "num_different": sum(not torch.equal(each, image) for each in found[:30]),
        "at_nought": at_nought,
        "shapes": [list(shape) for shape in {tuple(each.shape) for each in found}],
    }


def norms() -> object:
    """How far norms over one rank's samples are from PyTorch's own, of each kind, and their states."""
    found = {}
    for name, given in {
        "usual": {},
        "without weights": {"affine": False},
        "without offsets": {"bias": False},
        "without statistics": {"track_running_stats": False},
        "mean of all batches": {"momentum": None},
    }.items():
        theirs = nn.Sequential(nn.BatchNorm2d(3, **given))
        ours = copy.deepcopy(theirs)
        share_batch_norms(ours, make_strategy("single", World()))
        torch.manual_seed(1)
        samples = torch.randn(4, 3, 5, 5) * 2 + 1
        seen: list[list[torch.Tensor]] = []
        for norm in (ours, theirs):
            own_samples = samples.clone().requires_grad_()
            first, second = norm(own_samples), norm(own_samples * 3 + 1)
            (first * second.sin()).sum().backward()
            gradients = [own_samples.grad, *(each.grad for each in norm.parameters())]
            after = norm.eval()(samples + 2)
            seen.append([first, second, after, *gradients, *norm.state_dict().values()])
        pairs = zip(*seen, strict=True)
        furthest = max((each.double() - other.double()).abs().max().item() for each, other in pairs)
        found[name] = [furthest, list(ours.state_dict()) == list(theirs.state_dict())]
    return found


class NamedNorm(nn.BatchNorm2d):
    """A batch norm of another name."""


class NormAct(nn.BatchNorm2d):
    """A batch norm with its activation, as timm's BatchNormAct2d."""

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Normalise, and leave out what is below 0."""
        return super().forward(samples).relu()


def subclasses() -> object:
    """What becomes of a batch norm's subclass, and what is said of one that computes more."""
    single = make_strategy("single", World())
    network = nn.Sequential(NamedNorm(3))
    share_batch_norms(network, single)
    other = nn.Sequential()
    other.body = nn.Sequential(nn.BatchNorm2d(3), NormAct(3))
    try:
        share_batch_norms(other, single)
        said = "nothing"
    except TrainingError as error:
        said = str(error)
    return [type(network[0]).__name__, said]


def copied() -> object:
    """What a moving average's network has in common with the one whose norms ask Horovod's ranks."""
    horovod = make_strategy("horovod", World())
    horovod._hvd = sys  # a module, as Horovod's own
    network = nn.Sequential(nn.BatchNorm2d(3))
    share_batch_norms(network, horovod)
    kept = Average(network, decay=0.5).module
    return {
        "ranks": kept[0]._strategy is network[0]._strategy,
        "weights": kept[0].weight is network[0].weight,
        "same values": torch.equal(kept[0].weight, network[0].weight),
        "state": list(kept.state_dict()) == list(network.state_dict()),
    }


class Torn:
    """Samples of an own training, the third of which is cut off and the seventh not there."""

    def __init__(self, number: int, missing: int = -1) -> None:
        self.number, self.missing = number, missing

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == 2:
            message = "image file is truncated"
            raise OSError(message)
        if index == self.missing:
            raise FileNotFoundError(2, "No such file", "7.png")
        return torch.full((4,), float(index)), torch.zeros(1)


def torn() -> object:
    """What an own training makes of samples that cannot be read, in this process and in two others."""
    own_ = own.Own(
        name="torn",
        build=lambda: nn.Linear(4, 1),
        data=lambda _: (Torn(8), Torn(4)),
        loss=nn.functional.mse_loss,
        figures=lambda outputs, targets: {"close": (outputs - targets).abs()[:, 0]},
        main="close",
    )
    found: dict[str, object] = {}
    for workers, most in ((0, 5), (2, 5), (0, 0)):
        given = ["--batch-size", "4", "--epochs", "1", "--workers", str(workers), "--lr", "1e-9"]
        options = parse_options(own.Options, [*given, "--max-corrupt", str(most)])
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            task = own.OwnTask(options, alone(), own_)
            task.say = lambda _: None
            try:
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()) as said,
                ):
                    run(task)
                found[f"{workers}/{most}"] = [task.summary()["samples_skipped"], said.getvalue()]
            except TrainingError as error:
                found[f"{workers}/{most}"] = str(error)
    whole = WholeSamples(Torn(8, missing=6), stream="1/1")
    found["place"] = [whole[2][0].tolist(), whole[3][2]]
    try:
        whole[6]
    except FileNotFoundError as error:
        found["missing"] = error.filename
    return found


def compiled() -> list[int]:
    """How many functions a classifier lets PyTorch compile for its pictures, without and with `--compile`."""
    found = []
    for more in ("--no-compile", "--compile"):
        options = parse_options(classifier.Options, ["--data", "random", "--device", "cpu", more])
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            task = classifier.Classifier(options, alone(), "small")
        with mock.patch.object(torch, "compile", mock.Mock(side_effect=lambda each: each)) as made:
            for _ in range(2):
                seen = task.sees(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
        assert torch.equal(seen, normalise(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)))
        found.append(made.call_count)
    return found


CHECKS = (
    *(torn, lamb, scaled, losses, mixed, votes, networks, files, sizes, changed, norms),
    *(subclasses, copied, compiled),
)


def main(_argv: Sequence[str]) -> None:
    """Print what each found."""
    print(json.dumps({each.__name__: each() for each in CHECKS}))
