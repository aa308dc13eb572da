"""How many files and connections may be open at once here, and what to do where they are too many."""

from __future__ import annotations

import errno
import os
import sys

from jobs.blobs.transfers.pace import FEWEST, MOST

# A request has its connection open, and the file it sends, with as many waiting; or the file it
# receives, with its journal.
_OPEN_A_REQUEST = 3
# For whoever else opens something meanwhile: lists, tables, programs that are started.
_SPARE = 16
_WANTED = _OPEN_A_REQUEST * MOST + 128


def most_requests() -> int:
    """How many requests may be under way, by what may still be opened; asks for more first."""
    if sys.platform == "win32":
        return MOST
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _WANTED:
        wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # a system may have a bound of its own below `hard`
        else:
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return MOST
    left = soft - len(os.listdir("/dev/fd")) - _SPARE  # noqa: PTH208
    return max(FEWEST, min(MOST, left // _OPEN_A_REQUEST))


def hint_for(error: OSError, otherwise: str) -> str:
    """What to type after an error; `otherwise` where it is not about too many open files."""
    if error.errno == errno.EMFILE:
        return "ulimit -n 1024, and the same again: too few files may be open in this shell"
    if error.errno == errno.ENFILE:
        return "end what has so many files open on this machine, and type the same again"
    return otherwise
