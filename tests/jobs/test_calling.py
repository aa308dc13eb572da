"""A verb's value, its text, or the error it ended with, as a program gets them."""

from __future__ import annotations

import json

import pytest

from jobs import calling, cli
from jobs.contracts.errors import ExitCode, LaunchError
from jobs.host import console


def ending(monkeypatch, code, *lines):
    """Have every verb print these lines and end with this code."""

    def verb(_words):
        for line in lines:
            console.out(line)
        return code

    monkeypatch.setattr(cli, "call", verb)


@pytest.mark.parametrize("words", [["wait", "--json"], ["logs", "-f"], ["logs", "-f", "--json"]])
def test_an_interruption_that_left_nothing_goes_on_to_who_called(monkeypatch, words):
    ending(monkeypatch, ExitCode.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        calling.call(words)


def test_lines_before_an_interruption_are_given(monkeypatch):
    ending(monkeypatch, ExitCode.INTERRUPTED, json.dumps({"rank": 0}))
    assert calling.call(["logs", "-f", "--json"]) == [{"rank": 0}]


def test_a_code_that_says_no_more_is_an_error(monkeypatch):
    ending(monkeypatch, ExitCode.CANCELLED)
    with pytest.raises(LaunchError, match=r"^`wait` ended with 103$") as raised:
        calling.call(["wait", "--json"])
    assert raised.value.exit_code is ExitCode.CANCELLED


def test_a_json_of_the_users_own_command_is_not_ours(monkeypatch):
    ending(monkeypatch, ExitCode.SUCCEEDED, "PID 7", "[]")
    assert calling.call(["exec", "last", "--", "py-spy", "dump", "--json"]) == "PID 7\n[]"
