"""Share what runs before tell through the environment's store, and read what others shared.

Each run on Azure that tells a rate, or the speed of the network, is two blobs of the container `runs`:
`past-runs/<job>/<run>.json` for forecasts of its job, `past-sizes/<VM size>/<run>.json` for those of
other jobs on such nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import TYPE_CHECKING

import msgspec

from jobs.contracts.errors import LaunchError
from jobs.host.files import write_file
from jobs.host.parallel import parallel
from jobs.host.untrusted import parse_json, read_bounded, read_small
from jobs.runs.past import Key, PastRun, add_past_runs, read_past_runs

if TYPE_CHECKING:
    from jobs.blobs.store import BlobStore

# Names that are listed, by ten requests, and runs that are brought at once: of a job, and of other
# jobs on such nodes.
MOST_LISTED, MOST_SHARED, MOST_OF_SIZE = 50_000, 100, 40
LONGEST_BYTES = 1 << 14
# What a plan waits at most for what others have shared, and how long it does not ask again.
SOON_S, FRESH_S = 2.0, 600.0
_ASKED, _MOST_ASKED, _MOST_ASKED_BYTES = "past-runs-asked.json", 100, 1 << 14


def share(blobs: BlobStore, past: PastRun) -> None:
    """Share a run, where it tells anything; one that is there stays as it is."""
    if past.rate or past.bus_gb_per_s:
        content = msgspec.json.encode(past)
        for name in (_of_job(past), _of_size(past)):
            blobs.create(name, content)


def exchange(
    blobs: BlobStore, workspace: Path, key: Key, size: str, *, is_patient: bool = True
) -> list[PastRun]:
    """Share our runs of a job and on a VM size, and add the newest of others'; gives all that is known.

    Without patience one run is brought after the other and added at once: it may be ended any time.
    """
    ours = [each for each in read_past_runs(workspace) if each.rate or each.bus_gb_per_s]
    known = {each.run for each in ours}
    for prefix, name, most in (
        (_job_prefix(key), _of_job, MOST_SHARED),
        (_size_prefix(size), _of_size, MOST_OF_SIZE),
    ):
        told = {name(each): each for each in ours if name(each).startswith(prefix)}
        there = {each.name for each in islice(blobs.list(prefix), MOST_LISTED)}
        untold = [(each, msgspec.json.encode(told[each])) for each in told.keys() - there]
        newest = nlargest(most, there - told.keys())  # names begin with the time
        missing = [each for each in newest if PurePosixPath(each).stem not in known]
        if is_patient:
            parallel(lambda each: blobs.create(*each), untold)
            theirs = [each for each in parallel(partial(_read, blobs), missing) if each]
            add_past_runs(workspace, theirs)
        else:
            theirs = list(_add_each(blobs, workspace, missing))
            for each in untold:
                blobs.create(*each)
        known |= {each.run for each in theirs}
    return read_past_runs(workspace)


def _add_each(blobs: BlobStore, workspace: Path, names: Sequence[str]) -> Iterator[PastRun]:
    for name in names:
        if past := _read(blobs, name):
            add_past_runs(workspace, [past])
            yield past


def add_soon(workspace: Path, key: Key, size: str, ask: Callable[[], object]) -> list[PastRun]:
    """Let `ask` add others' runs to the known ones, and wait for it for SOON_S; gives the known ones.

    It is not asked where it was within FRESH_S. One that takes longer goes on behind, for a later
    plan, and ends with the program.
    """
    if _is_fresh(workspace, question := f"{key} {size.lower()}"):
        return read_past_runs(workspace)

    def quietly() -> None:
        with suppress(LaunchError, OSError):
            ask()

    asking = Thread(target=quietly, daemon=True)
    asking.start()
    asking.join(SOON_S)
    # A store that gave no answer is not waited for by the next plan either.
    _note_asked(workspace, question)
    return read_past_runs(workspace)


def _read(blobs: BlobStore, name: str) -> PastRun | None:
    """Read what another machine has written; None for what is not of its name."""
    try:
        past = parse_json(read_bounded(blobs, name, LONGEST_BYTES) or b"", PastRun)
    except (LaunchError, msgspec.DecodeError):
        return None
    return past if name in (_of_job(past), _of_size(past)) else None


def _job_prefix(key: Key) -> str:
    return f"past-runs/{key}/"


def _size_prefix(size: str) -> str:
    return f"past-sizes/{size.lower()}/"


def _of_job(past: PastRun) -> str:
    return f"{_job_prefix(past.key)}{past.run}.json"


def _of_size(past: PastRun) -> str:
    return f"{_size_prefix(past.size)}{past.run}.json"


# --- When others were asked --------------------------------------------------------------------


def _is_fresh(workspace: Path, question: str) -> bool:
    return 0 <= time.time() - _asked(workspace).get(question, 0.0) < FRESH_S


def _note_asked(workspace: Path, question: str) -> None:
    told = _asked(workspace) | {question: time.time()}
    newest = nlargest(_MOST_ASKED, told.items(), key=lambda each: each[1])
    with suppress(OSError):
        write_file(workspace / _ASKED, msgspec.json.encode(dict(newest)), is_synced=False)


def _asked(workspace: Path) -> dict[str, float]:
    """Read when what was asked for last, in seconds since 1970; empty where nobody knows."""
    with suppress(OSError, msgspec.DecodeError):
        return parse_json(read_small(workspace / _ASKED, _MOST_ASKED_BYTES), dict[str, float])
    return {}
