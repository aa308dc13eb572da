"""Checkpoints: what was written comes back, what is broken does not, and what is kept."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.folders import read_folder
from tests.limits import largest_file
from trainer.common.checkpoint import BrokenCheckpoint, Checkpoint, CheckpointFolder
from trainer.common.errors import TrainingError

FILES = {"model.safetensors": b"weights" * 1000, "state.json": b"{}", "empty.bin": b""}
ABOUT = {"position": {"step": 7, "epoch": 1, "batch": 2}, "lr": 0.1}


def steps(folder: CheckpointFolder) -> list[int]:
    return [folder.read(name).step for name in folder.names()]


def silent(text: str) -> None:
    raise AssertionError(text)


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields of a manifest and sign it anew, as somebody else could."""
    content = {**json.loads(path.read_bytes()), **changes}
    del content["sha256"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}))


# --- writing and reading -----------------------------------------------------------------------


def test_what_was_written_comes_back(tmp_path):
    folder = CheckpointFolder(tmp_path / "new" / "checkpoints")
    written = folder.write(7, FILES, ABOUT)
    expected = Checkpoint(name=written.name, step=7, about=ABOUT, files=FILES)
    assert CheckpointFolder(folder.root).newest(silent) == expected
    assert set(read_folder(written)) == {*FILES, "manifest.json"}


def test_content_is_what_json_makes_of_it(tmp_path):
    folder = CheckpointFolder(tmp_path)
    # Sorted as numbers and as text these keys differ, and with them the digest.
    folder.write(1, {}, {"shape": (1, 2), "ranks": {2: "b", 10: "a"}, "name": "naïve \ud800"})
    found = folder.newest(silent)
    assert found is not None
    assert found.about == {
        "shape": [1, 2],
        "ranks": {"2": "b", "10": "a"},
        "name": "naïve \ud800",
    }


def test_folder_without_checkpoints_has_none(tmp_path):
    assert CheckpointFolder(tmp_path / "missing").newest(silent) is None
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "step-7").mkdir()
    assert CheckpointFolder(tmp_path).newest(silent) is None


def test_folder_that_cannot_be_listed_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match="cannot be listed: Not a directory"):
        CheckpointFolder(tmp_path / "file").newest(silent)


def test_the_highest_step_is_newest_and_the_latest_of_one_step(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for number, step in enumerate((999_999_999, 1_000_000_000, 5, 1_000_000_000)):
        written = folder.write(step, {}, {"number": number})
        os.utime(written / "manifest.json", ns=(number, number))
    assert [folder.read(name).about["number"] for name in folder.names()] == [3, 1, 0, 2]


def test_file_outside_the_folder_is_never_written(tmp_path):
    for name in ("../x", "/tmp/x", "a/b", ".hidden", "", "manifest.json"):
        with pytest.raises(BrokenCheckpoint):
            CheckpointFolder(tmp_path / "checkpoints").write(1, {name: b""}, {})
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_not_taken_for_whole_ones(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.write(1, FILES, ABOUT)
    before = read_folder(tmp_path)
    with largest_file(100_000), pytest.raises(OSError, match="large") as caught:
        folder.write(2, {"small.bin": b"s", "large.bin": b"x" * 3_000_000}, {})
    assert caught.value.errno == errno.EFBIG
    assert read_folder(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 1


# --- broken ones -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda folder: (folder / "state.json").unlink(), "state.json: it is missing"),
        (lambda folder: (folder / "state.json").write_bytes(b"{ }"), "state.json: 3 bytes, not 2"),
        (lambda folder: (folder / "state.json").write_bytes(b"[]"), "state.json: its sha256"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"{"), "manifest.json: Expecting"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"[]"), "manifest.json: no JSON"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"{}"), "manifest.json: its sha256"),
        (
            lambda folder: (folder / "manifest.json").write_bytes(b'{"a": NaN}'),
            "manifest.json: NaN is not JSON",
        ),
        (
            lambda folder: (folder / "manifest.json").write_bytes(b'{"a":' * 100_000),
            "manifest.json: maximum recursion depth",
        ),
    ],
)
def test_broken_checkpoint_is_named_and_an_older_one_taken(tmp_path, break_it, why):
    folder = CheckpointFolder(tmp_path)
    folder.write(1, FILES, ABOUT)
    newest = folder.write(2, FILES, ABOUT)
    break_it(newest)
    said: list[str] = []
    found = folder.newest(said.append)
    assert found is not None
    assert (found.step, found.files) == (1, FILES)
    assert len(said) == 1
    assert said[0].startswith(f"checkpoint {newest.name} is broken ({why}")
    assert said[0].endswith("; an older one is tried")


