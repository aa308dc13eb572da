"""One line per phase: plain in a log, over a spinner on a terminal."""

import io
from itertools import count

import pytest

from tests.busy import wait_until
from tools.phases import CLEAR_LINE, FRAMES, Phases


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ticking(step_s):
    ticks = count(0, step_s)
    return lambda: float(next(ticks))


def test_a_log_gets_one_plain_line_a_phase_with_its_time_and_remark():
    out = io.StringIO()
    with Phases(out, environ={"TERM": "xterm"}, clock=ticking(75)) as phases:
        with phases.phase("first"):
            pass
        with phases.phase("second") as phase:
            phase.note("from the cache")
        phases.say("a word between")
    assert out.getvalue() == (
        "  1 min 15 s  first\n" + "  1 min 15 s  second: from the cache\n" + "a word between\n"
    )


def test_a_failed_phase_is_marked_and_its_error_goes_on():
    out = io.StringIO()
    with Phases(out, environ={}, clock=ticking(1)) as phases:
        with pytest.raises(OSError, match="disk"), phases.phase("copy"):
            raise OSError("disk")
    assert out.getvalue() == "       1.0 s  copy FAILED\n"


def test_side_by_side_phases_each_get_their_line_when_they_end():
    out = io.StringIO()
    with Phases(out, environ={}, clock=ticking(1)) as phases:
        with phases.phase("outer"):
            with phases.phase("inner"):
                pass
    assert [line.split("s  ")[1] for line in out.getvalue().splitlines()] == ["inner", "outer"]


def test_a_terminal_gets_a_spinner_that_the_phase_line_replaces(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("tools.phases.FRAME_S", 0.01)
    out = Terminal()
    with Phases(out, environ={"TERM": "xterm"}) as phases, phases.phase("compiling"):
        wait_until(lambda: "compiling" in out.getvalue(), what=out.getvalue)
    first, *_, last = [shown for shown in out.getvalue().split(CLEAR_LINE) if shown]
    assert first[0] in FRAMES
    assert first[1:].startswith(" compiling ")
    assert last.startswith("\x1b[2m")
    assert last.endswith("\x1b[0m  compiling\n")


def test_no_color_and_a_dumb_terminal_are_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    coloured, dumb = Terminal(), Terminal()
    with Phases(coloured, environ={"TERM": "xterm"}, clock=ticking(1)) as phases:
        with phases.phase("x"):
            pass
    assert "\x1b[2m" not in coloured.getvalue()
    with Phases(dumb, environ={"TERM": "dumb"}, clock=ticking(1)) as phases:
        with phases.phase("x"):
            pass
    assert dumb.getvalue() == "       1.0 s  x\n"
