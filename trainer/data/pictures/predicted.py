"""Tells what a model predicts of files, as a table and in pictures: the same from every framework."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole
from trainer.data.pictures.corrupt import CorruptPictures
from trainer.data.pictures.decoding import DECODED, decode_rgb
from trainer.data.pictures.files import SUFFIXES, FileRange, read_file
from trainer.data.pictures.grid import Prediction, write_grid
from trainer.data.pictures.header import CorruptPicture

if TYPE_CHECKING:
    from PIL.Image import Image

# Of each picture the table names so many classes, the surest first.
NUM_NAMED = 5
# More pictures than these are in the table only.
NUM_DRAWN = 100

# The table's cells of one file or one object, by column.
Row = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files to predict, in order; as trainer.data.pictures.splits has pictures, of no known class."""

    place: Path
    paths: Sequence[Path]
    # That were skipped: their rows are left out.
    corrupt: CorruptPictures
    classes: tuple[str, ...] = ()
    shard_sizes: Sequence[int] = ()

    @property
    def labels(self) -> Sequence[int]:
        """Give label 0 for each picture, as no label is known."""
        return [0] * len(self.paths)

    def file_range(self, index: int) -> FileRange:
        """Give the file."""
        return FileRange(self.name(index))

    def read(self, index: int) -> bytes:
        """Read the file; raises TrainingError where that fails."""
        return read_file(self.name(index))

    def name(self, index: int) -> str:
        """Give the file's path, for messages."""
        return str(self.paths[index])

    def announce(self, samples: Sequence[int]) -> None:
        """Do nothing: the system reads a disk ahead."""

    def shown(self, index: int) -> str:
        """Give the file's path in the folder that was named, for tables.

        Bytes that are not UTF-8, as old archives have in their names, are written as backslash escapes.
        """
        path = self.paths[index]
        shown = path.name if path == self.place else str(path.relative_to(self.place))
        return os.fsencode(shown).decode(errors="backslashreplace")


def find_files(place: Path, *, max_corrupt: int) -> Files:
    """Give a file, or the pictures of a folder and of the folders in it, by their suffixes.

    Hidden ones are left out. Of a folder's pictures so many may be corrupt. Raises TrainingError where
    there is none.
    """
    if not place.exists():
        message = f"--predict `{place}` is not there"
        raise TrainingError(message, hint="a file, or a folder of them")
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    paths = [path for path in found if path == place or _is_wanted(path, place)]
    if not paths:
        message = f"--predict `{place}` holds no picture"
        raise TrainingError(message, hint=f"files of {', '.join(sorted(SUFFIXES))}")
    corrupt = CorruptPictures(0 if place.is_file() else max_corrupt)
    return Files(place=place, paths=paths, corrupt=corrupt)


def _is_wanted(path: Path, place: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(place).parts)
    return path.suffix.lower() in SUFFIXES and not is_hidden and path.is_file()


def tell_rows(
    rows: Iterable[Row], files: Files, folder: Path, *, say: Callable[[str], None]
) -> None:
    """Say each row, and write all of them into the folder as predictions.csv.

    Raises TrainingError where the disk refuses, or no file could be decoded.
    """
    told: list[Row] = []
    for row in rows:
        say("   ".join(str(cell) for cell in row.values()))
        told.append(row)
    num_skipped = files.corrupt.num_skipped
    number = len(files.paths) - num_skipped
    if not number:
        message = f"none of the {num_skipped} files of `{files.place}` can be decoded"
        raise TrainingError(message, hint="get them again")
    _write_table(folder / "predictions.csv", told)
    skipped = f", {num_skipped} skipped" if num_skipped else ""
    say(f"{number} file{'s' if number != 1 else ''} predicted{skipped}, in {folder}")


def whole_pictures(
    files: Files, *, formats: tuple[str, ...] | None = DECODED
) -> Iterator[tuple[int, Image]]:
    """Yield number and pixels of each file that can be decoded; a corrupt one is skipped and counted."""
    for index in range(len(files.paths)):
        try:
            picture = decode_rgb(files.read(index), files.name(index), formats)
        except CorruptPicture as error:
            files.corrupt.skip(error)
            continue
        yield index, picture


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV under the names of all their columns; whole or not at all."""
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["picture"]
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_whole(path, text.getvalue().encode())


def tell_classes(
    files: Files,
    shares: Iterable[tuple[int, Sequence[float]]],
    classes: Sequence[str],
    folder: Path,
) -> Iterator[Row]:
    """Yield a row of the surest classes for each file, and draw the first ones as predictions.png.

    `shares` has a file's number, and one of 0 to 1 for each class.
    """
    drawn: list[Prediction] = []
    for index, share in shares:
        row: dict[str, object] = {"picture": files.shown(index)}
        places = sorted(range(len(classes)), key=lambda place: -share[place])[:NUM_NAMED]
        for number, at in enumerate(places, 1):
            mark = "" if number == 1 else f"_{number}"
            row |= {f"class{mark}": classes[at], f"probability{mark}": f"{share[at]:.4f}"}
        if len(drawn) < NUM_DRAWN:
            drawn.append(
                Prediction(
                    picture=files.read(index),
                    predicted=classes[places[0]],
                    share=share[places[0]],
                    about=files.shown(index),
                )
            )
        yield row
    if drawn:
        write_grid(folder / "predictions.png", drawn)
