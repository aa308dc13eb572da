"""Reads the samples of a user's data set, corrupt ones passed over, each drawn as its index says."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor, nn

from trainer.common.errors import TrainingError
from trainer.data.pictures.header import CorruptPicture

# What a network takes and is to give, for one sample or one batch.
Pair = tuple[Tensor, Tensor]


class Samples(Sized, Protocol):
    """Give a data set's length, and an input and a target for each index."""

    def __getitem__(self, index: int, /) -> Pair:
        """Give the input and the target of one sample, of equal shapes for all."""
        ...


@dataclass(frozen=True)
class WholeSamples:
    """Read a data set with the next sample in place of a corrupt one.

    Each has a third part: a line of `INDEX:REASON`, quoted as in a URL, for each one that was passed
    over. It may come from another process, which does not count them. What a sample draws by the
    global generators of torch, random and NumPy follows from the stream's name and its index, in
    whichever process and batch it is read.
    """

    data: Samples
    stream: str

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor, str]]:
        """Give the samples of a batch; global generators stay as they were."""
        with draws_apart():
            return [self[index] for index in indices]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, str]:
        """Give the sample; what is no fault of its bytes is raised."""
        seed_draws(f"{self.stream}/{index}")
        told: list[str] = []
        for number in range(index, index + len(self.data)):
            place = number % len(self.data)
            try:
                given, target = require_pair(self.data[place])
            except (CorruptPicture, OSError) as error:
                told.append(f"{place}:{quote(require_corrupt(error))}")
                continue
            return given, target, "\n".join(told)
        message = f"none of the {len(self.data)} samples can be decoded"
        raise TrainingError(message, hint="get the data set again")


@contextmanager
def looked_at(network: nn.Module, device: torch.device) -> Generator[None]:
    """Look at a few samples before a training, which goes on as if nobody had: in eval mode, draws apart.

    Training itself puts the network in its mode.
    """
    network.eval()
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(gpus), draws_apart():
        yield


@contextmanager
def draws_apart() -> Generator[None]:
    """Put the global generators back, from which the training draws, too."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])


def seed_draws(name: str) -> None:
    """Begin the global generators, but no GPU's, where this name says."""
    random.seed(name)
    torch.default_generator.manual_seed(random.getrandbits(63))
    np.random.seed(random.getrandbits(32))


def seed_build(seed: int) -> None:
    """Begin the global generators where the seed says, for what builds a network."""
    seed_draws(f"{seed}/build")
    torch.manual_seed(seed)


def require_pair(sample: object) -> Pair:
    """Give a sample as input and target; raises TrainingError for what is no pair, as a dictionary of two."""
    if isinstance(sample, (tuple, list)):
        parts = cast("Sequence[Tensor]", sample)
        if len(parts) == 2:
            return parts[0], parts[1]
        found = f"a {type(sample).__name__} of {len(parts)}"
    else:
        found = f"a {type(sample).__name__}"
        if isinstance(sample, Mapping):
            found += f" of {', '.join(map(str, cast('Mapping[object, object]', sample)))}"
    message = f"a data set of data() gives {found} for a sample, which is no input and target"
    hint = 'a set whose __getitem__ gives a pair: `return each["image"], each["label"]`'
    raise TrainingError(message, hint=hint)


def require_corrupt(error: CorruptPicture | OSError) -> str:
    """Give the reason of an error that is a file's own fault; raises any other."""
    # Pillow's errors of a file that it cannot read to its end have no number.
    if getattr(error, "errno", None) is not None:
        raise error
    return getattr(error, "message", str(error))
