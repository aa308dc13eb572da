"""Write each submit's intent to disk before Azure hears of it, so that a crash starts no run twice.

A run's folder holds `intent.json` from before the first request until Azure ML has the job; then it
is renamed to `submitted.json`. Whoever finds an intent that nobody works on any more knows what was
meant, and under which name Azure ML would have it: the same name again is the same job.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Plan
from jobs.host.files import write_file
from jobs.host.private import open_lock, try_lock
from jobs.host.untrusted import read_json
from jobs.runs.store import RunStore

INTENT, SUBMITTED, GIVEN_UP = "intent.json", "submitted.json", "given-up.json"
_LOCK = "intent.lock"
# An intent that is older is none of what is typed now.
RESUME_S = 3600.0


class Intent(Struct, frozen=True, kw_only=True):
    """`intent.json`: which plan (by digest) and which code it is about, and since when."""

    plan_digest: str
    code: str
    since_s: float


def plan_digest(plan: Plan) -> str:
    """Hash a plan, so that the same job on the same environment has the same digest."""
    told = msgspec.json.decode(msgspec.json.encode(plan))  # to sort what is in its request, too
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


def write_intent(run_dir: Path, intent: Intent) -> None:
    """Put it on disk; raises OSError."""
    write_file(run_dir / INTENT, msgspec.json.encode(intent))


def mark_submitted(run_dir: Path) -> None:
    """Note that Azure ML has the job."""
    _rename(run_dir, SUBMITTED)


def give_up(run_dir: Path) -> None:
    """Note that Azure ML never got the job, and will not get it from us."""
    _rename(run_dir, GIVEN_UP)


def read_intent(run_dir: Path) -> Intent | None:
    """Read the intent while it is open; None if it is not."""
    try:
        return read_json(run_dir / INTENT, Intent)
    except (OSError, msgspec.DecodeError):
        return None


def open_intents(store: RunStore, within_s: float) -> Iterator[tuple[Path, Intent]]:
    """Yield the runs whose intent is open and no older than that, newest first."""
    now_s = time.time()
    # Ids begin with their time, so older ones need no look.
    oldest = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s - within_s))
    for name in store.names():
        if name < oldest:
            return
        run_dir = store.runs / name
        intent = read_intent(run_dir)
        if intent is not None and now_s - intent.since_s < within_s:
            yield run_dir, intent


@contextmanager
def hold(run_dir: Path) -> Generator[bool]:
    """Keep others off an intent while it is worked on; False where another process does so.

    The system lets go of it when the process ends, however it does.
    """
    try:
        descriptor = open_lock(run_dir / _LOCK)
    except FileNotFoundError:  # withdrawn meanwhile, with its folder
        yield False
        return
    try:
        yield try_lock(descriptor, without_locks=False)
    finally:
        os.close(descriptor)


def _rename(run_dir: Path, name: str) -> None:
    try:
        (run_dir / INTENT).replace(run_dir / name)
    except FileNotFoundError:
        return
    except OSError as error:
        message = f"cannot write in `{run_dir}`: {error.strerror or error}"
        raise EnvironmentFailure(message, hint="correct the folder's permissions") from error
