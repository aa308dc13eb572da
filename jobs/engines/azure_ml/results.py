"""Read what a run's nodes left in the container `runs`: ranks' records, figures, checkpoints."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RankError, RunHandle, RunState
from jobs.engines.azure_ml.history import Attempt
from jobs.engines.azure_ml.names import checkpoints_prefix
from jobs.host import console
from jobs.host.files import write_file
from jobs.host.parallel import parallel
from jobs.host.private import make_folder
from jobs.host.untrusted import TooLong, is_file_name, parse_json, read_bounded
from jobs.rank.places import HISTORY, MOST_BYTES, PROGRESS
from jobs.runs.checkpoints import MANIFEST, Checkpoint, checkpoint_of
from jobs.runs.failure import PREEMPTED_EXIT_CODE, RankReport, root_cause
from jobs.runs.progress import METRICS, MOST_HISTORY_BYTES

if TYPE_CHECKING:
    from jobs.blobs.store import Blob, BlobStore

# A node that is taken away ends what runs on it by these.
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
# Each holds 64 kB of a log's end at most, twice (jobs/rank/log.py), and 100 bytes a figure.
_RECORD = re.compile(r"[0-9]{5}\.json")
_LONGEST_RECORD, _MOST_RECORDS = 1 << 20, 4096
_LONGEST_FIGURES, _LONGEST_MANIFEST = 64 << 20, 16 << 20
_PROGRESS = {PROGRESS: MOST_BYTES, HISTORY: MOST_HISTORY_BYTES}
_FIGURES = {METRICS: _LONGEST_FIGURES, "summary.json": _LONGEST_FIGURES, **_PROGRESS}
_FOLDER = re.compile(r"([^/]+)/(.+)")


def rank_reports(blobs: BlobStore, run: str, attempt: int) -> list[tuple[str, bytes]]:
    """Read the records of an attempt's ranks, by file name, as far as they left one.

    Whoever is on a node may write there: other names, and what is longer than a record, are left.
    """
    prefix = f"{run}/ranks/{attempt}/"
    found = (each.name.removeprefix(prefix) for each in blobs.list(prefix))
    names = list(islice(filter(_RECORD.fullmatch, found), _MOST_RECORDS))
    read = partial(_read, blobs, longest=_LONGEST_RECORD)
    contents = parallel(read, [prefix + name for name in names])
    return [
        (name, content)
        for name, content in zip(names, contents, strict=True)
        if content is not None
    ]


def rank_error(blobs: BlobStore, run: str, attempt: int) -> RankError | None:
    """Find the rank that failed first, judged as on a machine of one's own."""
    return _judge(rank_reports(blobs, run, attempt))


def own_error(blobs: BlobStore, run: str, attempt: int) -> RankError | None:
    """Find the rank that failed by itself: not by a peer's end, a signal or its own checkpoint."""
    reports = _decode(rank_reports(blobs, run, attempt))
    own = [each for each in reports if not each.is_about_a_peer and not _was_ended(each)]
    return root_cause(own, stopped_s=None)


def cancel_mark(run: str) -> str:
    """Name the blob that marks a run as cancelled for good."""
    return f"{run}/cancelled"


def is_cancelled(blobs: BlobStore, run: str) -> bool:
    """Tell whether somebody has cancelled a run that could have been started again."""
    return blobs.read(cancel_mark(run)) is not None


def bring_results(blobs: BlobStore, handle: RunHandle, attempt: Attempt) -> None:
    """Write figures, the ranks' records and `error.json` into the run's folder.

    `attempt` is the newest. Nothing is asked for twice once it has ended.
    """
    run_dir = Path(handle.run_dir)
    state = attempt.standing.state
    mark = run_dir / "azure" / "brought"
    if mark.exists() and mark.read_text(encoding="utf-8") == str(attempt.number):
        return
    if state is RunState.LOST and not attempt.status:
        return  # it never began, or nobody can be asked
    try:
        for name, longest in _FIGURES.items():
            _bring(blobs, handle, name, longest)
        if state.is_terminal():
            _bring_ranks(blobs, handle, attempt.number, state)
            mark.parent.mkdir(exist_ok=True)
            write_file(mark, str(attempt.number).encode())
    except OSError as error:
        raise _unwritable(run_dir, error) from error


