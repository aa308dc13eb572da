"""Makes a data set's folder in the form its trainers read.

    python -m trainer.data.prepare digits --to data/digits
    launch data prepare digits --to data/digits

digits: the 1,797 handwritten digits that scikit-learn brings along (8x8 pixels, 17 greys;
https://archive.ics.uci.edu/dataset/80), written as MNIST's four IDX files. A pixel becomes a
block of 3x3, with a border of 2 around the picture: 28x28 without a value made up. Of each
digit every fifth picture goes to the test set, so equal input gives equal bytes everywhere.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.common.errors import TrainingError
from trainer.data.idx import write_idx

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_EVERY_NTH_TO_TEST = 5


class Events:
    """Tells how far the work is: JSON lines for a program, plain lines for a person."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def tell(self, event: str, text: str, **figures: object) -> None:
        """Print one event with its figures, or its sentence, to stdout."""
        line = json.dumps({"event": event, "text": text, **figures}) if self._as_json else text
        print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.data.prepare", allow_abbrev=False)
    parser.add_argument("dataset", choices=["digits"])
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    arguments = parser.parse_args(argv)
    try:
        prepare_digits(arguments.to, Events(as_json=arguments.json))
    except (TrainingError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def prepare_digits(folder: Path, events: Events) -> None:
    """Write the four files into `folder`; equal files that are there already stay untouched.

    Everything is written to a folder beside it first, so a kill leaves no half file.
    """
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        num_train, num_test = _write_digits(partial, events)
        changed = _move_changed(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    what = f"{num_train} training and {num_test} test pictures in {folder}"
    events.tell(
        "done",
        what if changed else f"{what} (there already)",
        folder=str(folder),
        train=num_train,
        test=num_test,
        changed=changed,
    )


def _write_digits(folder: Path, events: Events) -> tuple[int, int]:
    images, labels = _load_digits()
    train, test = split(labels)
    for number, (name, rows) in enumerate(zip(FILES, (train, train, test, test), strict=True), 1):
        if "images" in name:
            content = enlarge(images[rows])
            write_idx(folder / name, content.shape, content.tobytes())
        else:
            write_idx(folder / name, (len(rows),), bytes(labels[row] for row in rows))
        events.tell("progress", f"{name}: {len(rows)}", done=number, total=len(FILES), file=name)
    return len(train), len(test)


def _load_digits() -> tuple[Any, list[int]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        message = "scikit-learn is not installed here, and the digits come with it"
        raise TrainingError(message, hint="uv sync --group data") from None
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


def _move_changed(partial: Path, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    changed = False
    for name in FILES:
        target = folder / name
        if not target.is_file() or target.read_bytes() != (partial / name).read_bytes():
            (partial / name).replace(target)
            changed = True
    return changed


if __name__ == "__main__":
    sys.exit(main())
