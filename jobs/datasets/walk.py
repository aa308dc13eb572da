"""Walks a dataset's folder in the order of whole paths, without holding the tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import NamedTuple

from jobs.contracts.errors import LaunchError
from jobs.datasets.paths import check_path
from jobs.host.untrusted import windows_objection


class Found(NamedTuple):
    """A file as its folder tells of it; a change of its content shows in one of these."""

    path: str
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> Found:
        """Keep the fields of a file's status that show a change."""
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def walk(folder: Path, warn: Callable[[str], None] = lambda _: None) -> Iterator[Found]:
    """Yield the folder's files, links to files in it among them, sorted by whole path.

    That is the order of a digest's lines and of a store's listing, and one folder's names are
    all it holds. Raises LaunchError for what a dataset cannot hold; `warn` hears of two names
    in one folder that differ in case alone, and of the first that Windows reads otherwise.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        message = f"`{folder}` {what}"
        raise LaunchError(message, hint="launch data push DIR NAME")
    root, top = str(folder), folder.resolve()
    has_warned = False
    for path, is_folder in walk_names(folder, warn):
        # A folder's too, before it is looked into: it may be deeper than the disk lets us ask.
        check_path(path)
        if not has_warned and (reason := windows_objection(path)):
            has_warned = True
            warn(f"`{path}`: {reason}, so this version cannot be pulled there")
        if not is_folder:
            yield Found.of(path, _status(f"{root}/{path}", top))


def look(folder: Path, name: str, warn: Callable[[str], None]) -> Found:
    """Give one file at the top of a folder, held to the same rules as in `walk`."""
    check_path(name)
    if reason := windows_objection(name):
        warn(f"`{name}`: {reason}, so this version cannot be pulled there")
    return Found.of(name, _status(f"{folder}/{name}", folder.resolve()))


def walk_names(
    folder: Path, warn: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, bool]]:
    """Yield each path below the folder, and whether it is a folder, sorted as files' paths are.

    Links are not followed: a link is a file here. A folder comes before what is in it.
    """
    root = str(folder)
    # Of each folder from the root to here: its path with a slash, and its names from last to next.
    open_folders = [("", _names(root))]
    _warn_of_case("", open_folders[0][1], warn)
    while open_folders:
        prefix, names = open_folders[-1]
        if not names:
            open_folders.pop()
            continue
        path = prefix + names.pop()
        if path[-1] != "/":
            yield path, False
        else:
            yield path[:-1], True
            inner = _names(f"{root}/{path}")
            _warn_of_case(path, inner, warn)
            open_folders.append((path, inner))


def _names(folder: str) -> list[str]:
    """List the folder's names, last first; folders with a slash, which sorts their files."""
    try:
        with os.scandir(folder) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
            ]
    except OSError as error:
        raise _unreadable(error) from None
    names.sort(reverse=True)
    return names


def _warn_of_case(prefix: str, names: Sequence[str], warn: Callable[[str], None]) -> None:
    # Hashes: a folder of a million names is to fit.
    if len({hash(name.casefold()) for name in names}) == len(names):
        return
    first: dict[str, str] = {}
    for name in reversed(names):
        other = first.setdefault(name.casefold(), name)
        if other != name:
            warn(
                f"`{prefix}{other}` and `{prefix}{name}` are the same name on macOS and Windows: "
                "this version cannot be pulled there"
            )
            return


def _status(path: str, top: Path) -> os.stat_result:
    """Give what a name stands for; of a link the file, which has to lie below `top`, too."""
    is_link = False
    try:
        # Strings: a million of them.
        status = os.lstat(path)
        is_link = S_ISLNK(status.st_mode)
        if is_link:
            status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        status = None
    except OSError as error:
        raise _unreadable(error) from None
    if status is not None and S_ISREG(status.st_mode):
        if is_link and not Path(path).resolve().is_relative_to(top):
            message = f"`{path}` is a link to a place outside the pushed folder"
            hint = "replace the link by the file if the dataset needs it"
            raise LaunchError(message, hint=hint)
        return status
    if status is not None and S_ISDIR(status.st_mode):
        message = f"`{path}` is a link to a folder; datasets hold no links"
        raise LaunchError(message, hint="replace the link by the folder, or push its target")
    message = f"`{path}` is neither a file nor a folder"
    raise LaunchError(message, hint="remove it, then push again")


def _unreadable(error: OSError) -> LaunchError:
    message = f"`{error.filename}` cannot be read: {error.strerror}"
    return LaunchError(message, hint="check who may read it, then type the same again")
