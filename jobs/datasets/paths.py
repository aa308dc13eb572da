"""Checks the files that a dataset may hold, and finds each one's place in a folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host.console import size_text
from jobs.host.untrusted import LONGEST_PART_BYTES, windows_objection

# A blob's name may have 1,024 characters in 254 parts, and a dataset's name and digest come first.
LONGEST_PATH = 890
MOST_PARTS = 250
# Files that are being received have such a name until they are whole.
OWN_PREFIX = ".trainyard-"
IS_WINDOWS = os.name == "nt"
# Controls, halves of pairs, ends of lines and paragraphs, and what Unicode does not assign.
_UNSHOWN = {"Cc", "Cs", "Zl", "Zp", "Cn"}
# Controls of the writing direction, by which a name shows as another one.
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]")
# Trainers of older versions believe what it says of where the shards are, and of what to delete.
_STREAM_FILE = "stream.json"
# Kept free on a disk beside what is written to it.
_SPARE_BYTES = 64 << 20


class DatasetFile(Struct, frozen=True, kw_only=True):
    """A file of a version: its path inside the dataset, size and digests of its content."""

    path: str
    bytes: int
    sha256: str
    md5: str


def check_path(path: str) -> None:
    """Raise LaunchError for a name that means another file on another machine or store."""
    reason = _objection(path) or (windows_objection(path) if IS_WINDOWS else None)
    if reason:
        shown = path if len(path) <= 100 else f"{path[:60]}...{path[-30:]}"
        message = f"the file name {shown!a} cannot be used in a dataset: {reason}"
        raise LaunchError(message, hint="rename the file, and push again")


def _objection(path: str) -> str | None:
    # One look at the whole name first: a dataset has a million of them.
    if "\\" in path or not (path.isprintable() or _is_plain(path)):
        return "it holds a backslash or a character that cannot be shown"
    if len(path) > LONGEST_PATH:
        return f"it is longer than {LONGEST_PATH} characters, the limit of a blob's name"
    if len(path) == len(_STREAM_FILE) and path.lower() == _STREAM_FILE:
        return "Trainyard uses this name for its own settings"
    parts = path.split("/")
    if len(parts) > MOST_PARTS:
        return f"it is deeper than {MOST_PARTS} folders, the limit of a blob's name"
    for part in parts:
        if part in ("", ".", ".."):
            return "it is absolute or leads outside its folder"
        if part[-1] == ".":
            return "a part of it ends with a dot, which Azure's stores drop"
        if part.startswith(OWN_PREFIX):
            return f"`{OWN_PREFIX}` marks a file of an unfinished pull: pull again, or delete it"
        if len(part) > LONGEST_PART_BYTES // 4 and len(part.encode()) > LONGEST_PART_BYTES:
            return f"a part of it is longer than {LONGEST_PART_BYTES} bytes"
    return None


def _is_plain(path: str) -> bool:
    """Tell whether a name shows as what it is; blanks of all kinds and joiners do, unlike controls."""
    from unicodedata import category

    return not _DIRECTIONS.search(path) and not any(category(each) in _UNSHOWN for each in path)


class Inside:
    """The places of a dataset's files in one folder, none of them outside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder.resolve()
        self._checked: Path | None = None

    def place(self, path: str) -> Path:
        """Give the place of a dataset's file; raises LaunchError where it is outside."""
        check_path(path)
        target = self._folder / path
        # A link among the parents may lead out of the folder, too. Files come folder by folder.
        if target.parent != self._checked:
            if not target.parent.resolve().is_relative_to(self._root):
                message = f"`{path}` would be written outside `{self._folder}`, through a link"
                raise LaunchError(message, hint="name an empty folder")
            self._checked = target.parent
        return target


def case_clash(paths: Iterator[str]) -> tuple[str, str] | None:
    """Find two paths, of those given in order, that one file stands for on a disk that folds case."""
    # The names in the folder that is being walked and in those above it.
    folders: list[tuple[str, dict[str, str]]] = [("", {})]
    for path in paths:
        parts = path.split("/")
        depth = 0
        while depth + 1 < len(folders) and folders[depth + 1][0] == parts[depth]:
            depth += 1
        del folders[depth + 1 :]
        for level in range(depth, len(parts)):
            names = folders[level][1]
            other = names.setdefault(parts[level].casefold(), parts[level])
            if other != parts[level]:
                above = "/".join(parts[:level])
                return (f"{above}/{other}" if above else other), path
            folders.append((parts[level], {}))
    return None


def folds_case(folder: Path) -> bool:
    """Tell whether the folder's disk takes `a` and `A` for one name."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix=OWN_PREFIX, suffix=".case", dir=folder) as probe:
        path = Path(probe.name)
        return path.with_name(path.name.upper()).exists()


def check_space(folder: Path, wanted: int, what: str) -> None:
    """Raise EnvironmentFailure where the folder's disk has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if wanted and wanted + _SPARE_BYTES > free:
        message = (
            f"{what} needs {size_text(wanted)} in `{folder}`, with {size_text(_SPARE_BYTES)} to "
            f"spare, where {size_text(free)} are free"
        )
        raise EnvironmentFailure(
            message, hint="free space on that disk, or choose a folder on another disk"
        )


@contextmanager
def disk_errors(path: Path) -> Generator[None]:
    """Turn the disk's errors (full, read-only, a file in the way) into EnvironmentFailure."""
    try:
        yield
    except OSError as error:
        message = f"`{error.filename or path}` cannot be written: {error.strerror}"
        raise EnvironmentFailure(
            message, hint="check the permissions and the free space there"
        ) from None
