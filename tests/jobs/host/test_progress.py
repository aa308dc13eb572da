"""What is said of a transfer on the way: its rate is that of what really moved."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from jobs.host.progress import INTERRUPTED, Counter, ProgressLine, ProgressLines, Transfer

MB = 10**6


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr("jobs.host.progress.time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


@pytest.fixture
def stream():
    return io.StringIO()


def test_what_went_before_the_transfer_is_no_part_of_its_rate(clock, stream):
    line = ProgressLine("sending", stream=stream)
    clock.now_s = 1000.0  # the folder was read
    counter = Counter(100, 100 * MB, line)
    counter.add(1, 1 * MB)
    clock.now_s += 10.0
    counter.add(20, 20 * MB)
    assert (
        stream.getvalue()
        == "sending 21/100 files, 21.0 MB of 100.0 MB (21%), 2.0 MB/s, 40 s left\n"
    )


def test_what_an_earlier_try_left_counts_as_done_and_not_as_rate(clock, stream):
    counter = Counter(2, 100 * MB, ProgressLine("sending", stream=stream))
    counter.add(0, 40 * MB, 40 * MB)
    clock.now_s += 5.0
    counter.add(1, 20 * MB, 15 * MB)
    clock.now_s += 5.0
    counter.add(0, 5 * MB)
    assert stream.getvalue().splitlines() == [
        "sending 1/2 files, 60.0 MB of 100.0 MB (60%), 1.0 MB/s, 40 s left",
        "sending 1/2 files, 65.0 MB of 100.0 MB (65%), 1.0 MB/s, 35 s left",
    ]


def test_nothing_moved_yet_has_no_rate(clock, stream):
    counter = Counter(2, 100 * MB, ProgressLine("sending", stream=stream))
    counter.add(0, 0)
    clock.now_s += 9.0
    counter.add(0, 40 * MB, 40 * MB)
    assert stream.getvalue() == "sending 0/2 files, 40.0 MB of 100.0 MB (40%)\n"


def test_what_is_counted_in_files_has_no_bytes(clock, stream):
    line = ProgressLine("removing", stream=stream)
    line(Transfer(files_done=0, bytes_done=0, files=40))
    clock.now_s += 10.0
    line(Transfer(files_done=10, bytes_done=0, files=40))
    line(Transfer(files_done=40, bytes_done=0, files=40))
    assert stream.getvalue().splitlines() == [
        "removing 10/40 files (25%), 30 s left",
        "removing 40/40 files (100%)",
    ]


def test_a_second_round_has_a_clock_of_its_own(clock, stream):
    line = ProgressLine("sending", stream=stream)
    line(Transfer(files_done=5, bytes_done=50 * MB, files=5, bytes=50 * MB))
    clock.now_s += 100.0
    line(Transfer(files_done=1, bytes_done=1 * MB, files=3, bytes=21 * MB))
    clock.now_s += 5.0
    line(Transfer(files_done=2, bytes_done=11 * MB, files=3, bytes=21 * MB))
    assert stream.getvalue().splitlines() == [
        "sending 5/5 files, 50.0 MB of 50.0 MB (100%)",
        "sending 2/3 files, 11.0 MB of 21.0 MB (52%), 2.0 MB/s, 5.0 s left",
    ]


def test_what_is_said_after_ctrl_c_begins_on_a_line_of_its_own(clock, stream, monkeypatch):
    stream.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", stream)
    lines = ProgressLines()
    line = lines.open("sending")
    line(Transfer(files_done=0, bytes_done=0, files=2, bytes=9))
    clock.now_s += 0.2
    line(Transfer(files_done=1, bytes_done=4, files=2, bytes=9))
    with pytest.raises(KeyboardInterrupt), lines:
        raise KeyboardInterrupt
    text = "sending 1/2 files, 4 B of 9 B (44%)"
    assert stream.getvalue() == f"\r\x1b[K{text}\n{INTERRUPTED}\n"