def bring_progress(blobs: BlobStore, handle: RunHandle) -> None:
    """Write what the run's nodes tell of its progress into the run's folder, else its metrics."""
    run_dir = Path(handle.run_dir)
    try:
        make_folder(run_dir)
        brought = [_bring(blobs, handle, name, longest) for name, longest in _PROGRESS.items()]
        if not brought[0]:
            _bring(blobs, handle, METRICS, _LONGEST_FIGURES)
    except OSError as error:
        raise _unwritable(run_dir, error) from error


def _bring(blobs: BlobStore, handle: RunHandle, name: str, longest: int) -> bool:
    """Write a file as it is in the store; one that is the same keeps its time. False without one."""
    content = _read(blobs, f"{handle.id}/{name}", longest)
    path = Path(handle.run_dir, name)
    if content is not None and not (path.exists() and path.read_bytes() == content):
        write_file(path, content)
    return content is not None


def _unwritable(run_dir: Path, error: OSError) -> EnvironmentFailure:
    message = f"cannot write in `{run_dir}`: {error.strerror or error}"
    return EnvironmentFailure(message, hint="free some space")


def _bring_ranks(blobs: BlobStore, handle: RunHandle, attempt: int, state: RunState) -> None:
    run_dir = Path(handle.run_dir)
    reports = rank_reports(blobs, handle.id, attempt)
    folder = run_dir / "ranks"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()  # of the attempt before
    for name, content in reports:
        write_file(folder / name, content)
    error = _judge(reports) if state in (RunState.FAILED, RunState.PREEMPTED) else None
    if error is not None:
        write_file(run_dir / "error.json", msgspec.json.encode(error))


def _judge(reports: Sequence[tuple[str, bytes]]) -> RankError | None:
    return root_cause(_decode(reports), stopped_s=None)


def _decode(reports: Sequence[tuple[str, bytes]]) -> list[RankReport]:
    decoded: list[RankReport] = []
    for _, content in reports:
        try:
            decoded.append(parse_json(content, RankReport))
        except msgspec.DecodeError:
            continue
    return decoded


def _read(blobs: BlobStore, name: str, longest: int) -> bytes | None:
    """Read what one of many may leave out: None, and a warning, for one that is too long."""
    try:
        return read_bounded(blobs, name, longest)
    except TooLong as error:
        console.warn(error.message)
        return None


def _was_ended(report: RankReport) -> bool:
    """Tell whether a rank left after a checkpoint, or by a signal that comes from outside."""
    by_signal = report.signal in _FROM_OUTSIDE and not report.out_of_memory
    return by_signal or report.exit_code == PREEMPTED_EXIT_CODE


# --- Checkpoints -----------------------------------------------------------------------------


def cloud_checkpoints(blobs: BlobStore, run: str) -> list[Checkpoint]:
    """List the checkpoints that have a manifest, newest first."""
    found: list[Checkpoint] = []
    for name, files in _folders(blobs, run).items():
        if MANIFEST not in files:
            continue
        path = f"{checkpoints_prefix(run)}{name}/{MANIFEST}"
        manifest = _read(blobs, path, _LONGEST_MANIFEST)
        size = sum(each.bytes for each in files.values())
        checkpoint = checkpoint_of(name, manifest, size) if manifest is not None else None
        if checkpoint is not None:
            found.append(checkpoint)
    return sorted(found, key=lambda each: (each.step, each.saved or "", each.name), reverse=True)


def _folders(blobs: BlobStore, run: str) -> dict[str, dict[str, Blob]]:
    """List the files of each checkpoint."""
    prefix = checkpoints_prefix(run)
    found: dict[str, dict[str, Blob]] = {}
    for blob in blobs.list(prefix):
        name = blob.name.removeprefix(prefix)
        place = _FOLDER.fullmatch(name)
        # What a URL's `..` leads to is none of the run's.
        if place is not None and is_file_name(name, is_windows=False):
            found.setdefault(place[1], {})[place[2]] = blob
    return found
