"""What a rank writes, line by line into its log: whole, stamped, and without the job's secrets."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rank.log import LONGEST_LINE, SHOW_EVERY_S, Log, stamp
from jobs.rank.mask import Mask
from jobs.rank.memory import FORGOTTEN_BYTES, LARGEST, LONGEST

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


class Written:
    """A log, fed in pieces."""

    def __init__(self, folder: Path, *secrets: str) -> None:
        self.path = folder / "rank-00000.log"
        self.log = Log(str(self.path), Mask(list(secrets)))

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


class Clock:
    """Stands in for the clock of the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("jobs.rank.log.time.monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_bar_drawn_ten_times_a_second_is_shown_each_second_and_at_its_end(
    tmp_path: Path, clock: Clock
) -> None:
    written = Written(tmp_path)
    for tenth in range(35):
        clock.now_s = 100 + tenth / 10
        written.feed(b"\r%3d%%" % tenth).log.show_progress()
    assert written.lines() == [b"  9%", b" 19%", b" 29%"]
    assert written.feed(b"\r100%\n").lines() == [b"  9%", b" 19%", b" 29%", b"100%"]


@pytest.mark.parametrize("updates", [(b"\r 10%", b"\r 20%"), (b" 10%\r", b" 20%\r")])
def test_bar_that_pauses_is_shown_as_it_stands_and_not_twice(
    tmp_path: Path, clock: Clock, updates: tuple[bytes, ...]
) -> None:
    written = Written(tmp_path).feed(*updates)
    assert written.log.due_ms == SHOW_EVERY_S * 1000
    clock.now_s += SHOW_EVERY_S
    written.log.show_progress()
    assert written.lines() == [b" 20%"]
    assert written.log.due_ms is None, "what says nothing more gives no sign of life"
    assert written.feed(b"\n").lines() == [b" 20%"]


def test_unfinished_line_is_one_sign_of_life_and_no_line(tmp_path: Path, clock: Clock) -> None:
    written = Written(tmp_path).feed(b"loading ")
    os.utime(written.path, (0, 0))
    clock.now_s += SHOW_EVERY_S
    written.log.show_progress()
    assert written.path.stat().st_mtime > 0
    assert (written.path.read_bytes(), written.log.due_ms) == (b"", None)


def test_bar_that_pauses_within_a_secret_does_not_show_its_beginning(
    tmp_path: Path, clock: Clock
) -> None:
    written = Written(tmp_path, "hunter2-and-more").feed(b"\r  1%\r with hunter2")
    clock.now_s += SHOW_EVERY_S
    written.log.show_progress()
    assert written.lines() == [b"  1%"]
    assert written.feed(b"-and-more\n").lines() == [b"  1%", b" with ***"]


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        (b"\r 10%\r 20%\n", b" 20%"),
        (b" 10%\r       \r\n", b" 10%"),
        (b"1/2\x08\x08\x08\r2/2\x08\x08\x08\r\x1b[K\n", b"2/2"),
        (b"\r 10%\rhello\n", b"hello"),
        (b"hello\r\r\n", b"hello"),
        (b"\r\n", b""),
        # Two bars of tqdm, as they go on and as the lower one is taken away.
        (b"\n\r 0/5\x1b[A\n\r 1/5\x1b[A\router 1\n", b"\nouter 1"),
        (b"\r 0/5\x1b[A\x1b[A\n\n\r      \r\x1b[A\router 1\n", b"outer 1"),
    ],
)
def test_line_drawn_anew_is_logged_as_a_terminal_shows_it_last(
    tmp_path: Path, drawn: bytes, shown: bytes
) -> None:
    assert Written(tmp_path).feed(drawn).lines() == shown.split(b"\n")


BEHIND_A_BAR = b" 40%|####      | 2/5 [00:01<00:01]"


@pytest.mark.parametrize("bar", [b"\r" + BEHIND_A_BAR, BEHIND_A_BAR + b"\r", b"\r\r", b"a\rb\r\r"])
def test_traceback_behind_a_progress_bar_is_found(tmp_path: Path, bar: bytes) -> None:
    traceback = b'Traceback (most recent call last):\n  File "a", line 1\nValueError: x'
    found = Written(tmp_path).feed(bar, traceback + b"\n").log.traceback()
    assert found is not None
    assert found[0] == traceback.decode()


PIECES = [
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\x08",
        b"\x1b[K",
        b"\x1b[A",
        b"\xff\xc3",
        b"50%",
        b"secret-value",
        b"x" * 2500,
    ),
    *(b"Traceback (most recent call last):", b"  at\n", b"ValueError: x", b"[rank0]: "),
    *(
        b"Fatal Python error: ",
        b"During handling of the above exception, another exception occurred:",
    ),
]


