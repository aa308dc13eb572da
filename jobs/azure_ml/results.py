"""What a run's nodes have left in the container `runs`: ranks' records, figures, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobs.azure_ml.request import checkpoints_prefix
from jobs.checkpoints import MANIFEST, Checkpoint, checkpoint_of
from jobs.errors import EnvironmentFailure
from jobs.failure import RankReport, root_cause
from jobs.runs import write_file
from jobs.spec import RankError, RunHandle, RunState

if TYPE_CHECKING:
    from jobs.azure_ml.runs import CloudRuns
    from jobs.store import Blob, BlobStore

FIGURES = ("metrics.jsonl", "summary.json")
_NUM_REQUESTS = 8
_FOLDER = re.compile(r"([^/]+)/(.+)")


def rank_reports(blobs: BlobStore, run: str, attempt: int) -> list[tuple[str, bytes]]:
    """The records of an attempt's ranks, by file name, as far as they left one."""
    names = [each.name for each in blobs.list(f"{run}/ranks/{attempt}/")]
    with ThreadPoolExecutor(_NUM_REQUESTS) as pool:
        contents = pool.map(blobs.read, names)
        return [
            (name.rpartition("/")[2], content)
            for name, content in zip(names, contents, strict=True)
            if content is not None
        ]


def rank_error(blobs: BlobStore, run: str, attempt: int) -> RankError | None:
    """The rank that failed first, judged as on a machine of one's own."""
    return _judge(rank_reports(blobs, run, attempt))


def bring_results(runs: CloudRuns, handle: RunHandle) -> None:
    """Write into the run's folder what verbs read there: figures, ranks, `error.json`.

    Of what has ended nothing is asked for twice.
    """
    run_dir = Path(handle.run_dir)
    attempt = runs.attempts(handle)[-1]
    state = attempt.standing.state
    mark = run_dir / "azure" / "brought"
    if mark.exists() and mark.read_text(encoding="utf-8") == str(attempt.number):
        return
    if state is RunState.LOST and not attempt.status:
        return  # it never began, or nobody can be asked
    try:
        for name in FIGURES:
            content = runs.blobs.read(f"{handle.id}/{name}")
            if content is not None:
                write_file(run_dir / name, content)
        if state.is_terminal():
            _bring_ranks(runs.blobs, handle, attempt.number, state)
            mark.parent.mkdir(exist_ok=True)
            write_file(mark, str(attempt.number).encode())
    except OSError as error:
        message = f"cannot write in `{run_dir}`: {error.strerror or error}"
        raise EnvironmentFailure(message, hint="free some space") from error


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
    decoded: list[RankReport] = []
    for _, content in reports:
        try:
            decoded.append(msgspec.json.decode(content, type=RankReport))
        except msgspec.DecodeError:
            continue
    return root_cause(decoded, stopped_s=None)


# --- Checkpoints -----------------------------------------------------------------------------


def cloud_checkpoints(blobs: BlobStore, run: str) -> list[Checkpoint]:
    """All that have a manifest, newest first."""
    found: list[Checkpoint] = []
    for name, files in _folders(blobs, run).items():
        if MANIFEST not in files:
            continue
        manifest = blobs.read(f"{checkpoints_prefix(run)}{name}/{MANIFEST}")
        size = sum(each.bytes for each in files.values())
        checkpoint = checkpoint_of(name, manifest, size) if manifest is not None else None
        if checkpoint is not None:
            found.append(checkpoint)
    return sorted(found, key=lambda each: (each.step, each.saved or "", each.name), reverse=True)


def _folders(blobs: BlobStore, run: str) -> dict[str, dict[str, Blob]]:
    """The files of each checkpoint."""
    prefix = checkpoints_prefix(run)
    found: dict[str, dict[str, Blob]] = {}
    for blob in blobs.list(prefix):
        place = _FOLDER.fullmatch(blob.name.removeprefix(prefix))
        if place is not None:
            found.setdefault(place[1], {})[place[2]] = blob
    return found
