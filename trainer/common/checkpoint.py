"""Writes and reads checkpoints that a crash cannot break: a new folder each, its manifest last.

    checkpoints/step-000000120-1f3a9c0e/
        model.safetensors  ...      whatever files the program keeps; they are opaque here
        manifest.json               format, step, and size and sha256 of every file; last

A folder without a whole manifest is no checkpoint. Nothing is renamed and nothing overwritten, so
the same protocol holds on a disk and on a blob mount, where a rename is a copy and a delete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from trainer.common.errors import TrainingError

FORMAT = 1
MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 20
NAME = re.compile(r"step-(\d{9,})-[0-9a-f]{8}")
# A mount of a blob store may know no fsync of a folder.
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint: its files' contents, checked against the manifest as they were read."""

    name: str
    step: int
    about: Mapping[str, Any]
    files: Mapping[str, bytes]


class CheckpointFolder:
    """The checkpoints of one run. One process writes; any number may read.

    Keeps the newest `keep_last` whole checkpoints and, with `keep_every`, those whose step is a
    multiple of it.
    """

    def __init__(self, root: Path, *, keep_last: int = 3, keep_every: int | None = None) -> None:
        self.root = root
        self._keep_last = keep_last
        self._keep_every = keep_every

    def write(self, step: int, files: Mapping[str, bytes], about: Mapping[str, Any]) -> Path:
        """Write one checkpoint and sync it to the disk; gives its folder. Blocks.

        `about` is JSON that readers get back. Raises OSError where the disk refuses; what was
        there before stays whole, and what was begun is taken away as far as it goes.
        """
        folder = self._new_folder(step)
        try:
            entries = {name: _write_file(folder / name, data) for name, data in files.items()}
            _sync_folder(folder)
            manifest = {
                "format": FORMAT,
                "step": step,
                "saved": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "about": dict(about),
                "files": entries,
            }
            _write_file(folder / MANIFEST, _signed(manifest))
            _sync_folder(folder)
            _sync_folder(self.root)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(folder)
            raise
        return folder

    def newest(self, say: Callable[[str], None]) -> Checkpoint | None:
        """Read the newest whole checkpoint; None where there is none.

        Says of each newer one that is broken which file is wrong and how. Raises TrainingError
        for a format that this version does not know: to fall back would lose what it holds.
        """
        for name in self.names():
            try:
                return self.read(name)
            except BrokenCheckpoint as error:
                say(f"checkpoint {name} is broken ({error}); an older one is tried")
        return None

    def read(self, name: str) -> Checkpoint:
        """Read one checkpoint whole; raises BrokenCheckpoint, or TrainingError for its format."""
        folder = self.root / name
        manifest = _read_manifest(folder)
        if manifest["format"] != FORMAT:
            message = (
                f"checkpoint {name} has format {manifest['format']}; this program reads {FORMAT}"
            )
            hint = "take the image that wrote it or a newer one, or another --checkpoint-dir"
            raise TrainingError(message, hint=hint)
        entries = manifest["files"]
        files = {file: _read_file(folder / file, entry) for file, entry in entries.items()}
        return Checkpoint(name=name, step=manifest["step"], about=manifest["about"], files=files)

    def names(self) -> list[str]:
        """Names of the folders that claim to be checkpoints, newest step first."""
        found = [entry for entry in self._entries() if (self.root / entry / MANIFEST).exists()]
        return sorted(found, key=lambda name: (_step(name), self._written(name)), reverse=True)

    def remove_old(self) -> None:
        """Delete what is not to be kept; a kill in between leaves the kept ones whole.

        Also takes away what a killed writer left unfinished before the newest checkpoint.
        """
        names = self.names()
        for name in names[self._keep_last :]:
            if not self._keep_every or _step(name) % self._keep_every:
                _remove(self.root / name)
        if names:
            whole = set(names)
            for name in self._entries():
                if name not in whole and _step(name) <= _step(names[0]):
                    _remove(self.root / name)

    def _new_folder(self, step: int) -> Path:
        self.root.mkdir(parents=True, exist_ok=True)
        while True:
            folder = self.root / f"step-{step:09d}-{secrets.token_hex(4)}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder

    def _entries(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name):
                    yield entry.name

    def _written(self, name: str) -> int:
        with contextlib.suppress(OSError):
            return (self.root / name / MANIFEST).stat().st_mtime_ns
        return 0


class BrokenCheckpoint(Exception):
    """Which file of a checkpoint is not what the manifest says, and how."""


def _step(name: str) -> int:
    found = NAME.fullmatch(name)
    assert found, name
    return int(found[1])


def _write_file(path: Path, data: bytes) -> dict[str, object]:
    """Write a file to the disk; gives its manifest entry."""
    digest = hashlib.sha256(data).hexdigest()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:  # a full disk shortens a write before it refuses one
            view = view[os.write(fd, view[:CHUNK_BYTES]) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return {"bytes": len(data), "sha256": digest}


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(fd)


def _signed(manifest: Mapping[str, Any]) -> bytes:
    """The manifest with a digest of itself, so that a flipped bit in it shows, too."""
    text = json.dumps({**manifest, "sha256": _digest(manifest)}, indent=2)
    return text.encode() + b"\n"


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        message = f"{MANIFEST}: {error}"
        raise BrokenCheckpoint(message) from None
    if not isinstance(manifest, dict):
        message = f"{MANIFEST}: no JSON object"
        raise BrokenCheckpoint(message)
    manifest = cast("dict[str, Any]", manifest)
    if not isinstance(manifest.get("format"), int):
        message = f"{MANIFEST}: no format"
        raise BrokenCheckpoint(message)
    if manifest["format"] == FORMAT and manifest.pop("sha256", None) != _digest(manifest):
        message = f"{MANIFEST}: its sha256 is not that of its content"
        raise BrokenCheckpoint(message)
    return manifest


def _read_file(path: Path, entry: Mapping[str, Any]) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"{path.name}: {error.strerror}"
        raise BrokenCheckpoint(message) from None
    if len(data) != entry["bytes"]:
        message = f"{path.name}: {len(data)} bytes, not {entry['bytes']}"
        raise BrokenCheckpoint(message)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        message = f"{path.name}: its sha256 is not the manifest's"
        raise BrokenCheckpoint(message)
    return data


def _remove(folder: Path) -> None:
    """Take a checkpoint away, its manifest first: a half-deleted one is none."""
    with contextlib.suppress(FileNotFoundError):
        (folder / MANIFEST).unlink()
        for entry in os.scandir(folder):
            Path(entry.path).unlink()
        folder.rmdir()
