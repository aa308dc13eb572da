"""Download a run's outputs, figures and the logs of all attempts, also while it is on.

What is here already is not asked for again: outputs by the ETag that their copy had, logs by their
length and last bytes. A file has its name only once it is whole, of one version, and of the MD5 that
the blob store has of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import Struct

from jobs.blobs.files import Incoming
from jobs.blobs.partial_file import PREFIX
from jobs.contracts.spec import RunHandle
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.log_files import LONGEST_RANGE, OVERLAP, parse_name
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.preparation_logs import IMAGE_BUILD, NODES
from jobs.host import console
from jobs.host.files import write_file
from jobs.host.progress import Counter, ProgressLine
from jobs.host.untrusted import is_file_name, read_json
from jobs.runs.code import FETCHED
from jobs.runs.fetch import fetching_into

if TYPE_CHECKING:
    from jobs.blobs.store import Blob, BlobStore
    from jobs.engines.azure_ml.runs import CloudRuns

FIGURES = ("metrics.jsonl", "summary.json")
# How often what changes under our hands is listed again.
_ROUNDS = 3


def fetch_run(runs: CloudRuns, handle: RunHandle, into: Path) -> Path:
    """Copy outputs, figures and logs into `into`; gives `into`. See `Engine.fetch`."""
    with fetching_into(into):
        _Results(runs.blobs, handle.id, into).bring()
        error = runs.error(handle)
        if error is not None:
            write_file(into / "error.json", msgspec.json.encode(error))
        for attempt in runs.attempts(handle):
            if attempt.status:  # else Azure ML has no such job
                _Logs(runs, handle, attempt.number, into).bring()
        for name in ("outputs", "logs"):
            (into / name).mkdir(exist_ok=True)
    return into


def local_path(into: Path, name: str) -> Path | None:
    """Give the file of a blob; None for a name that leads out of the folder, or names no file.

    Files that are being received have names of their own, which no output may take.
    """
    parts = name.split("/")
    is_ours = parts[-1].startswith(PREFIX)
    return into.joinpath(*parts) if is_file_name(name) and not is_ours else None


class _Copied(Struct, frozen=True, kw_only=True):
    """Version and size of a copied blob."""

    etag: str
    bytes: int


class _Results:
    """The blobs that the run's nodes wrote into the container `runs`.

    The file FETCHED says what is here, by name: the ETag it had.
    """

    def __init__(self, blobs: BlobStore, run: str, into: Path) -> None:
        self._blobs, self._run, self._into = blobs, run, into
        self._copied = self._read_mark()

    def bring(self) -> None:
        """Copy blobs that are missing here or changed."""
        mode = _mode_of_new_files()
        for _ in range(_ROUNDS):
            missing = [each for each in self._listed() if not self._is_here(*each)]
            if not missing:
                return
            incoming = [
                Incoming(
                    name=blob.name,
                    path=target,
                    bytes=blob.bytes,
                    mode=mode,
                    etag=blob.etag,
                    md5=blob.md5,
                )
                for blob, target in missing
            ]
            line = ProgressLine("fetching", after_s=1.0)
            counter = Counter(len(incoming), sum(each.bytes for each in incoming), line)
            try:
                # What changed meanwhile is left out: the next round sees.
                self._blobs.receive(incoming, counter.add, arrived=self._note)
            finally:
                line.end()
                self._write_mark()

    def _note(self, file: Incoming) -> None:
        self._copied[file.name] = _Copied(etag=file.etag, bytes=file.bytes)

    def _listed(self) -> Iterator[tuple[Blob, Path]]:
        for prefix in (*FIGURES, "outputs/"):
            blobs = list(self._blobs.list(f"{self._run}/{prefix}"))
            # To a store `a` and `a/b` are two files, as two attempts may have left them.
            folders = {folder for blob in blobs for folder in _folders(blob.name)}
            for blob in blobs:
                name = blob.name.removeprefix(f"{self._run}/")
                if "/" not in name and name not in FIGURES:
                    continue
                target = local_path(self._into, name)
                if target is None or blob.name in folders:
                    console.warn(
                        f"`{name}` is not a valid file name here; the file stays in the store"
                    )
                    if target is not None and target.is_file():
                        target.unlink()  # fetched before there was a folder of that name
                else:
                    yield blob, target

    def _is_here(self, blob: Blob, target: Path) -> bool:
        copied = self._copied.get(blob.name)
        if copied is None or copied.etag != blob.etag:
            return False
        try:
            return target.stat().st_size == copied.bytes
        except FileNotFoundError:
            return False

    def _read_mark(self) -> dict[str, _Copied]:
        try:
            return read_json(self._into / FETCHED, dict[str, _Copied])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write_mark(self) -> None:
        write_file(self._into / FETCHED, msgspec.json.encode(self._copied))


class _Logs:
    """The logs of one attempt: those of the first in `logs/`, of others in a folder of their own."""

    def __init__(self, runs: CloudRuns, handle: RunHandle, attempt: int, into: Path) -> None:
        self._artifacts = runs.artifacts
        self._spec = runs.record(handle).plan.spec
        self._job = job_name(handle.id, attempt)
        self._folder = into / "logs" / ("" if attempt == 1 else f"attempt-{attempt}")

    def bring(self) -> None:
        """Append the new part of each log."""
        for folder in ("user_logs/", IMAGE_BUILD, NODES):
            for blob in list(self._artifacts.list(self._job, folder)):
                name = blob.name.removeprefix(job_prefix(self._job))
                target = local_path(self._folder, self._name_here(name))
                if target is not None:
                    self._append(name, blob.bytes, target)

    def _name_here(self, name: str) -> str:
        parsed = parse_name(name, self._spec.world_size)
        if parsed is None:
            return f"azureml/{name}"
        folder = f"retry_{parsed.retry:03}/" if parsed.retry else ""
        return f"{folder}rank-{parsed.rank:05}.log"

    def _append(self, name: str, size: int, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a+b") as file:
            tail = _tail(file)
            start = file.seek(0, os.SEEK_END)
            if size < start or not self._is_same(name, start, tail):
                file.truncate(0)  # the log was begun anew
                start = 0
            while start < size:
                end = min(start + LONGEST_RANGE, size)
                (content,) = self._artifacts.read_parts(self._job, [(name, start, end)])
                if not content:
                    return
                file.write(content)
                start += len(content)

    def _is_same(self, name: str, start: int, tail: bytes) -> bool:
        if not tail:
            return True
        (content,) = self._artifacts.read_parts(self._job, [(name, start - len(tail), start)])
        return content == tail


def _folders(name: str) -> Iterator[str]:
    """Yield the folders on the way to a blob."""
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - OVERLAP, 0))
    return file.read(OVERLAP)


def _mode_of_new_files() -> int:
    """Read what this user's umask leaves of a new file's mode."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask
