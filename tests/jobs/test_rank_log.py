"""What a rank writes, line by line into its log: whole, stamped, and without the job's secrets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jobs.rank_log import LONGEST_LINE, Log, stamp, struck_out

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


class Written:
    """A log, fed in pieces."""

    def __init__(self, folder: Path, *secrets: str) -> None:
        self.path = folder / "rank-00000.log"
        self.log = Log(str(self.path), struck_out(list(secrets)))

    def feed(self, *pieces: bytes) -> Written:
        for piece in pieces:
            self.log.feed(piece)
        return self

    def lines(self) -> list[bytes]:
        lines = self.path.read_bytes().split(b"\n")
        assert lines.pop() == b"", "the last line is not whole"
        assert all(STAMP.match(line) for line in lines), lines
        return [line.split(b" ", 1)[1] for line in lines]


def test_line_torn_over_writes_even_inside_a_character_is_one_line(tmp_path: Path) -> None:
    text = "Übung: 学習\n".encode()
    written = Written(tmp_path).feed(*(text[at : at + 1] for at in range(len(text))))
    assert written.lines() == [text[:-1]]


def test_last_line_without_an_end_is_kept(tmp_path: Path) -> None:
    written = Written(tmp_path).feed(b"one\ntwo")
    assert written.lines() == [b"one"]
    written.log.flush()
    assert written.lines() == [b"one", b"two"]


def test_windows_line_ends_and_empty_lines(tmp_path: Path) -> None:
    assert Written(tmp_path).feed(b"a\r\n\nb\n").lines() == [b"a", b"", b"b"]


def test_progress_bar_is_shown_as_it_stands_and_ends_as_a_line(tmp_path: Path) -> None:
    written = Written(tmp_path).feed(b"\r 10%", b"\r 20%\r")
    written.log.flush_progress()
    assert written.lines() == [b" 20%"]
    written.feed(b"\r100%\n")
    assert written.lines()[-1].rpartition(b"\r")[2] == b"100%"


def test_line_longer_than_memory_allows_is_broken_between_characters(tmp_path: Path) -> None:
    text = "é".encode() * LONGEST_LINE
    written = Written(tmp_path, "secret-value")
    for at in range(0, len(text), 65_537):
        written.feed(text[at : at + 65_537])
    written.feed(b"\n")
    lines = written.lines()
    assert b"".join(lines) == text
    assert len(lines) > 1
    for line in lines:
        line.decode()


def test_secret_at_the_break_of_a_long_line_is_struck_out(tmp_path: Path) -> None:
    secret = "hunter2-and-more"
    written = Written(tmp_path, secret)
    for before in range(len(secret) + 1):
        start = b"x" * (LONGEST_LINE - before + 1)
        written.feed(start + secret[:before].encode(), secret[before:].encode() + b"\n")
    content = b"".join(written.lines())
    assert content.count(b"***") == len(secret) + 1
    assert b"hunter" not in content
    assert b"more" not in content


def test_secret_is_struck_out_in_its_usual_disguises(tmp_path: Path) -> None:
    written = Written(tmp_path, 'p@ss w/"ör\nsecond-line')
    written.feed(
        'plain p@ss w/"ör\n'.encode(),
        b"url p%40ss%20w%2F%22%C3%B6r\n",
        b"url p%40ss%20w/%22%C3%B6r\n",
        b"form p%40ss+w%2F%22%C3%B6r\n",
        b'json {"a": "p@ss w/\\"\\u00f6r"}\n',
        b"base64 cEBzcyB3LyLDtnI=\n",
        b"second-line\n",
    )
    assert written.lines() == [
        b"plain ***",
        b"url ***",
        b"url ***",
        b"form ***",
        b'json {"a": "***"}',
        b"base64 ***=",
        b"***",
    ]


def test_secret_split_over_writes_is_struck_out(tmp_path: Path) -> None:
    assert Written(tmp_path, "hunter2").feed(b"my hun", b"ter2 is", b" safe\n").lines() == [
        b"my *** is safe"
    ]


def test_traceback_that_ends_the_log_is_found_with_what_caused_it(tmp_path: Path) -> None:
    old = b"Traceback (most recent call last):\n  old\nKeyError: 1\nwent on\n"
    chain = (
        b"Traceback (most recent call last):\n  first\nKeyError: 2\n\n"
        b"The above exception was the direct cause of the following exception:\n\n"
        b"Traceback (most recent call last):\n  second\nValueError: 3"
    )
    found = Written(tmp_path).feed(old + chain + b"\nlast words\n").log.traceback()
    assert found is not None
    assert found[0] == chain.decode()


def test_prefix_that_torch_puts_before_a_traceback_is_taken_off(tmp_path: Path) -> None:
    text = b"[rank1]: Traceback (most recent call last):\n[rank1]:   at\n[rank1]: ValueError: x\n"
    found = Written(tmp_path).feed(text).log.traceback()
    assert found is not None
    assert found[0] == "Traceback (most recent call last):\n  at\nValueError: x"


def test_log_without_a_traceback_has_none(tmp_path: Path) -> None:
    log = Written(tmp_path).feed(b"all is well\n").log
    assert log.traceback() is None
    assert log.last_lines(5) == "all is well"


def test_log_cut_off_by_a_full_disk_goes_on_with_a_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path).feed(b"one\n")
    write, room = os.write, [40]

    def write_while_there_is_room(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = write(descriptor, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr("jobs.rank_log.os.write", write_while_there_is_room)
    written.feed(b"two is cut off here\n", b"three\n")
    monkeypatch.undo()
    lost = 2 * len(stamp()) + len(b"two is cut off here\nthree\n") - 40
    assert written.log.error == f"log: No space left on device, {lost} bytes lost"
    assert written.feed(b"four\n").lines() == [b"one", b"two is cut o", b"four"]
