"""Which checkpoints of a run are whole, and how another run begins with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import LaunchError
from jobs.runs.checkpoints import Checkpoint, hand_on_checkpoints, whole_checkpoints

SAVED = "2026-01-02T03:04:05.000006Z"


def write_checkpoint(run_dir: Path, step: int, tail: str = "00000000") -> Path:
    folder = run_dir / "checkpoints" / f"step-{step:09d}-{tail}"
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(b"x" * 100)
    manifest = {"format": 1, "step": step, "saved": SAVED, "about": {"epoch": 2}, "files": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def write_own_checkpoint(run_dir: Path, name: str, step: int) -> Path:
    """As a script writes one that keeps a sharded state below its own name for a step."""
    folder = run_dir / "checkpoints" / name
    (folder / "global_step" / "empty").mkdir(parents=True)
    (folder / "global_step" / "manifest.json").write_text('{"step": -1}')
    (folder / "global_step" / "rank_00.pt").write_bytes(b"x" * 1000)
    (folder / "manifest.json").write_text(json.dumps({"step": step}))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of a run, and of the one that begins with its checkpoints."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    return source, target


def tree(run_dir: Path) -> dict[str, bytes | None]:
    root = run_dir / "checkpoints"
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


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


def test_another_run_gets_all_whole_ones_and_removing_its_own_harms_none(
    runs: tuple[Path, Path],
) -> None:
    source, target = runs
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


def test_checkpoint_with_folders_is_counted_and_handed_on_whole(runs: tuple[Path, Path]) -> None:
    source, target = runs
    folder = write_own_checkpoint(source, "checkpoint-500", 500)
    os.utime(folder / "global_step" / "rank_00.pt", ns=(10**18, 10**18))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert whole_checkpoints(source) == [
        Checkpoint(name="checkpoint-500", step=500, saved=None, bytes=size)
    ]
    hand_on_checkpoints(source, target)
    assert tree(target) == tree(source)
    copy = target / "checkpoints" / "checkpoint-500" / "global_step" / "rank_00.pt"
    assert copy.stat().st_mtime_ns == 10**18


def test_checkpoint_that_its_program_may_write_to_again_is_no_link_to_the_old_one(
    runs: tuple[Path, Path],
) -> None:
    source, target = runs
    write_own_checkpoint(source, "last", 500)
    ours = write_checkpoint(source, 9)
    before = tree(source)
    hand_on_checkpoints(source, target)
    (target / "checkpoints" / "last" / "global_step" / "rank_00.pt").write_bytes(b"new")
    (target / "checkpoints" / "last" / "manifest.json").write_text('{"step": 501}')
    assert tree(source) == before
    # Nobody writes to one of our trainers again: it takes no more of the disk.
    assert (target / "checkpoints" / ours.name / "model.bin").samefile(ours / "model.bin")


def test_files_are_copied_where_they_cannot_be_linked(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "cross-device link")

    source, target = runs
    write_checkpoint(source, 9)
    monkeypatch.setattr(os, "link", refuse)
    hand_on_checkpoints(source, target)
    assert tree(target) == tree(source)


def test_manifest_is_handed_on_last(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked: list[str] = []
    source, target = runs
    folder = write_checkpoint(source, 9)
    (folder / "zz.bin").touch()
    (folder / "parts").mkdir()
    (folder / "parts" / "manifest.json").touch()
    monkeypatch.setattr(
        os, "link", lambda here, _: linked.append(here.relative_to(folder).as_posix())
    )
    hand_on_checkpoints(source, target)
    assert linked == ["model.bin", "zz.bin", "parts/manifest.json", "manifest.json"]


def test_links_among_checkpoints_stay_links(runs: tuple[Path, Path]) -> None:
    source, target = runs
    folder = write_own_checkpoint(source, "checkpoint-500", 500)
    (folder / "latest").symlink_to("global_step")
    (folder / "global_step" / "same.pt").symlink_to(folder / "global_step" / "rank_00.pt")
    (source / "checkpoints" / "last").symlink_to("checkpoint-500")
    hand_on_checkpoints(source, target)
    assert tree(target) == tree(source)
    root = target / "checkpoints"
    links = {
        str(each.relative_to(root)): str(each.readlink())
        for each in root.rglob("*")
        if each.is_symlink()
    }
    assert links == {
        "last": "checkpoint-500",
        "checkpoint-500/latest": "global_step",
        "checkpoint-500/global_step/same.pt": "rank_00.pt",
    }


@pytest.mark.parametrize("aim", ["secret", "elsewhere", "checkpoints/half/x", "nothing", "round"])
def test_link_to_what_is_no_checkpoint_is_refused_by_its_name(
    runs: tuple[Path, Path], aim: str
) -> None:
    source, target = runs
    folder = write_own_checkpoint(source, "checkpoint-500", 500)
    (source / "secret").write_text("not to be handed on")
    (source / "elsewhere").mkdir()
    (source / "checkpoints" / "half").mkdir()
    (source / "checkpoints" / "half" / "x").touch()
    link = folder / "global_step" / "round"
    link.symlink_to(source / aim if aim != "round" else "round")
    with pytest.raises(LaunchError) as raised:
        hand_on_checkpoints(source, target)
    assert raised.value.message == (
        f"`{link}` of a checkpoint to begin with is a link to what is part of none"
    )
    assert raised.value.hint == f"put the file itself there, or remove it: rm {link}"


def test_pipe_in_a_checkpoint_is_refused_and_not_waited_for(runs: tuple[Path, Path]) -> None:
    source, target = runs
    pipe = write_checkpoint(source, 9) / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(LaunchError) as raised:
        hand_on_checkpoints(source, target)
    assert raised.value.message == (
        f"`{pipe}` of a checkpoint to begin with is neither a file nor a folder"
    )
    assert raised.value.hint == f"put the file itself there, or remove it: rm {pipe}"


def test_file_that_cannot_be_read_is_named(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = runs
    file = write_own_checkpoint(source, "last", 9) / "global_step" / "rank_00.pt"
    system_open = os.open

    def refuse(path: Path, *given: Any) -> int:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return system_open(path, *given)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LaunchError) as raised:
        hand_on_checkpoints(source, target)
    assert raised.value.message == (
        f"cannot read `{file}` of a checkpoint to begin with: Permission denied"
    )
    assert raised.value.hint == f"ls -l {file}"


def test_names_that_are_no_text_and_deep_folders_are_handed_on(runs: tuple[Path, Path]) -> None:
    source, target = runs
    folder = write_own_checkpoint(source, "last", 9)
    deep = folder.joinpath(*["d" * 10] * 200)
    deep.mkdir(parents=True)
    (deep / os.fsdecode(b"\xff\n ..")).write_bytes(b"odd")
    hand_on_checkpoints(source, target)
    assert tree(target) == tree(source)
