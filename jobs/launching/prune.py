"""Finds what nobody needs any more of an environment's runs, inputs and caches, kind by kind."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from jobs.contracts.errors import LaunchError, Refused
from jobs.contracts.spec import RunHandle, RunRecord
from jobs.engines.base import Engine
from jobs.host import trust
from jobs.host.disk import IN_USE, REMOVED, Leftover, age_s, cut_off, delete, put_away, put_back
from jobs.host.owners import foreign_owner
from jobs.host.private import open_lock, try_lock
from jobs.launching.removal import is_over, refusal, resumers
from jobs.runs.outcome import parse_time
from jobs.runs.removal import removed_folder
from jobs.runs.run_folder import read_record

RUNS, INPUTS, BLOCKS, DIGESTS = "runs", "inputs", "blocks", "digests"
# `WORKSPACE/inputs`: a dataset's files, or what a stream needs of them; and one that is not whole.
_INPUT = re.compile(r"(\.?)([0-9a-f]{64})(\.stream)?(\.partial)?")
_CACHE_MARKER = "trainyard-cache"


class Age(Struct, frozen=True, kw_only=True):
    """Limits of `launch prune`: the age of what goes, and the number of the newest runs that stay."""

    older_s: float
    keep: int


# --- Runs -------------------------------------------------------------------------------------


def find_runs(engine: Engine, age: Age, damaged: list[LaunchError]) -> list[Leftover]:
    """List the runs that this machine started, newest first, and those whose removal was cut off."""
    removal = engine.removal
    names = removal.started_here()
    resumed = resumers(removal.records(names[-1], damaged)) if names else {}
    going: set[str] = set()
    found = [_run(engine, each, None, is_cut_off=True) for each in removal.cut_off()]
    num_over = 0
    for name in names:
        handle = engine.store.handle(name)
        try:
            stays = _why_run_stays(engine, handle, age, num_over)
        except LaunchError as error:
            damaged.append(error)
            stays = "cannot be read"
        if stays != "not over":
            num_over += 1
        if stays is None and set(resumed.get(name, ())) - going:
            stays = "a run resumed from it"
        if stays is None:
            going.add(name)
        found.append(_run(engine, handle, stays))
    return found


def _why_run_stays(engine: Engine, handle: RunHandle, age: Age, num_over: int) -> str | None:
    if not is_over(engine, handle):
        return "not over"
    if num_over < age.keep:
        return f"of the newest {age.keep}"
    if time.time() - _ended_s(engine, handle) < age.older_s:
        return "too young"
    return "kept" if engine.removal.is_kept(handle) else None


def _ended_s(engine: Engine, handle: RunHandle) -> float:
    try:
        status = engine.store.status(handle)
    except LaunchError:  # a damaged one: by its files
        return time.time() - age_s([*Path(handle.run_dir).glob("*")], time.time())
    return parse_time(status.ended or status.created).timestamp()


def _run(
    engine: Engine, handle: RunHandle, stays: str | None, *, is_cut_off: bool = False
) -> Leftover:
    def take() -> str | None:
        try:
            if not is_cut_off and (refused := _refused_by_now(engine, handle)):
                return str(refused)
            engine.removal.remove(handle)
        except Refused as error:
            return str(error)
        return None

    run_dir = Path(handle.run_dir)
    is_here = engine.store.has_own_records
    if is_here and (owner := foreign_owner(run_dir)):
        stays = f"belongs to {owner}"
    return Leftover(
        kind=RUNS,
        name=handle.id,
        paths=(run_dir, removed_folder(run_dir)) if is_here else (),
        stays=stays,
        take=take,
        num_bytes=None if is_here else engine.removal.size([handle]),
    )


def _refused_by_now(engine: Engine, handle: RunHandle) -> LaunchError | None:
    # Successors go first: one that is still there stays.
    resumed = resumers(engine.removal.records(handle.id, []))
    return refusal(engine, handle, going=(), resumed=resumed)


# --- What runs read -----------------------------------------------------------------------------


def find_inputs(
    engine: Engine, age: Age, going: Collection[str], damaged: list[LaunchError]
) -> list[Leftover]:
    """List the copies of datasets in the workspace; those that a run reads that stays, stay."""
    folder = engine.store.workspace / "inputs"
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []

    def read(unread: list[LaunchError]) -> set[str]:
        # When something is taken, what was to go is gone: a run that is there, stays.
        return digests_read(engine.removal.records("", unread), ())

    digests = digests_read(engine.removal.records("", damaged), going)
    found: list[Leftover] = []
    for path in paths:
        if path.name.startswith(REMOVED):
            found.append(cut_off(INPUTS, path))
        elif shape := _INPUT.fullmatch(path.name):
            stays = None
            if shape[2] in digests:
                stays = "read by a run that stays"
            elif damaged:
                stays = "a run's record cannot be read"
            elif owner := foreign_owner(path):
                stays = f"belongs to {owner}"
            elif age_s([path], time.time()) < age.older_s:
                stays = "too young"
            lock = folder / f".{shape[2]}{shape[3] or ''}.lock"
            take = partial(_take_input, path, lock, shape[2], read)
            found.append(
                Leftover(kind=INPUTS, name=path.name, paths=(path,), stays=stays, take=take)
            )
    return found


def digests_read(records: Iterable[RunRecord], going: Collection[str]) -> set[str]:
    return {
        given.dataset.digest
        for record in records
        if record.id not in going
        for given in record.plan.spec.inputs.values()
    }


def _take_input(
    path: Path, lock_file: Path, digest: str, read: Callable[[list[LaunchError]], set[str]]
) -> str | None:
    lock = open_lock(lock_file)
    try:
        if not try_lock(lock, without_locks=False):
            return IN_USE  # somebody receives it
        gone = put_away(path)
        # A run that was made since looks for the folder after it has its record: it is met here, or
        # it finds no folder and waits for the lock.
        unread: list[LaunchError] = []
        is_read = digest in read(unread)
        if is_read or unread:
            put_back(gone)
            return "a run that stays reads it" if is_read else "a run's record cannot be read"
    finally:
        os.close(lock)
    delete(gone)
    return None


def find_blocks(engine: Engine, age: Age) -> list[Leftover]:
    """Find the blocks of streamed datasets that no rank has asked for lately, as one thing."""
    folder = engine.store.workspace / "cache"
    if not (folder / _CACHE_MARKER).is_file():
        return []
    blocks = [each for each in folder.glob("*/*") if each.is_file()]
    now_s = time.time()
    old = [each for each in blocks if age_s([each], now_s) >= age.older_s]
    recent = sorted(set(blocks) - set(old))
    return [
        *_several(BLOCKS, old, None, partial(_unlink_old, age)),
        *_several(BLOCKS, recent, "used lately", partial(_unlink_old, age)),
    ]


def _unlink_old(age: Age, path: Path) -> None:
    if age_s([path], time.time()) >= age.older_s:  # still
        path.unlink(missing_ok=True)


# --- Caches of this user ------------------------------------------------------------------------


def find_digests(age: Age) -> list[Leftover]:
    """Find the kept digests of folders that nobody has pushed or pulled lately, as one thing."""
    from jobs.datasets.scan_cache import cache_folder, drop, old_files

    old = old_files(age.older_s)
    recent = [each for each in cache_folder().glob("*.sqlite") if each not in old]
    return [
        *_several(DIGESTS, old, None, drop),
        *_several(DIGESTS, recent, "used lately", drop),
    ]


def find_built(age: Age) -> list[Leftover]:
    """List runtimes, layers and wheels; what an image or a run of any workspace needs stays."""
    from jobs.images.unused import find_unused

    return find_unused(trust.trusted_projects(), age.older_s, _live_images)


def _live_images() -> set[str]:
    """Name the runtimes and layers of all runs of this user that are not over."""
    if sys.platform != "linux":
        return set()
    from jobs.host.processes import supervised_folders

    found: set[str] = set()
    for run_dir in supervised_folders():
        with suppress(LaunchError):
            found.add(read_record(run_dir).image_digest or "")
    return found


def _several(
    kind: str, paths: list[Path], stays: str | None, drop: Callable[[Path], None]
) -> list[Leftover]:
    def take() -> None:
        for path in paths:
            drop(path)

    if not paths:
        return []
    name = f"{len(paths)} files"
    return [Leftover(kind=kind, name=name, paths=tuple(paths), stays=stays, take=take)]
