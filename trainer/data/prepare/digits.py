"""Writes the handwritten digits that scikit-learn brings along as MNIST's four files.

1,797 digits of 8x8 pixels in 17 greys (https://archive.ics.uci.edu/dataset/80). A pixel becomes a
block of 3x3, with a border of 2 around the picture: 28x28 without a value made up. Of each digit
every fifth picture goes to the test set, so equal input gives equal bytes everywhere.
"""

from __future__ import annotations

import filecmp
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.common.errors import TrainingError
from trainer.data.disk.durability import sync_files_of
from trainer.data.disk.events import Events
from trainer.data.disk.partial_folder import PartialFolder, is_free
from trainer.data.pictures.idx import MNIST_FILES, write_idx

_EVERY_NTH_TO_TEST = 5


def prepare_digits(folder: Path, events: Events) -> None:
    """Make `folder` of the four files; one that holds just these stays untouched.

    Whole or not at all. Raises TrainingError where something else is there.
    """
    folder = folder.absolute()
    images, labels = _load_digits()
    train, test = split(labels)
    is_new = is_free(folder)
    if is_new:
        with PartialFolder(folder) as partial:
            partial.empty()
            _write_digits(partial.data, images, labels, events)
            sync_files_of(partial.data)
            partial.finish()
        sync_files_of(folder.parent)
    else:
        PartialFolder(folder).forget_finished()
        _require_digits(folder, images, labels, events)
    what = f"{len(train)} training and {len(test)} test pictures in {folder}"
    events.tell(
        "done",
        what if is_new else f"{what} (there already)",
        folder=str(folder),
        train=len(train),
        test=len(test),
        changed=is_new,
    )


def _write_digits(folder: Path, images: Any, labels: list[int], events: Events) -> None:
    train, test = split(labels)
    num_bytes = 0
    for number, (name, rows) in enumerate(
        zip(MNIST_FILES, (train, train, test, test), strict=True), 1
    ):
        if "images" in name:
            content = enlarge(images[rows])
            write_idx(folder / name, content.shape, content.tobytes())
        else:
            write_idx(folder / name, (len(rows),), bytes(labels[row] for row in rows))
        num_bytes += (folder / name).stat().st_size
        events.progress("writing", files_done=number, bytes_done=num_bytes, files=len(MNIST_FILES))


def _require_digits(folder: Path, images: Any, labels: list[int], events: Events) -> None:
    """Raise TrainingError where a folder holds anything but the four files as they would be made."""
    with tempfile.TemporaryDirectory(prefix="digits-") as made:
        _write_digits(Path(made), images, labels, events)
        is_same = (
            folder.is_dir()
            and sorted(path.name for path in folder.iterdir()) == sorted(MNIST_FILES)
            and filecmp.cmpfiles(made, folder, MNIST_FILES, shallow=False)[1:] == ([], [])
        )
    if not is_same:
        message = f"`{folder}` exists already, and is not a prepared digits"
        raise TrainingError(message, hint="choose another --to, or remove it")


def _load_digits() -> tuple[Any, list[int]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        message = "scikit-learn is not installed here, and the digits come with it"
        hint = "uv sync --group data in a clone, pip install scikit-learn elsewhere"
        raise TrainingError(message, hint=hint) from None
    bundle: Any = load_digits()
    return bundle.images, [int(label) for label in bundle.target]


def split(labels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Give the rows for training and for testing: of each label every fifth goes to testing."""
    seen: dict[int, int] = {}
    train: list[int] = []
    test: list[int] = []
    for row, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        (test if seen[label] % _EVERY_NTH_TO_TEST == 0 else train).append(row)
    return train, test


def enlarge(images: Any) -> Any:
    """Turn N x 8 x 8 values of 0 to 16 into N x 28 x 28 bytes of 0 to 255."""
    import numpy as np

    greys = (images * 255 / 16).round().astype(np.uint8)
    blocks = greys.repeat(3, axis=1).repeat(3, axis=2)
    return np.pad(blocks, ((0, 0), (2, 2), (2, 2)))
