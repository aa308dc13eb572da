"""Finds runtimes, layers and Horovod's wheels in the cache that no image and no process needs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.host.cache import cache_root
from jobs.host.disk import IN_USE, REMOVED, Leftover, age_s, cut_off, delete, put_away
from jobs.host.owners import foreign_owner
from jobs.host.private import open_lock, try_lock
from jobs.images.runtimes import FINISHED, INSTALLED, horovod_key, list_images, runtime_key

RUNTIMES, LAYERS, HOROVOD = "runtimes", "layers", "horovod"
_WORK = ".work"
_FILES = (".lock", ".log", ".told")


class Need(Struct, frozen=True, kw_only=True):
    """Whatever keeps a folder of the cache: keys of images, and names that processes use."""

    current: frozenset[str]
    in_use: frozenset[str]
    older_s: float
    now_s: float


def find_unused(
    projects: Iterable[Path], older_s: float, live: Callable[[], set[str]]
) -> list[Leftover]:
    """List the built folders of the cache with the reason why each stays.

    `projects` are those whose images count, `live` names the runtimes and layers of runs that are
    not over.
    """
    root = cache_root(os.environ)
    current = current_names(projects)

    def need() -> Need:
        used = live().union(*(_in_use(root / kind) for kind in (RUNTIMES, LAYERS)))
        # A layer needs the runtime below, by which it is named.
        used |= {name.partition("+")[0] for name in used}
        return Need(current=current, in_use=frozenset(used), older_s=older_s, now_s=time.time())

    first = need()
    layers = [_leftover(LAYERS, path, first, need) for path in _folders(root / LAYERS)]
    below = frozenset(each.name.partition("+")[0] for each in layers if each.stays)
    found = list(layers)
    found += [_leftover(RUNTIMES, path, first, need, below) for path in _folders(root / RUNTIMES)]
    found += [_leftover(HOROVOD, path, first, need) for path in _folders(root / HOROVOD)]
    return found


def current_names(projects: Iterable[Path]) -> frozenset[str]:
    """Name the runtimes and wheels that the locks of projects' images come to."""
    names: set[str] = set()
    for project in projects:
        for image in list_images(project):
            with suppress(
                LaunchError, OSError, UnicodeDecodeError
            ):  # has no lock, or a damaged one
                names.add(f"{image}-{runtime_key(image, project)}")
                if key := horovod_key(image, project):
                    names.add(key)
    return frozenset(names)


def why_needed(path: Path, need: Need, below: frozenset[str] = frozenset()) -> str | None:
    """Say why a folder stays; None where nothing needs it."""
    name = path.name.removesuffix(_WORK)
    if name in need.in_use:
        return "in use"
    if name in need.current and not path.name.endswith(_WORK):
        return "of an image's present lock"
    if name in below:
        return "below a layer that stays"
    if owner := foreign_owner(path):
        return f"belongs to {owner}"
    if age_s([path, path / FINISHED, path / INSTALLED], need.now_s) < need.older_s:
        return "used lately"
    return None


def _leftover(
    kind: str,
    path: Path,
    first: Need,
    need: Callable[[], Need],
    below: frozenset[str] = frozenset(),
) -> Leftover:
    def take() -> str | None:
        lock = open_lock(path.with_name(f"{path.name.removesuffix(_WORK)}.lock"))
        try:
            if not try_lock(lock, without_locks=False):
                return IN_USE
            if reason := why_needed(path, need(), below):
                return reason
            gone = put_away(path)
        finally:
            os.close(lock)
        delete(gone)
        path.with_name(f"{path.name}.log").unlink(missing_ok=True)
        return None

    if path.name.startswith(REMOVED):  # its removal was cut off
        return cut_off(kind, path)
    stays = why_needed(path, first, below)
    return Leftover(kind=kind, name=path.name, paths=(path,), stays=stays, take=take)


def _folders(parent: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in parent.iterdir() if each.suffix not in _FILES)
    return []


def _in_use(folder: Path) -> set[str]:
    if sys.platform != "linux":
        return {each.name for each in _folders(folder)}  # nobody tells
    from jobs.host.processes import names_in_use

    return names_in_use(folder)