def test_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    written = CheckpointFolder(tmp_path).write(1, FILES, ABOUT)
    (written / "state.json").unlink()
    os.mkfifo(written / "state.json")
    with pytest.raises(BrokenCheckpoint, match=r"state\.json: no regular file"):
        CheckpointFolder(tmp_path).read(written.name)


def test_training_does_not_begin_anew_where_all_checkpoints_are_broken(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2):
        (folder.write(step, FILES, ABOUT) / "state.json").unlink()
    said: list[str] = []
    with pytest.raises(TrainingError, match=r"no checkpoint in `.*` is whole, of 2"):
        folder.newest(said.append)
    assert [text.rpartition("; ")[2] for text in said] == [
        "an older one is tried",
        "there is no older one",
    ]


def test_save_cut_off_before_its_manifest_is_no_checkpoint(tmp_path):
    folder = CheckpointFolder(tmp_path)
    names: list[str] = []
    for content in (None, b""):
        written = folder.write(1 + len(names), FILES, ABOUT)
        (written / "manifest.json").unlink()
        if content is not None:
            (written / "manifest.json").write_bytes(content)
        names = [written.name]
    said: list[str] = []
    assert folder.newest(said.append) is None
    why = "was never finished: it has no manifest, and is left out"
    assert said == [f"checkpoint {name} {why}" for name in names]


# --- made by others ----------------------------------------------------------------------------


def test_unknown_format_is_refused_by_its_number(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.write(1, FILES, ABOUT)
    newer = folder.write(2, FILES, ABOUT)
    rewrite(newer / "manifest.json", format=7, files="laid out in another way")
    message = f"checkpoint {newer.name} has format 7; this program reads 1"
    with pytest.raises(TrainingError, match=message):
        folder.newest(silent)


def test_flipped_bit_is_not_taken_for_a_newer_format(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.write(1, FILES, ABOUT)
    newer = folder.write(2, FILES, ABOUT) / "manifest.json"
    newer.write_bytes(newer.read_bytes().replace(b'"format": 1', b'"format": 9'))
    said: list[str] = []
    found = folder.newest(said.append)
    assert found is not None
    assert found.step == 1
    assert "manifest.json: its sha256 is not that of its content" in said[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"format": True},
        {"format": "1"},
        {"format": -1},
        {"step": None},
        {"step": 1.5},
        {"saved": 0},
        {"about": []},
        {"files": None},
        {"files": ["state.json"]},
        {"files": {"state.json": None}},
        {"files": {"state.json": {"bytes": 2}}},
        {"files": {"state.json": {"bytes": -1, "sha256": "0" * 64}}},
        {"files": {"state.json": {"bytes": 2, "sha256": "0"}}},
        *(
            {"files": {name: {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}}}
            for name in ("../secret", "../../secret", "/etc/passwd", "a/../../secret", "..", ".")
        ),
        {"files": {"manifest.json": {"bytes": 2, "sha256": "0" * 64}}},
        {"files": {"state.json\0": {"bytes": 2, "sha256": "0" * 64}}},
    ],
)
def test_signed_manifest_of_others_is_not_believed(tmp_path, changes):
    folder = CheckpointFolder(tmp_path / "checkpoints")
    (tmp_path / "secret").write_bytes(b"secret")
    written = folder.write(1, FILES, ABOUT)
    (folder.root / "secret").write_bytes(b"secret")
    rewrite(written / "manifest.json", **changes)
    with pytest.raises(BrokenCheckpoint, match=r"manifest\.json: "):
        folder.read(written.name)


# --- what is kept ------------------------------------------------------------------------------


def test_the_last_are_kept_and_every_nth(tmp_path):
    folder = CheckpointFolder(tmp_path, keep_last=2, keep_every=30)
    for step in range(10, 101, 10):
        folder.write(step, FILES, ABOUT)
        folder.remove_old(silent)
    assert steps(folder) == [100, 90, 60, 30]


def test_broken_ones_do_not_push_out_whole_ones(tmp_path):
    folder = CheckpointFolder(tmp_path, keep_last=2)
    for step in (10, 20):
        folder.write(step, FILES, ABOUT)
    # One that only reading finds out, one that its size tells, one whose manifest is torn.
    (folder.write(80, FILES, ABOUT) / "state.json").write_bytes(b"[]")
    (folder.write(90, FILES, ABOUT) / "state.json").unlink()
    (folder.write(100, FILES, ABOUT) / "manifest.json").write_bytes(b"{")
    found = folder.newest(lambda _text: None)
    assert found is not None
    assert found.step == 20
    folder.write(30, FILES, ABOUT)
    folder.remove_old(silent)
    assert steps_of_names(folder) == [100, 90, 80, 30, 20]
    # They go when training has passed them.
    folder.write(100, FILES, {"second": True})
    folder.remove_old(silent)
    assert steps(folder) == [100, 30]
    assert folder.read(folder.names()[0]).about == {"second": True}


def steps_of_names(folder: CheckpointFolder) -> list[int]:
    return [int(name.split("-")[1]) for name in folder.names()]


def test_checkpoint_of_another_format_is_never_removed(tmp_path):
    folder = CheckpointFolder(tmp_path, keep_last=1)
    for step in (1, 2):
        rewrite(folder.write(step, FILES, ABOUT) / "manifest.json", format=7)
    folder.write(3, FILES, ABOUT)
    folder.write(4, FILES, ABOUT)
    folder.remove_old(silent)
    assert steps_of_names(folder) == [4, 2, 1]


def test_next_save_takes_away_what_was_left_unfinished(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 200):
        (folder.write(step, FILES, ABOUT) / "manifest.json").unlink()
    folder.write(100, FILES, ABOUT)
    assert [path.name[:14] for path in tmp_path.iterdir()] == ["step-000000100"]


def test_linked_checkpoint_is_read_and_only_its_link_removed(tmp_path):
    elsewhere = CheckpointFolder(tmp_path / "elsewhere").write(1, FILES, ABOUT)
    folder = CheckpointFolder(tmp_path / "checkpoints", keep_last=1)
    folder.root.mkdir()
    (folder.root / elsewhere.name).symlink_to(elsewhere)
    found = folder.newest(silent)
    assert found is not None
    assert found.files == FILES
    folder.write(2, FILES, ABOUT)
    folder.remove_old(silent)
    assert steps(folder) == [2]
    assert set(read_folder(elsewhere)) == {*FILES, "manifest.json"}


def test_checkpoint_that_cannot_be_removed_is_named(tmp_path):
    folder = CheckpointFolder(tmp_path, keep_last=1)
    strange = folder.write(1, FILES, ABOUT)
    (strange / "folder").mkdir()
    for step in (5, 6):
        (folder.write(step, FILES, ABOUT) / "manifest.json").unlink()
    folder.write(2, FILES, ABOUT)
    folder.write(3, FILES, ABOUT)
    said: list[str] = []
    folder.remove_old(said.append)
    assert [text.partition(":")[0] for text in said] == [
        f"checkpoint {strange.name} could not be removed"
    ]
    assert steps(folder) == [3]
    # What is left of it is no checkpoint any more, and keeps nothing else from being removed.
    folder.write(4, FILES, ABOUT)
    folder.remove_old(silent)
    left = sorted(path.name[:14] for path in tmp_path.iterdir())
    assert left == ["step-000000001", "step-000000004"]


def test_large_files_are_hashed_written_and_read_without_a_second_copy(tmp_path):
    size = 32 << 20
    folder = CheckpointFolder(tmp_path)
    data = bytes(size)
    tracemalloc.start()
    try:
        folder.write(1, {"model.safetensors": data}, {})
        written_peak = tracemalloc.get_traced_memory()[1]
        found = folder.newest(silent)
        read_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.files == {"model.safetensors": data}
    assert written_peak < size // 8
    assert read_peak < size * 9 // 8
