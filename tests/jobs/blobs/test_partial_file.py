"""What a killed download leaves: taken up where it is right, taken away where nobody wants it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.blobs import partial_file
from jobs.blobs.files import BLOCK_BYTES, Incoming
from jobs.blobs.partial_file import PartialFile
from jobs.contracts.errors import EnvironmentFailure
from tests import seeds
from tests.fakes.http_blobs import http_blobs
from tests.fakes.scripted_server import Asked
from tests.fakes.transfers import LARGE, Moved, incoming, store_of
from tests.folders import read_folder


def large_file(folder: Path, *, sha256: str = "0") -> Incoming:
    return Incoming(name="x", path=folder / "x", bytes=13 * BLOCK_BYTES, sha256=sha256, mode=0o644)


def test_a_note_after_one_that_was_cut_short_is_not_read_as_one(tmp_path):
    file = large_file(tmp_path)
    first = PartialFile(file, is_resumable=True)
    first.write(memoryview(b"x"), file.bytes - 1)
    first.note(0)
    first.close()
    (journal,) = tmp_path.glob("*.ranges")
    journal.write_bytes(b"0\n1")
    second = PartialFile(file, is_resumable=True)
    second.note(2)
    second.close()
    third = PartialFile(file, is_resumable=True)
    assert third.finished_blocks() == {0, 2}
    third.close()


def test_a_kill_before_the_name_leaves_no_journal(tmp_path, monkeypatch):
    part = PartialFile(large_file(tmp_path), is_resumable=True)
    with monkeypatch.context() as killing:
        killing.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            part.finish()
    part.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]


def test_a_folder_that_may_not_be_written_is_said_to_be_that(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(partial_file, "_open", refuse)
    with pytest.raises(EnvironmentFailure, match="cannot be written: Permission denied"):
        PartialFile(large_file(tmp_path), is_resumable=True)


def test_what_killed_ones_left_of_other_contents_goes_at_the_end_of_a_pull(tmp_path):
    old = PartialFile(large_file(tmp_path, sha256="1"), is_resumable=True)
    old.close()
    (tmp_path / ".trainyard-1.ranges").write_text("0\n")
    (tmp_path / ".trainyard-notes.txt").write_text("mine")
    held = PartialFile(large_file(tmp_path, sha256="2"), is_resumable=True)
    kept = {path.name for path in tmp_path.glob(f"{Path(held._stem).name}*")}
    with http_blobs() as blobs:
        blobs.blobs["new"] = b"new"
        store_of(blobs.url).receive([incoming(b"new", tmp_path / "new", "new")], Moved())
    assert {path.name for path in tmp_path.iterdir()} == {"new", ".trainyard-notes.txt", *kept}
    held.close()


def test_a_content_of_chunks_is_measured_and_both_lengths_are_named(tmp_path):
    content = seeds.content(LARGE)
    with http_blobs() as blobs:

        def shorter(_kind: str, _asked: Asked) -> bytes:
            head = b"HTTP/1.1 206 Said\r\nTransfer-Encoding: chunked\r\n"
            head += b"Content-Range: bytes 0-2/3\r\n\r\n"
            return head + b"3\r\nabc\r\n0\r\n\r\n"

        blobs.hook = shorter
        said = "another content than was pushed: an answer of 3 bytes, not of"
        with pytest.raises(EnvironmentFailure, match=said):
            store_of(blobs.url).receive([incoming(content, tmp_path / "x", "x")], Moved())
        blobs.blobs["x"] = content
        blobs.hook = lambda _kind, _asked: None
        store_of(blobs.url).receive([incoming(content, tmp_path / "x", "x")], Moved())
    assert read_folder(tmp_path) == {"x": content}
