"""What is said of a transfer on the way: its rate is that of what really moved."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jobs.host.progress import (
    INTERRUPTED,
    BuildProgress,
    Counter,
    ProgressLine,
    ProgressLines,
    Transfer,
    step,
)

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
    shown = as_shown(stream)
    assert "sending 1/2 files, 4 B of 9 B (44%)\n" in shown
    assert shown.endswith(f"\n{INTERRUPTED}\n")


def as_shown(stream: io.StringIO) -> str:
    """The text without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "has_bar"), [(100, True), (45, False), (20, False)])
def test_a_line_that_moves_stays_one_line_of_the_terminal(clock, monkeypatch, width, has_bar):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    line = ProgressLine("sending", stream=stream)
    for number in range(5):
        clock.now_s += 0.2
        line(Transfer(files_done=number, bytes_done=number, files=4, bytes=4))
    rows = as_shown(stream).replace("\r", "\n").split("\n")
    assert max(map(len, rows)) <= width
    assert any("sending 4/4 files" in row for row in rows)
    assert any("\u2501" in row for row in rows) is has_bar
    assert stream.getvalue().endswith("\n") or stream.getvalue().endswith("\x1b[?25h")


def test_names_are_neither_markup_nor_control_of_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = BuildProgress("starting", stream=stream)
    progress.take("STEP 1/2: RUN [bold]:smiley: \x1b]0;title\x07\x1b[2J")
    progress.end()
    shown = stream.getvalue()
    assert "[bold]:smiley: \\x1b]0;title\\x07\\x1b[2J" in shown
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown


def test_a_terminal_that_cannot_move_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    line = ProgressLine("sending", stream=stream)
    line(Transfer(files_done=1, bytes_done=4, files=1, bytes=4))
    assert stream.getvalue() == "sending 1/1 files, 4 B of 4 B (100%)\n"


def test_no_colour_where_nobody_wants_it(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    ProgressLine("sending", stream=stream)(Transfer(files_done=4, bytes_done=4, files=4, bytes=4))
    assert re.findall(r"\x1b\[3[0-7]|\x1b\[38", stream.getvalue()) == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_step_ends_with_the_time_it_took(clock, monkeypatch, is_terminal):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with step("packages of [bold]x"):
        clock.now_s += 3.0
    shown = as_shown(stream)
    assert shown.endswith("       3.0 s  packages of [bold]x\n")
    assert shown.startswith("packages of [bold]x ...\n") is not is_terminal


def test_a_log_loads_nothing_to_draw_with(tmp_path):
    program = (
        "import sys; from jobs.host.progress import *\n"
        "ProgressLine('a')(Transfer(files_done=1, bytes_done=1, files=1, bytes=1))\n"
        "with step('b'): pass\n"
        "assert 'rich' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], check=False, capture_output=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
