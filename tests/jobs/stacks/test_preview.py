"""A preview is handed on as Pulumi prints it, or its failure is told.

Pulumi is a shell script here that plays its part; the real one is in tests/integration.
"""

from __future__ import annotations

import json

from jobs.contracts.errors import EnvironmentFailure
from jobs.stacks.preview import preview
from tests.fakes.pulumi_stack import error_of


def test_a_preview_is_handed_on_whether_it_failed_or_not(project):
    for code in (0, 1):
        project.say({"steps": []}, stderr="warning: x\n", code=code)
        assert json.loads(preview("local")) == {"steps": []}
    assert project.calls()[0] == "preview --json --show-sames -s local --non-interactive"


def test_a_preview_of_no_stack_says_what_to_type(project):
    project.say("", stderr="error: no stack named 'x' found\n", code=6)
    error = error_of(lambda: preview("local"))
    assert (error.message, error.exit_code) == ("stack `local` is not up", 2)
    error = error_of(lambda: preview("loca"))
    assert error.message.startswith("there is no stack `loca`")
    assert error.hint == "did you mean `local`?"
    project.say("", stderr="error: incorrect passphrase\n", code=255)
    error = error_of(lambda: preview("local"), EnvironmentFailure)
    assert error.message == "`pulumi preview -s local` failed: incorrect passphrase"
