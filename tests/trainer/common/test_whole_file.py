"""A file is there whole, or as it was, or not at all."""

from __future__ import annotations

import pytest

from tests.folders import read_folder
from tests.limits import largest_file
from trainer.common.errors import TrainingError
from trainer.common.whole_file import write_whole


def test_a_file_replaces_the_one_before(tmp_path):
    for content in (b"first", b"second"):
        write_whole(tmp_path / "new" / "file", content)
        assert read_folder(tmp_path) == {"new/file": content}


def test_a_folder_that_cannot_be_written_into_is_no_full_disk(tmp_path):
    (tmp_path / "folder").write_bytes(b"a file")
    with pytest.raises(TrainingError, match="file` cannot be written: File exists") as caught:
        write_whole(tmp_path / "folder" / "file", b"")
    assert caught.value.hint == "free some space, or correct the folder's permissions"


def test_a_full_disk_leaves_the_one_before_and_nothing_else(tmp_path):
    write_whole(tmp_path / "file", b"before")
    with (
        largest_file(1000),
        pytest.raises(TrainingError, match="file` cannot be written: File too"),
    ):
        write_whole(tmp_path / "file", bytes(10_000))
    assert read_folder(tmp_path) == {"file": b"before"}
