"""The line below a followed run's output: drawn anew on a terminal, now and then in a log."""

import io

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import LogLine
from jobs.launching.follow import write_lines
from jobs.launching.status_line import StatusLine


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


class Looks:
    """Texts that a look gives, one after the other; an error is raised."""

    def __init__(self, *texts):
        self.texts = list(texts)

    def __call__(self):
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return text


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_terminal_has_the_line_below_the_output_and_none_at_the_end(capsys):
    stream = Terminal()
    line = StatusLine(Looks("", "10 %", "10 %", "20 %"), every_s=1e6, stream=stream)
    with line:
        line.update()
        write_lines([LogLine(ts="t", rank=0, text="first")], 1, line=line)
        assert stream.getvalue() == ""
        line.update()
        line.update()
        assert stream.getvalue() == "\r\x1b[K10 %\r"
        write_lines([LogLine(ts="t", rank=0, text="second")], 1, line=line)
        line.update()
    assert (
        stream.getvalue()
        == "\r\x1b[K10 %\r" + "\r\x1b[K" + "\r\x1b[K10 %\r" + "\r\x1b[K20 %\r" + "\r\x1b[K"
    )
    assert capsys.readouterr().out == "[0] first\n[0] second\n"
    # A look that was under way when the command ended shows nothing.
    line._look = Looks("30 %")
    line.update()
    assert "30" not in stream.getvalue()


def test_a_long_line_is_cut_so_that_it_stays_one(capsys):
    stream = Terminal()
    StatusLine(Looks("run " + "x" * 200 + "\x1b[2J"), every_s=1e6, stream=stream).update()
    (drawn,) = stream.getvalue().removeprefix("\r\x1b[K").split("\r")[:1]
    assert len(drawn) == 79


def test_a_log_gets_plain_lines_and_none_twice(capsys):
    line = StatusLine(Looks("", "10 %", "10 %", "20 %"), every_s=0.0)
    for _ in range(4):
        line.update()
    with line.hidden():
        pass
    assert capsys.readouterr() == ("", "10 %\n20 %\n")


def test_a_store_out_of_reach_leaves_the_line_as_it_was(capsys):
    line = StatusLine(Looks("10 %", EnvironmentFailure("away"), "20 %"), every_s=0.0)
    for _ in range(3):
        line.update()
    assert capsys.readouterr() == ("", "10 %\n20 %\n")


def test_a_terminal_without_a_cursor_is_a_log(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    line = StatusLine(Looks("10 %"), every_s=1.0, stream=Terminal())
    line.update()
    assert capsys.readouterr().err == "10 %\n"
