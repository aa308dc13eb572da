"""The checkpoints of a run: which are whole, and how another run begins with them.

Only the layout is known here (docs/run-directory.md): a folder a step, its `manifest.json` written
last. A folder without one is what a save left that was cut off, and no checkpoint. Whether the
files of a whole one are as they were written, the trainer finds out from their checksums.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from jobs.host.untrusted import parse_json, read_small

FOLDER = "checkpoints"
MANIFEST = "manifest.json"


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A whole checkpoint; `saved` is ISO 8601 in UTC."""

    name: str
    step: int
    saved: str | None
    bytes: int


class _Manifest(Struct, frozen=True, kw_only=True):
    """The part of `manifest.json` that is read; a trainer writes more."""

    step: int
    saved: str | None = None


def whole_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """List the checkpoints that have a manifest, newest first."""
    found: list[Checkpoint] = []
    for manifest in run_dir.glob(f"{FOLDER}/*/{MANIFEST}"):
        try:
            content = read_small(manifest)
            sizes = [each.stat().st_size for each in manifest.parent.iterdir() if each.is_file()]
        except OSError:  # removed meanwhile
            continue
        checkpoint = checkpoint_of(manifest.parent.name, content, sum(sizes))
        if checkpoint is not None:
            found.append(checkpoint)
    return sorted(found, key=lambda each: (each.step, each.saved or "", each.name), reverse=True)


def has_files(run_dir: Path) -> bool:
    """Tell whether a run has left anything among its checkpoints, whole or not."""
    return any((run_dir / FOLDER).glob("*"))


def checkpoint_of(name: str, manifest: bytes, size: int) -> Checkpoint | None:
    """Read a checkpoint's manifest; None where it was cut off. `size` is of all files."""
    try:
        read = parse_json(manifest, _Manifest)
    except msgspec.DecodeError:
        return None
    return Checkpoint(name=name, step=read.step, saved=read.saved, bytes=size)


def hand_on_checkpoints(source_run: Path, run_dir: Path) -> None:
    """Let a run that has not started yet begin with all whole checkpoints of another.

    All of them, so that the trainer may fall back on an older one as it would in its own run.
    Files are linked where that can be: no checkpoint is ever written to again. OSError where one
    cannot be had; what is there then has no manifest, or is whole.
    """
    target = run_dir / FOLDER
    target.mkdir()
    # Oldest first: what is cut off between two of them still ends with a whole one.
    for each in reversed(whole_checkpoints(source_run)):
        _hand_on(source_run / FOLDER / each.name, target / each.name)


def _hand_on(source: Path, target: Path) -> None:
    target.mkdir()
    names = sorted(os.listdir(source), key=lambda name: name == MANIFEST)  # noqa: PTH208
    assert names[-1] == MANIFEST
    for name in names:
        try:
            os.link(source / name, target / name)
        except OSError:  # another file system, or one without links
            shutil.copy2(source / name, target / name)
