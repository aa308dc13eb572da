"""Sum up the files of one version, and the differences of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from jobs.datasets.file_list import FileList
from jobs.datasets.paths import DatasetFile

NUM_LARGEST = 10


class Share(Struct, frozen=True, kw_only=True):
    """A folder's, or a kind of file's, part of a version."""

    name: str
    files: int
    bytes: int


class Shares(Struct, frozen=True, kw_only=True):
    """The largest folders of the top, and kinds of files by their ending."""

    folders: tuple[Share, ...]
    kinds: tuple[Share, ...]


class Change(Struct, frozen=True, kw_only=True):
    """A file that parts two versions; of an added file `a` is None, of a removed one `b`."""

    kind: Literal["added", "removed", "changed"]
    path: str
    a: int | None
    b: int | None


def shares_of(files: FileList) -> Shares:
    """Add up a version's files."""
    folders, kinds = _Sums(), _Sums()
    for file in files:
        folder, slash, _ = file.path.partition("/")
        folders.add(f"{folder}/" if slash else ".", file.bytes)
        name = file.path.rpartition("/")[2]
        ending = name.rpartition(".")[2].lower() if "." in name[1:] else ""
        # What comes after a dot in a name without an ending is no kind of file.
        kinds.add(f".{ending}" if 0 < len(ending) <= 10 else "no ending", file.bytes)
    return Shares(folders=folders.largest(), kinds=kinds.largest())


class _Sums:
    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, name: str, num_bytes: int) -> None:
        self._files[name] += 1
        self._bytes[name] += num_bytes

    def largest(self) -> tuple[Share, ...]:
        return tuple(
            Share(name=name, files=self._files[name], bytes=num_bytes)
            for name, num_bytes in self._bytes.most_common(NUM_LARGEST)
        )


def changes(a: FileList, b: FileList) -> Iterator[Change]:
    """Yield the changes that make `a` to `b`, by path; both lists are read once."""
    ours, theirs = iter(a), iter(b)
    left, right = next(ours, None), next(theirs, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.path < right.path):
            assert left is not None
            yield Change(kind="removed", path=left.path, a=left.bytes, b=None)
            left = next(ours, None)
        elif left is None or right.path < left.path:
            yield Change(kind="added", path=right.path, a=None, b=right.bytes)
            right = next(theirs, None)
        else:
            if not _is_same(left, right):
                yield Change(kind="changed", path=left.path, a=left.bytes, b=right.bytes)
            left, right = next(ours, None), next(theirs, None)


def _is_same(a: DatasetFile, b: DatasetFile) -> bool:
    return (a.sha256, a.bytes) == (b.sha256, b.bytes)
