"""Measures what folders take on the disk, and removes them so that a kill leaves nothing half there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.files import sync_folder

# The new name of a folder that is being removed: no list shows it, and the next `prune` finds it.
REMOVED = ".removed-"
IN_USE = "it is in use by now"
_BLOCK_BYTES = 512  # of st_blocks, on every file system


class Leftover(Struct, frozen=True, kw_only=True):
    """A thing on the disk that `launch prune` looks at.

    `stays` is the reason why it is kept. `take` removes it, or gives the reason why it stays after
    all. `num_bytes` is set where the thing is not on this machine's disk.
    """

    kind: str
    name: str
    paths: tuple[Path, ...]
    stays: str | None
    take: Callable[[], str | None]
    num_bytes: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes that its removal frees."""
        return num_freed(self.paths) if self.num_bytes is None else self.num_bytes


def cut_off(kind: str, path: Path) -> Leftover:
    """Make the leftover of a removal that was cut off after its renaming."""
    take = partial(delete, path)
    return Leftover(kind=kind, name=path.name, paths=(path,), stays=None, take=take)


def num_freed(paths: Iterable[Path]) -> int:
    """Count the bytes that a removal of all paths frees, as `du` counts them.

    A file that has another name elsewhere is not counted: it stays.
    """
    links: dict[tuple[int, int], list[int]] = {}
    total = 0
    for status in _entries(paths):
        taken = status.st_blocks * _BLOCK_BYTES if os.name == "posix" else status.st_size
        if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
            total += taken
        else:
            seen = links.setdefault((status.st_dev, status.st_ino), [status.st_nlink, 0, taken])
            seen[1] += 1
    return total + sum(taken for wanted, seen, taken in links.values() if seen >= wanted)


def put_away(folder: Path) -> Path:
    """Rename a folder to the name of one that is being removed, on disk before this returns."""
    gone = folder.with_name(f"{REMOVED}{folder.name}")
    try:
        if gone.exists():  # of an earlier try under the same name
            delete(gone)
        folder.rename(gone)
        sync_folder(folder.parent)
    except FileNotFoundError:
        return gone
    except OSError as error:
        raise _cannot_remove(folder, error) from error
    return gone


def put_back(gone: Path) -> None:
    """Undo `put_away`."""
    gone.rename(gone.with_name(gone.name.removeprefix(REMOVED)))


def put_away_in(folder: Path) -> list[str]:
    """List the names of what was put away in a folder and is still there."""
    with suppress(OSError):
        names = os.listdir(folder)  # noqa: PTH208
        return sorted(each[len(REMOVED) :] for each in names if each.startswith(REMOVED))
    return []


def delete(path: Path) -> None:
    """Delete a folder with its contents, or a file; raises EnvironmentFailure for one that stays.

    Folders that a program has closed to its own user are opened.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            try:
                shutil.rmtree(path)
            except PermissionError:
                _open_folders(path)
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot_remove(path, error) from error


def age_s(paths: Sequence[Path], now_s: float) -> float:
    """Give the seconds since the newest of some paths was changed; endless where there is none."""
    times: list[float] = []
    for path in paths:
        with suppress(OSError):
            times.append(path.lstat().st_mtime)
    return now_s - max(times) if times else float("inf")


def _entries(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        waiting = [os.fspath(path)]
        with suppress(OSError):
            yield path.lstat()
        while waiting:
            with suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):  # removed meanwhile
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)


def _open_folders(folder: Path) -> None:
    for path, names, _ in os.walk(folder):
        for name in ["", *names]:
            each = Path(path, name)
            if not each.is_symlink():
                each.chmod(0o700)


def _cannot_remove(path: Path, error: OSError) -> EnvironmentFailure:
    where = error.filename or path
    message = f"cannot remove `{where}`: {error.strerror or error}"
    return EnvironmentFailure(message, hint=f"ls -ld {path} shows whose it is")
