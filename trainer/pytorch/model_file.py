"""Writes a trained model as a file of weights with a description beside it, and reads both again.

outputs/model/NAME.safetensors   the network's state_dict
outputs/model/NAME.json          {"program": ..., "network": ..., "image_size": ..., "classes": [...]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import nn

from trainer.common.errors import TrainingError
from trainer.common.json_text import parse_json
from trainer.common.whole_file import write_whole
from trainer.pytorch.networks import load_weights_of
from trainer.pytorch.state import save_weights

# Above it a description is damaged: a network for such pictures would fill the memory.
MOST_IMAGE_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class About:
    """A classifier as its description says it; `network` is empty for one that its program builds."""

    classes: tuple[str, ...]
    image_size: int
    network: str = ""


def write_model(network: nn.Module, path: Path, about: Mapping[str, object]) -> None:
    """Write weights and description; raises TrainingError where the disk refuses."""
    write_whole(path.with_suffix(".json"), (json.dumps(about, indent=2) + "\n").encode())
    save_weights(network, path)


def read_model(path: Path, build: Callable[[About], nn.Module]) -> tuple[nn.Module, About]:
    """Give the classifier of this file, built as its description says, in eval mode.

    Raises TrainingError where one of the two is missing, damaged or another network's.
    """
    about = _read_about(path)
    network = build(about)
    load_model(network, path)
    return network.eval(), about


def load_model(network: nn.Module, path: Path, *, classes: object = None) -> None:
    """Load a model that a training of the same network wrote; `classes` are those of the data.

    Raises TrainingError for another network's, and where a description says other classes.
    """
    load_weights_of(network, path, hint="the model of a run with the same options: outputs/model")
    found = _read_json(path).get("classes") if path.with_suffix(".json").exists() else None
    if found is not None and classes is not None and found != classes:
        theirs, ours = _shown(found), _shown(classes)
        message = f"`{path}` tells other classes apart than the data has: {theirs}; not {ours}"
        raise TrainingError(message, hint="data with the same classes, in the same order")


def _read_about(path: Path) -> About:
    about = path.with_suffix(".json")
    if not about.exists():
        message = f"`{about}`, which says what `{path.name}` tells apart, is not there"
        raise TrainingError(message, hint="both files of a run's outputs/model, in one folder")
    found = _read_json(path)
    classes, size, network = (found.get(name) for name in ("classes", "image_size", "network"))
    if not (
        isinstance(classes, list)
        and classes
        and all(isinstance(name, str) for name in cast("list[object]", classes))
        and isinstance(size, int)
        and 0 < size <= MOST_IMAGE_SIZE
        and isinstance(network, (str, type(None)))
    ):
        raise _damaged(about, "it says no classes, image_size and network")
    return About(classes=tuple(cast("list[str]", classes)), image_size=size, network=network or "")


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
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
