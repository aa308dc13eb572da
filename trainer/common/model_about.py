"""Writes what a saved model tells apart as a file beside its weights, and reads it again.

outputs/model/NAME.json   {"program": ..., "network": ..., "image_size": ..., "classes": [...], "loss": ...,
                           "seed": ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.messages import few
from trainer.common.training_options import LossName
from trainer.common.whole_file import write_whole

# Above it a description is damaged: a network for such pictures would fill the memory.
MOST_IMAGE_SIZE = 4096
# Before the names of our own modules.
OURS = "trainer."
# What torch takes for a seed.
SEEDS = range(-(1 << 63), 1 << 64)


class Shaped(Protocol):
    """A tensor or an array."""

    @property
    def shape(self) -> Sequence[int]:
        """Give its sizes."""
        ...


@dataclass(frozen=True, kw_only=True)
class About:
    """Describe a saved classifier.

    `network` is empty where the program builds the network, `loss` None where the description does not
    say by which one it was trained.
    """

    classes: tuple[str, ...]
    image_size: int
    network: str = ""
    loss: LossName | None = None


def require_model(path: Path) -> None:
    """Raise TrainingError where the file of `--model` is not there."""
    if not path.exists():
        message = f"--model `{path}` is not there"
        raise TrainingError(
            message, hint="a .safetensors file that a training wrote: outputs/model"
        )


def model_name(program: str) -> str:
    """Give the name of a program's model file: of one of our own modules the last part, else the whole.

    Raises TrainingError for a name that no file has.
    """
    name = program.rpartition(".")[2] if program.startswith(OURS) else program
    if name.isprintable() and name and not set(name) & {"/", "\\"}:
        return name
    message = f"the model's file cannot have the name {program!r}"
    raise TrainingError(message, hint="a name of letters, digits, dots and dashes")


def write_about(weights: Path, about: Mapping[str, object]) -> None:
    """Write the description beside the file of weights; raises TrainingError where the disk refuses."""
    write_whole(weights.with_suffix(".json"), (json.dumps(about, indent=2) + "\n").encode())


def saved_seed(weights: Path, *, default: int) -> int:
    """Give the seed that a model's network was built by, as the description beside it says, or the default."""
    try:
        found = _read_json(weights).get("seed")
    except (TrainingError, ValueError):  # of a folder `.`, beside which nothing lies
        return default
    return found if type(found) is int and found in SEEDS else default


def require_classes(weights: Path, classes: object) -> None:
    """Raise TrainingError where a description is there and says other classes than these."""
    found = _read_json(weights).get("classes") if weights.with_suffix(".json").exists() else None
    if found is not None and classes is not None and found != classes:
        others = f"{_shown(found)}; not {_shown(classes)}"
        message = f"`{weights}` tells other classes apart than the data has: {others}"
        raise TrainingError(message, hint="data with the same classes, in the same order")


def why_new_head(weights: Path, num_outputs: int, classes: Sequence[str]) -> str:
    """Say why the head of a file, of so many outputs, is none for these classes; nothing where it is one.

    The names of its classes are those of a description beside it, where there is one: a .json beside
    weights that others trained may hold anything.
    """
    if num_outputs != len(classes):
        return f"`{weights}` is for {num_outputs} classes, not {len(classes)}"
    named = _named_classes(weights)
    if not named or named == [*classes]:
        return ""
    return f"`{weights}` is for other classes: {_shown(named)}; not {_shown([*classes])}"


def require_scores(shape: Sequence[int | None] | None, classes: Sequence[str]) -> None:
    """Raise TrainingError where a network does not give a score for each class.

    `shape` is that of its outputs for one batch, None where they are no single tensor.
    """
    if shape is not None and tuple(shape[1:]) == (len(classes),):
        return
    found = "no single tensor" if shape is None else f"outputs of shape {(*shape[1:],)}"
    message = f"build() makes a network that gives {found} for a picture: the data has {len(classes)} classes"
    raise TrainingError(
        message, hint="a last layer of `num_classes` outputs, which build() is given"
    )


def require_shapes(
    path: Path, weights: Mapping[str, Shaped], wanted: Mapping[str, Shaped], *, hint: str
) -> None:
    """Raise TrainingError with `hint` where a file's weights are not those of the network that is wanted.

    Either may count the batches that its norms saw: frozen norms do not, nor do Keras' and those of
    torchvision's oldest files.
    """
    odd = sorted(
        key for key in set(weights) ^ set(wanted) if not key.endswith(".num_batches_tracked")
    )
    odd += [key for key in wanted if key in weights and weights[key].shape != wanted[key].shape]
    if odd:
        message = f"`{path}` holds weights of another network: {odd[0]} does not fit"
        raise TrainingError(message, hint=hint)


def read_about(path: Path) -> About:
    """Read the description that lies beside a file of weights; raises TrainingError for a damaged one."""
    require_model(path)
    about = path.with_suffix(".json")
    if not about.exists():
        message = f"`{about}`, which says what `{path.name}` tells apart, is not there"
        raise TrainingError(message, hint="both files of a run's outputs/model, in one folder")
    found = _read_json(path)
    names = ("classes", "image_size", "network", "loss")
    classes, size, network, loss = (found.get(name) for name in names)
    if not (
        isinstance(classes, list)
        and classes
        and all(isinstance(name, str) for name in cast("list[object]", classes))
        and isinstance(size, int)
        and 0 < size <= MOST_IMAGE_SIZE
        and isinstance(network, (str, type(None)))
    ):
        raise _damaged(about, "it says no classes, image_size and network")
    if loss not in (None, *get_args(LossName)):
        raise _damaged(about, f"its loss is none of {', '.join(get_args(LossName))}")
    return About(
        classes=tuple(cast("list[str]", classes)),
        image_size=size,
        network=network or "",
        loss=cast("LossName | None", loss),
    )


def _named_classes(weights: Path) -> list[str]:
    """Give the names of classes in a .json beside the weights; none where it names none."""
    try:
        classes = _read_json(weights).get("classes")
    except TrainingError:
        return []
    names = cast("list[object]", classes) if isinstance(classes, list) else []
    return [name for name in names if isinstance(name, str)]


def _read_json(path: Path) -> dict[str, Any]:
    """Read the description that lies beside the weights."""
    about = path.with_suffix(".json")
    try:
        found: Any = parse_json(about.read_bytes())
    except OSError as error:
        raise _damaged(about, str(error.strerror)) from None
    except ValueError as error:
        raise _damaged(about, str(error)) from None
    if not isinstance(found, dict):
        raise _damaged(about, "it is not a JSON object")
    return cast("dict[str, Any]", found)


def _damaged(about: Path, why: str) -> TrainingError:
    message = f"`{about}` does not describe a model: {why}"
    return TrainingError(message, hint="the .json that training wrote beside the weights")


def _shown(classes: object) -> str:
    names = (
        [str(each) for each in cast("list[object]", classes)] if isinstance(classes, list) else []
    )
    return few(names)
