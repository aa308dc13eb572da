"""Sends a folder as a new version of a dataset; the version exists when everything is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.blobs.store import BLOCK_BYTES, BlobStore, Outgoing
from jobs.datasets.file_list import FileList, split_md5s, work_folder, write_list
from jobs.datasets.making import Making, Pushed, Reports
from jobs.datasets.paths import DatasetFile
from jobs.datasets.records import DatasetRecord, Lineage, Records, check_name
from jobs.datasets.scan import scan
from jobs.datasets.scan_cache import ScanState
from jobs.host.progress import Counter
from jobs.host.structs import prepared
from jobs.host.units import now_in_seconds


class _Blocks(Struct, frozen=True, kw_only=True):
    """The MD5s of a large file's blocks, joined; one line each beside the list of files."""

    path: str
    md5s: bytes


class Push:
    """A push of one folder to a store, or `only` of one file in it."""

    def __init__(
        self,
        store: BlobStore,
        folder: Path,
        name: str,
        *,
        reports: Reports,
        max_bytes_per_s: int | None = None,
        only: str | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        self._store = store
        self._records = Records(store)
        self._folder = folder
        self._name = name
        self._reports = reports
        self._max_bytes_per_s = max_bytes_per_s
        self._only = only
        self._lineage = lineage
        self._making = Making(store, copying=reports.copying, send=self._send)

    def run(self, *, is_dry: bool) -> Pushed:
        """Send the folder, or report the files that would be sent."""
        check_name(self._name)
        with work_folder() as work, ScanState.of(self._folder) as state:
            files = self._scan(state, work)
            there = self._find(files, state)
            if there is not None:
                return Pushed(dataset=there, already=True)
            wanted = DatasetRecord(
                schema=1,
                name=self._name,
                version=self._making.next_version(self._name),
                digest=files.digest,
                files=files.files,
                bytes=files.bytes,
                created=now_in_seconds(),
                lineage=self._lineage,
            )
            if is_dry:
                return self._making.would_make(wanted, files, work)
            pushed = self._making.make(wanted, files, work)
            state.keep_version(self._name, files.digest, pushed.dataset.version)
            return pushed

    def _scan(self, state: ScanState, work: Path) -> FileList:
        """Read the folder; leaves its list, and that of its large files' blocks, on disk."""
        encode = msgspec.json.Encoder().encode
        with (work / "blocks.jsonl").open("wb") as blocks:

            def files() -> Iterator[DatasetFile]:
                reading, warn = self._reports.reading, self._reports.warn
                for each in scan(self._folder, state, reading, warn, only=self._only):
                    if each.block_md5s:
                        line = encode(_Blocks(path=each.path, md5s=each.block_md5s))
                        blocks.write(line + b"\n")
                    yield DatasetFile(
                        path=each.path,
                        bytes=each.bytes,
                        sha256=each.sha256.hex(),
                        md5=each.md5.hex(),
                    )

            return write_list(work / "files.jsonl", files())

    def _find(self, files: FileList, state: ScanState) -> DatasetRecord | None:
        """Find the version that has this content already."""
        remembered = state.version(self._name, files.digest)
        if remembered is not None:
            # One small request, where the store would have to be listed otherwise.
            record = self._records.record(self._name, remembered)
            if record is not None and record.digest == files.digest:
                return record
        record = self._making.there(self._name, files.digest)
        if record is not None:
            state.keep_version(self._name, files.digest, record.version)
        return record

    def _send(self, missing: FileList, prefix: str, work: Path) -> None:
        self._store.send(
            self._outgoing(missing, prefix, work),
            Counter(missing.files, missing.bytes, self._reports.sending).add,
            max_bytes_per_s=self._max_bytes_per_s,
        )

    def _outgoing(self, files: FileList, prefix: str, work: Path) -> Iterator[Outgoing]:
        decode = msgspec.json.Decoder(prepared(_Blocks)).decode
        with (work / "blocks.jsonl").open("rb") as lines:
            for file in files:
                md5s = b""
                if file.bytes > BLOCK_BYTES:
                    large = map(decode, lines)
                    md5s = next(each.md5s for each in large if each.path == file.path)
                yield Outgoing(
                    name=prefix + file.path,
                    path=self._folder / file.path,
                    bytes=file.bytes,
                    md5=bytes.fromhex(file.md5),
                    block_md5s=split_md5s(md5s),
                )
