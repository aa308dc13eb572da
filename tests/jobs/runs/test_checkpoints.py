"""Which checkpoints of a run are whole, and how another run begins with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.runs.checkpoints import Checkpoint, hand_on_checkpoints, whole_checkpoints

SAVED = "2026-01-02T03:04:05.000006Z"


def write_checkpoint(run_dir: Path, step: int, tail: str = "00000000") -> Path:
    folder = run_dir / "checkpoints" / f"step-{step:09d}-{tail}"
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(b"x" * 100)
    manifest = {"format": 1, "step": step, "saved": SAVED, "about": {"epoch": 2}, "files": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_folder_without_a_manifest_or_with_half_of_one_is_no_checkpoint(tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path, 40)
    (write_checkpoint(tmp_path, 50) / "manifest.json").unlink()
    (write_checkpoint(tmp_path, 60) / "manifest.json").write_text('{"format": 1, "st')
    (write_checkpoint(tmp_path, 70) / "manifest.json").write_text('{"format": 1}')
    size = sum(path.stat().st_size for path in whole.iterdir())
    found = Checkpoint(name=whole.name, step=40, saved=SAVED, bytes=size)
    assert whole_checkpoints(tmp_path) == [found]
    assert whole_checkpoints(tmp_path / "elsewhere") == []


def test_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    for step in (9, 1000, 20):
        write_checkpoint(tmp_path, step)
    assert [each.step for each in whole_checkpoints(tmp_path)] == [1000, 20, 9]


def test_another_run_gets_all_whole_ones_and_removing_its_own_harms_none(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    target.mkdir()
    for step in (9, 20):
        write_checkpoint(source, step)
    (write_checkpoint(source, 30) / "manifest.json").unlink()
    before = whole_checkpoints(source)
    hand_on_checkpoints(source, target)
    assert whole_checkpoints(target) == before
    assert len(list((target / "checkpoints").iterdir())) == 2
    for path in sorted(target.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert whole_checkpoints(source) == before


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "cross-device link")

    source, target = tmp_path / "a", tmp_path / "b"
    target.mkdir()
    write_checkpoint(source, 9)
    monkeypatch.setattr(os, "link", refuse)
    hand_on_checkpoints(source, target)
    assert whole_checkpoints(target) == whole_checkpoints(source)


def test_manifest_is_handed_on_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[str] = []
    source, target = tmp_path / "a", tmp_path / "b"
    target.mkdir()
    (write_checkpoint(source, 9) / "zz.bin").touch()
    monkeypatch.setattr(os, "link", lambda here, _: linked.append(here.name))
    hand_on_checkpoints(source, target)
    assert linked == ["model.bin", "zz.bin", "manifest.json"]
