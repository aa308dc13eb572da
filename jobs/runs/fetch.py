"""Copy a run's results into a folder: complete files only, none twice, also while the run is on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console
from jobs.host.private import locked
from jobs.runs.code import FETCHED

FILES = ("metrics.jsonl", "summary.json", "error.json")
FOLDERS = ("outputs", "logs")
BLOCK = 1 << 20
LOCK = ".trainyard-fetch.lock"


def fetch_run(run_dir: Path, into: Path) -> Path:
    """Copy outputs, logs, metrics, summary and error into `into`; gives `into`.

    A file with the size and time of the run's is taken for copied. One that changes while it is
    copied gets the time from before, so that the next fetch copies it again. Links inside the
    outputs stay links; links out of them become the files they lead to, folders behind such
    links are left out. Raises EnvironmentFailure where `into` cannot be written.
    """
    with fetching_into(into):
        for name in FILES:
            _copy(run_dir / name, into / name)
        for folder in FOLDERS:
            root = run_dir / folder
            for name in _names(root):
                if _is_inner_link(root / name, root):
                    _link(root / name, into / folder / name)
                elif (root / name).is_file():
                    _copy(root / name, into / folder / name)
            (into / folder).mkdir(exist_ok=True)
    return into


@contextmanager
def fetching_into(into: Path) -> Generator[None]:
    """Make the folder, which travels with no run's code, and have it alone: waits for another fetch.

    Raises EnvironmentFailure where it cannot be written, also for an OSError from within.
    """
    try:
        into.mkdir(parents=True, exist_ok=True)
        with locked(into / LOCK, waiting=partial(_say_waiting, into), without_locks=True):
            (into / FETCHED).open("ab").close()
            yield
    except OSError as error:
        message = f"cannot write into `{into}`: {error.strerror or error}"
        hint = "free some space or choose another folder, then fetch again: the download continues"
        raise EnvironmentFailure(message, hint=hint) from error


def _say_waiting(into: Path) -> nullcontext[None]:
    console.say(f"another fetch writes into `{into}`: waiting for its end")
    return nullcontext()


def _names(root: Path) -> Iterator[str]:
    """Files and links below a folder, by their path in it."""
    folders = [""]
    while folders:
        prefix = folders.pop()
        try:
            entries = sorted(os.scandir(root / prefix), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{prefix}{entry.name}/")
            elif entry.is_symlink() or entry.is_file():
                yield prefix + entry.name


def _copy(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as reading:
            status = os.fstat(reading.fileno())
            if _is_copied(status, target):
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            part = _part_of(target)
            try:
                with part.open("wb") as writing:
                    while block := reading.read(BLOCK):
                        writing.write(block)
                os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
                part.replace(target)
            except OSError:
                part.unlink(missing_ok=True)
                raise
    except FileNotFoundError:
        if source.exists():
            raise
        # The run took it away meanwhile, or never had it.


def _part_of(target: Path) -> Path:
    """Name what a file is copied into: shortly, for its own name may have all the bytes there are."""
    key = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:20]
    return target.with_name(f".trainyard-{key}.part")


def _is_copied(status: os.stat_result, target: Path) -> bool:
    try:
        copied = target.stat()
    except FileNotFoundError:
        return False
    return (copied.st_size, copied.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def _is_inner_link(path: Path, root: Path) -> bool:
    """Tell whether a path is a relative link that leads to something below `root`."""
    if not path.is_symlink() or path.readlink().is_absolute():
        return False
    try:
        aim = path.resolve()
    except (OSError, RuntimeError):  # it leads to itself; RuntimeError up to Python 3.12
        return False
    return aim.exists() and aim.is_relative_to(root.resolve())


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(source.readlink())
