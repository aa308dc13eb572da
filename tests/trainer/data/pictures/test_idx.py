"""IDX files: written as MNIST's, read plain or packed, refused when not whole."""

from __future__ import annotations

import gzip

import pytest

from trainer.common.errors import TrainingError
from trainer.data.pictures import idx
from trainer.data.pictures.idx import read_idx, write_idx


def test_the_bytes_are_those_of_the_format(tmp_path):
    write_idx(tmp_path / "a", (2, 1, 3), bytes(range(6)))
    header = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3])
    assert (tmp_path / "a").read_bytes() == header + bytes(range(6))


def test_what_was_written_is_read_back_plain_and_packed(tmp_path):
    write_idx(tmp_path / "a", (300,), bytes(300))
    assert read_idx(tmp_path, "a") == ((300,), bytes(300))
    (tmp_path / "b.gz").write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    assert read_idx(tmp_path, "b") == ((300,), bytes(300))


def _damaged(content: bytes) -> bytes:
    """Give it with a byte changed that belongs to the codes of its deflated block."""
    packed = bytearray(gzip.compress(content, mtime=0))
    packed[12] ^= 0xFF
    return bytes(packed)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"", "is not an IDX file of unsigned bytes"),
        ("a", bytes([0, 0, 13, 1, 0, 0, 0, 1, 0]), "is not an IDX file of unsigned bytes"),
        ("a", bytes([0, 0, 8, 2, 0, 0, 0, 1]), "is not an IDX file of unsigned bytes"),
        ("a", bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2]), "holds 2 values, its header says 5"),
        ("a.gz", b"not packed", "is not a complete gzip file"),
        ("a.gz", gzip.compress(bytes(1000), mtime=0)[:20], "is not a complete gzip file"),
        ("a.gz", _damaged(bytes(range(256))), "is not a complete gzip file: .*get the file again"),
        ("other", b"", r"no `a` \(or `a.gz`\) in .*launch data prepare"),
    ],
)
def test_a_file_that_is_not_whole_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrainingError, match=message):
        read_idx(tmp_path, "a")


def test_a_file_that_unpacks_to_too_much_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "MOST_BYTES", 1 << 20)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes((1 << 20) + 1)))
    with pytest.raises(TrainingError, match=r"a\.gz` unpacks to more than 1 MiB"):
        read_idx(tmp_path, "a")
