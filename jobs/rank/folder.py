"""Copies the code into the folder that a node's ranks run in."""

from __future__ import annotations

import errno
import os

CHUNK = 1 << 20
RESULTS = "outputs"  # in a rank's folder a link to what comes back from the run
FICLONE = 0x40049409  # of linux/fs.h: two files share their blocks until one is written to


def copy_tree(source: str, target: str) -> None:
    """Copy a folder but its RESULTS, whose place a link takes; links stay links."""
    os.makedirs(target)
    folders = [""]
    while folders:
        prefix = folders.pop()
        for entry in os.scandir(f"{source}/{prefix}"):
            name = prefix + entry.name
            if name == RESULTS:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), f"{target}/{name}")
            elif entry.is_dir():
                os.mkdir(f"{target}/{name}")
                folders.append(f"{name}/")
            else:
                _copy_file(entry.path, f"{target}/{name}")


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as read:
        mode = os.fstat(read.fileno()).st_mode & 0o777
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o200)
        try:
            copy_content(read.fileno(), descriptor)
        finally:
            os.close(descriptor)


def copy_content(source: int, target: int) -> None:
    """Copy an open file into an empty one: blocks are shared where the disk can, holes stay holes."""
    try:
        import fcntl

        fcntl.ioctl(target, FICLONE, source)
        return
    except (ImportError, OSError):  # Windows; another disk, or one that cannot
        pass
    size = os.fstat(source).st_size
    end = 0
    while end < size:
        begin, end = _next_data(source, end, size)
        os.lseek(source, begin, os.SEEK_SET)
        os.lseek(target, begin, os.SEEK_SET)
        _copy_bytes(source, target, end - begin)
    os.ftruncate(target, size)


def _next_data(source: int, start: int, size: int) -> tuple[int, int]:
    """Find the next range of a file that is not a hole."""
    try:
        begin = os.lseek(source, start, os.SEEK_DATA)
    except OSError as error:
        # Only a hole is left, or nobody knows of holes.
        return (size, size) if error.errno == errno.ENXIO else (start, size)
    except AttributeError:
        return start, size
    return begin, os.lseek(source, begin, os.SEEK_HOLE)


def _copy_bytes(source: int, target: int, count: int) -> None:
    while count > 0:
        chunk = os.read(source, min(CHUNK, count))
        if not chunk:  # it was cut off meanwhile
            return
        count -= len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(target, rest) :]
