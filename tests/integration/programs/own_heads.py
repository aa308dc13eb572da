"""Prints as JSON what classifiers of a user's own network, and files for other classes, come to.

main([])     in the working folder, in one process
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from trainer.common.errors import TrainingError
from trainer.pytorch import classifier
from trainer.pytorch.maskrcnn_model import PREDICTORS, Design, read_weights
from trainer.pytorch.networks import load_pretrained
from trainer.pytorch.state import load_weights, weights_digest

SMALL = ("--data", "random", "--num-classes", "4", "--num-images", "8", "--image-size", "32")
SMALL += ("--batch-per-rank", "4", "--epochs", "1", "--device", "cpu", "--log-every", "1")


class Twice(nn.Module):
    """A network of two outputs, or of two while it trains."""

    def __init__(self, *, has_always: bool = True) -> None:
        super().__init__()
        self.has_always = has_always
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the scores."""
        scores = self.layers(images)
        return (scores, scores) if self.has_always or self.training else scores


class Drawing(nn.Module):
    """A network that draws from each generator whenever it is asked, and squeezes its outputs."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, num_outputs, 32)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the scores of pictures that some noise lies over."""
        noise = torch.rand(()).item() + random.random() + float(np.random.rand())
        return self.layer(images + noise).squeeze()


def of(num_outputs: int) -> Callable[[int, int], nn.Module]:
    """Build a network of so many outputs, with batch norm and dropout."""
    return lambda _classes, size: nn.Sequential(
        nn.Conv2d(3, 2, 3),
        nn.BatchNorm2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(2 * (size - 2) ** 2, num_outputs),
    )


def said(build: Callable[[int, int], nn.Module], *arguments: str) -> list[object]:
    """The exit code of a training, and the last line on stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            code = classifier.main([*SMALL, *arguments], program="own", build=build)
        except SystemExit as ended:
            code = ended.code
    return [code, (errors.getvalue().splitlines() or [""])[-1]]


def outputs() -> object:
    """What is said of networks with other outputs than the data has classes, and of a --network."""
    return {
        "three": said(of(3)),
        "five": said(of(5)),
        "two tensors": said(lambda *_: Twice()),
        "two while it trains": said(lambda *_: Twice(has_always=False)),
        "named": said(of(4), "--network", "resnet51"),
    }


def losses() -> object:
    """Losses and weights of a training whose network is asked for scores first, and of one that is not."""
    found: list[object] = []
    begin = classifier.Classifier.begin
    for build, each in itertools.product((of(4), lambda *_: Drawing(4)), (begin, lambda *_: None)):
        classifier.Classifier.begin = each
        random.seed(1)
        np.random.seed(1)
        code, _ = said(build)
        lines = Path("outputs/metrics.jsonl").read_text().splitlines()
        values = [line["value"] for line in map(json.loads, lines) if line["name"] == "loss"]
        digests = json.loads(Path("outputs/summary.json").read_text())["weights_sha256"]
        found.append([code, values, digests])
    classifier.Classifier.begin = begin
    return found


def heads() -> object:
    """Whether the head of a file for other classes of the same number is kept, and what is said."""
    source = of(2)(2, 8)
    save_file(source.state_dict(), "source.safetensors")
    Path("source.json").write_text(json.dumps({"classes": ["ants", "bees"]}))
    found: dict[str, object] = {}
    for classes in (("ants", "bees"), ("cats", "dogs")):
        network, lines = of(2)(2, 8), list[str]()
        path = Path("source.safetensors")
        unknown = load_pretrained(network, path, classes=classes, say=lines.append)
        same = [
            torch.equal(network[at].weight, source[at].weight) for at in (0, 4)
        ]  # body and head
        found[" ".join(classes)] = [unknown, lines, same]
    return found


def digests() -> object:
    """Whether the digest of weights is what it was, and whether halves have one."""
    network = of(3)(3, 8)
    by_hand = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        by_hand.update(name.encode())
        by_hand.update(value.numpy().tobytes())
    same = weights_digest(network) == by_hand.digest()
    halves = {len(weights_digest(of(3)(3, 8).to(torch.bfloat16))) for _ in range(2)}
    return [same, sorted(halves)]


def numbered() -> object:
    """What is said of a .pth whose keys are numbers."""
    torch.save({0: torch.zeros(2)}, "numbered.pth")
    return told(lambda: load_weights(Path("numbered.pth")))


def masks() -> object:
    """What is said of weights of Mask R-CNN for three classes, by what their description says."""
    path, about = Path("masks.safetensors"), Path("masks.json")
    tensors = {
        f"{layer}.{part}": torch.zeros(4 * size, *shape)
        for layer, size in PREDICTORS.items()
        for part, shape in (("weight", (2,)), ("bias", ()))
    }
    save_file(tensors, path)
    design = Design(backbone="resnet18", image_size=96, classes=("a", "b", "c")).as_json()
    found: dict[str, object] = {}
    for name, given in {
        "whole": {},
        "fewer": {"classes": ["a", "b"]},
        "more": {"classes": ["a", "b", "c", "d"]},
        "no size": {"image_size": 0},
        "huge": {"image_size": 1_000_000},
        "a text": {"image_size": "96"},
        "letters": {"classes": "abc"},
    }.items():
        about.write_text(json.dumps({**design, **given}))
        found[name] = told(lambda: read_weights(path))
    about.write_text("[" * 100_000)
    found["deep"] = told(lambda: read_weights(path))
    return found


def told(work: Callable[[], object]) -> str:
    """The user's error that it raises, without its hint."""
    try:
        work()
    except TrainingError as error:
        return str(error).partition(" (hint: ")[0]
    return "taken"


def main(_argv: Sequence[str]) -> None:
    """Print what each found."""
    checks = (outputs, losses, heads, digests, numbered, masks)
    print(json.dumps({each.__name__: each() for each in checks}))
