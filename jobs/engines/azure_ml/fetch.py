"""Brings home what a run has made: outputs, figures, logs of all attempts; while it is on, too.

What is here already is not asked for again: outputs by the ETag that their copy had, logs by their
length and last bytes. A file has its name only once it is whole, of one version, and of the MD5 that
the blob store has of it.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RunHandle
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.log_files import LONGEST_RANGE, OVERLAP, parse_name
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.preparation_logs import IMAGE_BUILD, NODES
from jobs.host import console
from jobs.host.files import write_file
from jobs.host.parallel import NUM_THREADS
from jobs.host.progress import Counter, ProgressLine
from jobs.host.untrusted import is_file_name, read_json
from jobs.runs.code import FETCHED
from jobs.runs.fetch import PART_SUFFIX, fetching_into

if TYPE_CHECKING:
    from jobs.blobs.store import Blob, BlobStore
    from jobs.engines.azure_ml.runs import CloudRuns

FIGURES = ("metrics.jsonl", "summary.json")
BLOCK = 8 << 20
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
    """Give the file of a blob; None for a name that leads out of the folder, or names no file."""
    return into.joinpath(*name.split("/")) if is_file_name(name) else None


class _Copied(Struct, frozen=True, kw_only=True):
    """Size, version and path of a copied blob."""

    etag: str
    bytes: int


class _Results:
    """The blobs that the run's nodes have put into the container `runs`.

    The file FETCHED says what is here, by name: the ETag it had.
    """

    def __init__(self, blobs: BlobStore, run: str, into: Path) -> None:
        self._blobs, self._run, self._into = blobs, run, into
        self._copied = self._read_mark()

    def bring(self) -> None:
        """Copy what is not here yet, or was another version."""
        for _ in range(_ROUNDS):
            missing = [each for each in self._listed() if not self._is_here(*each)]
            if not missing:
                return
            line = ProgressLine("fetching", after_s=1.0)
            num_bytes = sum(blob.bytes for blob, _ in missing)
            counter = Counter(len(missing), num_bytes, line)
            try:
                for blob in self._copy_all(missing):
                    counter.add(1, blob.bytes)
            finally:
                line.end()
                self._write_mark()

    def _copy_all(self, missing: Sequence[tuple[Blob, Path]]) -> Iterator[Blob]:
        """Yield what is copied: small ones side by side, large ones by blocks side by side."""
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            small = [each for each in missing if each[0].bytes <= BLOCK]
            try:
                yield from pool.map(self._copy_small, small)
                for blob, target in missing:
                    if blob.bytes > BLOCK:
                        yield self._copy(blob, target, pool)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

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

    def _copy_small(self, wanted: tuple[Blob, Path]) -> Blob:
        return self._copy(*wanted, None)

    def _copy(self, blob: Blob, target: Path, pool: ThreadPoolExecutor | None) -> Blob:
        """Copy one, going on where an earlier try was cut off; silent where it changed meanwhile."""
        target.parent.mkdir(parents=True, exist_ok=True)
        # Of no length that a name adds to: that may be the longest which the disk takes.
        version = hashlib.sha256(f"{target.name} {blob.etag}".encode()).hexdigest()[:24]
        part = target.with_name(f".{version}{PART_SUFFIX}")
        digest = hashlib.md5(usedforsecurity=False)
        with part.open("a+b") as file:
            file.seek(0)
            while chunk := file.read(BLOCK):
                digest.update(chunk)
            for content in self._blocks(blob, file.tell(), pool):
                file.write(content)
                digest.update(content)
            size = file.tell()
        if size != blob.bytes:
            part.unlink()  # it is another version now, or none: the next round sees
            return blob
        if blob.md5 is not None and digest.digest() != blob.md5:
            part.unlink()
            message = f"`{blob.name}` arrived damaged: its MD5 differs from the store's"
            raise EnvironmentFailure(message, hint="fetch again")
        part.replace(target)
        self._copied[blob.name] = _Copied(etag=blob.etag, bytes=size)
        return blob

    def _blocks(self, blob: Blob, start: int, pool: ThreadPoolExecutor | None) -> Iterator[bytes]:
        """Yield the rest of a blob, with a pool several blocks under way; less where it changed."""
        if pool is None:
            content = b""
            if start < blob.bytes:
                content = self._blobs.read_range(blob.name, start, blob.bytes, etag=blob.etag)
            yield content or b""
            return
        starts = iter(range(start, blob.bytes, BLOCK))
        under_way: deque[Future[bytes | None]] = deque()
        while True:
            for at in islice(starts, NUM_THREADS - len(under_way)):
                end = min(at + BLOCK, blob.bytes)
                asked = pool.submit(self._blobs.read_range, blob.name, at, end, etag=blob.etag)
                under_way.append(asked)
            content = under_way.popleft().result() if under_way else None
            if content is None:
                return
            yield content

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
        """Append what has come since."""
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
