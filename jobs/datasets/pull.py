"""Writes a version's files into a folder: only what is not there, each checked, none outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from jobs.blobs.store import BlobStore, Incoming
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion
from jobs.datasets.file_list import FileList, fetch_list, work_folder, write_list
from jobs.datasets.paths import (
    DatasetFile,
    Inside,
    case_clash,
    check_space,
    disk_errors,
    folds_case,
)
from jobs.datasets.scan import scan_these
from jobs.datasets.scan_cache import ScanState
from jobs.datasets.walk import Found, walk_names
from jobs.host.progress import Counter, Progress, silent

NUM_SHOWN = 20


class Pulled(Struct, frozen=True, kw_only=True):
    """Counts of a pull; files that were there and equal are not in them."""

    files_received: int
    bytes_received: int
    files_deleted: int = 0


class Surplus(Struct, frozen=True, kw_only=True):
    """Files of a folder that a version does not have: how many, and the first of them."""

    count: int
    first: tuple[str, ...]


# Asked before anything is deleted.
Confirm = Callable[[Surplus], bool]


class Pull:
    """A pull of one version into a folder."""

    def __init__(
        self,
        store: BlobStore,
        dataset: DatasetVersion,
        folder: Path,
        *,
        mode: int = 0o644,
        progress: Progress = silent,
        max_bytes_per_s: int | None = None,
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._folder = folder
        self._mode = mode
        self._progress = progress
        self._max_bytes_per_s = max_bytes_per_s

    def run(self, *, is_dry: bool = False, delete: Confirm | None = None) -> Pulled:
        """Receive the missing files, or report them.

        With `delete` also deletes files that are not in the version, after confirmation.
        """
        with work_folder() as work:
            files = fetch_list(self._store, self._dataset, work)
            if not is_dry:
                with disk_errors(self._folder):
                    self._folder.mkdir(parents=True, exist_ok=True)
                self._check_case(files)
            surplus = self._surplus(files, work) if delete else Surplus(count=0, first=())
            if delete and surplus.count and not delete(surplus):
                message = f"nothing was deleted from `{self._folder}`, and nothing was downloaded"
                raise LaunchError(message, hint="without --delete, other files are kept")
            if surplus.count and not is_dry:
                self._delete(work)
            missing = self._missing(files, work)
            if not is_dry:
                self._receive(missing)
            return Pulled(
                files_received=missing.files,
                bytes_received=missing.bytes,
                files_deleted=surplus.count,
            )

    def _check_case(self, files: FileList) -> None:
        if not folds_case(self._folder):
            return
        clash = case_clash(file.path for file in files)
        if clash is not None:
            message = (
                f"`{clash[0]}` and `{clash[1]}` are the same name on the disk of `{self._folder}`, "
                "which takes small and capital letters for the same"
            )
            raise LaunchError(message, hint="choose a folder on another disk")

    def _missing(self, files: FileList, work: Path) -> FileList:
        """List the files whose content is not there; a file known to be unchanged is not read."""
        if not self._folder.exists() or not any(self._folder.iterdir()):
            return files
        with ScanState.of(self._folder) as state:
            scanned = scan_these(self._folder, self._candidates(files), state)
            equal = next(scanned, None)

            def missing() -> Iterator[DatasetFile]:
                nonlocal equal
                for file in files:
                    if equal is None or equal.path != file.path:
                        yield file
                        continue
                    is_equal = equal.sha256.hex() == file.sha256
                    equal = next(scanned, None)
                    if not is_equal:
                        yield file

            return write_list(work / "missing.jsonl", missing())

    def _candidates(self, files: FileList) -> Iterator[Found]:
        """Files that are there, and as long as they should be."""
        inside = Inside(self._folder)
        for file in files:
            with suppress(OSError):
                status = inside.place(file.path).lstat()
                if S_ISREG(status.st_mode) and status.st_size == file.bytes:
                    yield Found.of(file.path, status)

    def _receive(self, missing: FileList) -> None:
        if not missing.files:
            return
        dataset = self._dataset
        check_space(self._folder, missing.bytes, f"`{dataset.ref}`")
        with disk_errors(self._folder):
            self._store.receive(
                self._incoming(missing),
                Counter(missing.files, missing.bytes, self._progress).add,
                max_bytes_per_s=self._max_bytes_per_s,
            )

    def _incoming(self, missing: FileList) -> Iterator[Incoming]:
        prefix = self._dataset.content_prefix
        inside = Inside(self._folder)
        for file in missing:
            yield Incoming(
                name=prefix + file.path,
                path=inside.place(file.path),
                bytes=file.bytes,
                sha256=file.sha256,
                mode=self._mode,
            )

    def _surplus(self, files: FileList, work: Path) -> Surplus:
        """Find what the folder has and the list has not, in their order; follows no links."""
        wanted = iter(files)
        file = next(wanted, None)
        count, first = 0, list[str]()
        with (work / "surplus").open("wb") as found:
            names = walk_names(self._folder) if self._folder.exists() else iter(())
            for path, is_folder in names:
                if is_folder:
                    continue
                while file is not None and file.path < path:
                    file = next(wanted, None)
                if file is not None and file.path == path:
                    continue
                count += 1
                found.write(path.encode("unicode_escape") + b"\n")
                if len(first) < NUM_SHOWN:
                    first.append(path)
        return Surplus(count=count, first=tuple(first))

    def _delete(self, work: Path) -> None:
        """Take the surplus away, and the folders that it leaves empty."""
        root = self._folder.resolve()
        above: Path | None = None
        with disk_errors(self._folder), (work / "surplus").open("rb") as lines:
            for line in lines:
                target = self._folder / line[:-1].decode("unicode_escape")
                if target.parent != above:
                    # Somebody may have put a link there since the walk.
                    if not target.parent.resolve().is_relative_to(root):
                        continue
                    if above is not None:
                        self._remove_empty(above)
                    above = target.parent
                target.unlink(missing_ok=True)
            if above is not None:
                self._remove_empty(above)

    def _remove_empty(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent
