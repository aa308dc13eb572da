"""Predicts what saved models find in files, and tells it as a table and in pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole
from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.files import SUFFIXES, read_file
from trainer.data.pictures.grid import Prediction, write_grid
from trainer.data.pictures.splits import Pictures
from trainer.pytorch.loader import Source, normalise
from trainer.pytorch.precision import PrecisionName, autocast
from trainer.pytorch.transfer import copied_ahead

# Of each picture the table names so many classes, the surest first.
NUM_NAMED = 5
# More pictures than these are in the table only.
NUM_DRAWN = 100
BATCH = 32

# The table's cells of one file or one object, by column.
Row = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files to predict, in order; as trainer.data.pictures.splits has pictures, of no known class."""

    place: Path
    paths: Sequence[Path]
    classes: tuple[str, ...] = ()
    shard_sizes: Sequence[int] = ()

    @property
    def labels(self) -> Sequence[int]:
        """A label for each, which says nothing."""
        return [0] * len(self.paths)

    def read(self, index: int) -> bytes:
        """Read the file; raises TrainingError where that fails."""
        return read_file(self.name(index))

    def name(self, index: int) -> str:
        """Give the file's path, for messages."""
        return str(self.paths[index])

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""

    def shown(self, index: int) -> str:
        """Give the file's path in the folder that was named, for tables."""
        path = self.paths[index]
        return path.name if path == self.place else str(path.relative_to(self.place))


def find_files(place: Path) -> Files:
    """Give a file, or the pictures of a folder and of the folders in it, by their suffixes.

    Hidden ones are left out. Raises TrainingError where there is none.
    """
    if not place.exists():
        message = f"--predict `{place}` is not there"
        raise TrainingError(message, hint="a file, or a folder of them")
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    paths = [path for path in found if path == place or _is_wanted(path, place)]
    if not paths:
        message = f"--predict `{place}` holds no picture"
        raise TrainingError(message, hint=f"files of {', '.join(sorted(SUFFIXES))}")
    return Files(place=place, paths=paths)


def _is_wanted(path: Path, place: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(place).parts)
    return path.suffix.lower() in SUFFIXES and not is_hidden and path.is_file()


def tell_rows(
    rows: Iterable[Row], files: Files, folder: Path, *, say: Callable[[str], None]
) -> None:
    """Say each row, and write all of them into the folder as predictions.csv.

    Raises TrainingError where the disk refuses.
    """
    told: list[Row] = []
    for row in rows:
        say("   ".join(str(cell) for cell in row.values()))
        told.append(row)
    _write_table(folder / "predictions.csv", told)
    number = len(files.paths)
    say(f"{number} file{'s' if number != 1 else ''} predicted, in {folder}")


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV under the names of all their columns; whole or not at all."""
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["picture"]
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_whole(path, text.getvalue().encode())


def tell_classes(
    files: Files, shares: Iterable[Tensor], classes: Sequence[str], folder: Path
) -> Iterator[Row]:
    """Yield a row of the surest classes for each file, and draw the first ones as predictions.png.

    `shares` has one for each class (C), of 0 to 1, for each file.
    """
    drawn: list[Prediction] = []
    for index, share in enumerate(shares):
        row: dict[str, object] = {"picture": files.shown(index)}
        values, places = share.topk(min(NUM_NAMED, len(classes)))
        for number, (value, at) in enumerate(zip(values.tolist(), places.tolist(), strict=True), 1):
            mark = "" if number == 1 else f"_{number}"
            row |= {f"class{mark}": classes[at], f"probability{mark}": f"{value:.4f}"}
        if index < NUM_DRAWN:
            surest = classes[int(places[0])]
            drawn.append(
                Prediction(
                    picture=files.read(index),
                    predicted=surest,
                    share=float(values[0]),
                    about=files.shown(index),
                )
            )
        yield row
    write_grid(folder / "predictions.png", drawn)


@torch.no_grad()
def picture_shares(
    network: nn.Module, source: Source, samples: Sequence[int], *, precision: PrecisionName
) -> Iterator[tuple[int, Tensor]]:
    """Yield each of these pictures of a source, cropped as in evaluation, and its classes' shares (C).

    A corrupt one that the source leaves out is left out.
    """
    network.eval()
    order = [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
    device = next(network.parameters()).device
    pictures = source.batches(order, lambda _, *size: center_crop(*size))
    for batch in copied_ahead(pictures, device):
        with autocast(precision, device):
            scores = network(normalise(batch.images)).float()
        yield from zip(batch.samples, scores.softmax(dim=1).cpu(), strict=True)


def predict_some(
    network: nn.Module,
    source: Source,
    pictures: Pictures,
    *,
    number: int,
    precision: PrecisionName,
) -> list[Prediction]:
    """Predict so many of the pictures, spread evenly over them.

    `source` gives the same pictures as batches.
    """
    num_all = len(pictures.labels)
    number = min(number, num_all)
    shown = [place * num_all // number for place in range(number)]
    predictions: list[Prediction] = []
    shares = picture_shares(network, source, shown, precision=precision)
    for index, of_classes in shares:
        share, label = of_classes.max(dim=0)
        predicted, true = (pictures.classes[each] for each in (int(label), pictures.labels[index]))
        predictions.append(
            Prediction(
                picture=pictures.read(index),
                predicted=predicted,
                share=share.item(),
                about=f"true {true}",
                is_right=predicted == true,
            )
        )
    return predictions
