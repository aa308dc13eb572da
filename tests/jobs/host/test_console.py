"""What is written: alignment, units, colour only where it is seen, a reader that left."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.host import console


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (7620, "2 h 7 min"),
        (360000, "4 d 4 h"),
    ],
)
def test_a_length_of_time_has_two_units(seconds, text):
    assert console.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (5_500_000_000, "5.5 GB")],
)
def test_sizes_are_decimal(num_bytes, text):
    assert console.size_text(num_bytes) == text


def test_columns_are_aligned_and_numbers_stand_right():
    text = console.table(["NAME", "N"], [["a", "1"], ["longer", "10"]], right=(1,))
    assert text == "NAME     N\na        1\nlonger  10"


def test_coloured_cells_are_aligned_by_what_is_seen(monkeypatch):
    monkeypatch.setattr(console, "has_colour", lambda _: True)
    text = console.table(["A", "B"], [[console.styled("x", "red"), "1"], ["long", "2"]])
    assert text == "\x1b[1mA     B\x1b[0m\n\x1b[31mx\x1b[0m     1\nlong  2"


def test_names_and_values_are_aligned():
    assert console.fields([("a", "1"), ("long", "2"), ("x", "")]) == "a     1\nlong  2\nx"


def test_a_tree_of_commands_can_be_pasted():
    text = console.tree("next:", [("report", "launch report x"), ("logs", "launch logs x")])
    assert text == "next:\n├── report  launch report x\n└── logs    launch logs x"


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(monkeypatch, variables, is_coloured):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    expected = "\x1b[31;1mx\x1b[0m" if is_coloured else "x"
    assert console.styled("x", "red", "bold", stream=Terminal()) == expected
    assert console.styled("x", "red", stream=io.StringIO()) == "x"


def test_a_terminal_is_shown_what_it_would_obey_but_colours(monkeypatch):
    words = "\x1b[31mred\x1b[0m\tand \x1b]0;mine\x07\x1b[2J\x9b2J\x00\r"
    seen, piped = Terminal(), io.StringIO()
    for stream in (seen, piped):
        monkeypatch.setattr(sys, "stdout", stream)
        console.out(words)
    assert piped.getvalue() == f"{words}\n"
    assert seen.getvalue() == (
        "\x1b[31mred\x1b[0m\tand \\x1b]0;mine\\x07\\x1b[2J\\x9b2J\\x00\\x0d\n"
    )


def test_an_error_is_a_message_and_a_hint_on_stderr(capsys):
    console.report_error(LaunchError("it is wrong", hint="put it right"))
    assert capsys.readouterr() == ("", "error: it is wrong\n\nhint: put it right\n")


def test_nobody_is_asked_where_nobody_is(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(LaunchError) as caught:
        console.confirm("Start it?")
    assert caught.value.hint == "add --yes to answer every question with yes"


@pytest.mark.parametrize(("answer", "is_yes"), [("y\n", True), ("YES\n", True), ("\n", False)])
def test_only_a_yes_is_a_yes(monkeypatch, capsys, answer, is_yes):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert console.confirm("Start it?") is is_yes
    assert capsys.readouterr() == ("", "Start it? [y/N] ")


def test_a_reader_that_left_ends_the_program_quietly():
    program = "from jobs.host import console\nfor n in range(100_000): console.out('x' * 80)"
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        os.read(reading, 10)
        os.close(reading)
        assert (process.communicate()[1], process.returncode) == (b"", 141)


def test_what_the_terminal_cannot_show_does_not_end_the_program():
    program = "from jobs.host import console; console.out('é ├── x')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"? ??? x\n", b"")


def test_a_full_disk_behind_stdout_is_one_clear_error():
    program = (
        "from jobs.contracts.errors import LaunchError; from jobs.host import console\n"
        "try: console.out('x')\n"
        "except LaunchError as error: console.report_error(error)"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr.decode()) == (
        0,
        "error: <stdout> cannot be written: No space left on device\n\n"
        "hint: check its destination; is the disk full?\n",
    )


WIDE = [["20261121-120000", "resnet50-pytorch", "failed", "1", "no space left on device"]]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            80,
            "RUN              NAME              STATE   N  REASON\n"
            "20261121-120000  resnet50-pytorch  failed  1  no space left on device",
        ),
        (
            60,
            "RUN              NAME             STATE   N  REASON\n"
            "20261121-120000  resnet...ytorch  failed  1  no space lef...",
        ),
        (
            44,
            "RUN              NAME          REASON\n20261121-120000  resne...orch  no space l...",
        ),
        (20, "RUN              NAME        REASON\n20261121-120000  resn...rch  no spac..."),
    ],
)
def test_a_table_fits_the_terminal(monkeypatch, columns, text):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    header = ["RUN", "NAME", "STATE", "N", "REASON"]
    found = console.table(header, WIDE, right=(3,), gives_way=(3, 2))
    assert found == text
    assert columns == 20 or max(map(len, found.splitlines())) <= columns


def test_a_file_gets_every_column_whole(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "10")
    text = console.table(["A", "B"], [["a" * 30, "b" * 30]], gives_way=(1,))
    assert text == f"A{' ' * 31}B\n{'a' * 30}  {'b' * 30}"


def test_a_narrow_table_leaves_out_empty_columns_first(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.table(["A", "EMPTY", "B"], [["aaaa", "", "bbbbb"]]) == "A     B\naaaa  bbbbb"