@given(
    data=st.data(), pieces=st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=40)
)
def test_any_bytes_in_any_reads_give_the_same_whole_lines(
    tmp_path: Path, data: st.DataObject, pieces: list[bytes]
) -> None:
    text = b"".join(pieces)
    logs: list[tuple[list[bytes], str | None, str]] = []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    for bounds in ([0, len(text)], [0, *cuts, len(text)]):
        tmp_path.joinpath("rank-00000.log").unlink(missing_ok=True)
        written = Written(tmp_path, "secret-value")
        written.feed(*(text[low:high] for low, high in pairwise(bounds)))
        written.log.flush()
        found = written.log.traceback()
        logs.append((written.lines(), found[0] if found else None, written.log.last_lines(20)))
    assert logs[0] == logs[1]
    marks = (b"Traceback (most recent call last):", b"Fatal Python error: ")
    assert (logs[0][1] is not None) == any(mark in line for line in logs[0][0] for mark in marks)
    assert b"secret-value" not in b"\n".join(logs[0][0])


MESSAGE = b"ValueError: " + b"a" * (10 << 20)


@pytest.mark.parametrize("at_once", [1 << 16, 20 << 20])
def test_message_of_ten_megabytes_is_remembered_by_its_beginning(
    tmp_path: Path, at_once: int
) -> None:
    text = b'Traceback (most recent call last):\n  File "a", line 1\n' + MESSAGE + b"\nbye\n"
    written = Written(tmp_path)
    written.feed(*(text[at : at + at_once] for at in range(0, len(text), at_once)))
    found = written.log.traceback()
    assert found is not None
    first, second, last = found[0].encode().split(b"\n")
    assert (first, second) == (b"Traceback (most recent call last):", b'  File "a", line 1')
    assert (last[:LONGEST], last[LONGEST:][:24]) == (MESSAGE[:LONGEST], b" ... (cut: the line has ")
    assert len(written.log.last_lines(20)) < 20 * (LONGEST + 100)
    # All of it is in the log, if in pieces where it came in pieces.
    assert b"".join(written.lines()) == text.replace(b"\n", b"")


def test_message_of_ten_megabytes_in_many_lines_does_not_hide_the_exception(tmp_path: Path) -> None:
    text = b"Traceback (most recent call last):\n  at\nValueError: see\n"
    written = Written(tmp_path).feed(text, b"one more line of it\n" * (FORGOTTEN_BYTES // 10))
    found = written.log.traceback()
    assert found is not None
    assert found[0].encode() == text[:-1]


def test_traceback_that_much_came_after_long_ago_was_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"Traceback (most recent call last):\n  at\nValueError: caught\n"
    written = Written(tmp_path).feed(text, b"training went on\n" * (FORGOTTEN_BYTES // 10))
    monkeypatch.setattr("jobs.rank.memory.time.monotonic", lambda: float("inf"))
    assert written.log.traceback() is None


def test_traceback_of_many_frames_keeps_its_first_and_last_lines(tmp_path: Path) -> None:
    frames = b"".join(b"  frame %d %s\n" % (n, b"x" * 400) for n in range(1000))
    text = b"Traceback (most recent call last):\n" + frames + b"ValueError: x\n"
    found = Written(tmp_path).feed(text).log.traceback()
    assert found is not None
    lines = found[0].splitlines()
    assert (lines[0], lines[1]) == ("Traceback (most recent call last):", "  ... (cut)")
    assert lines[-2:] == [f"  frame 999 {'x' * 400}", "ValueError: x"]
    assert len(found[0]) < LARGEST + 100


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


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_carriage_return_in_an_exceptions_text_hides_nothing_of_it(
    tmp_path: Path, size: int
) -> None:
    frames = b'Traceback (most recent call last):\r\n  File "a", line 1\r\n'
    text = b"10%\r20%\n" + frames + b"ValueError: header\rbody\r\n10%\r20%\n"
    written = Written(tmp_path).feed(*(text[at : at + size] for at in range(0, len(text), size)))
    shown = [*frames.replace(b"\r", b"").splitlines(), b"ValueError: header\\rbody"]
    assert written.lines() == [b"20%", *shown, b"20%"]
    found = written.log.traceback()
    assert found is not None
    assert found[0] == b"\n".join(shown).decode()


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

    monkeypatch.setattr("jobs.rank.log.os.write", write_while_there_is_room)
    written.feed(b"two is cut off here\n", b"three\n")
    monkeypatch.undo()
    lost = 2 * len(stamp()) + len(b"two is cut off here\nthree\n") - 40
    assert written.log.error == f"log: No space left on device, {lost} bytes lost"
    assert written.feed(b"four\n").lines() == [b"one", b"two is cut o", b"four"]
