"""What pages may do, in which words, and nothing else."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from jobs.contracts.errors import LaunchError, Refused
from jobs.ui import actions
from jobs.ui.reading import Reading
from jobs.ui.words_shown import figures, left, money, share, text

WHERE = ["--stack=local"]


class OneStack(Reading):
    def __init__(self):
        super().__init__(None)

    def stacks(self):
        return [{"stack": "local", "up": True}]


def run(state, newest=None):
    return {"id": "r1", "state": state, "checkpoints": {"newest": newest}}


def labels(state, newest=None):
    return [each.label for each in actions.of_run(run(state, newest), WHERE)]


def test_what_can_be_done_with_a_run_depends_on_its_state():
    assert labels("running") == ["Cancel", "Fetch"]
    assert labels("completed", {"step": 5}) == ["Run again", "Fetch", "Keep"]
    assert labels("failed") == ["Run again", "Fetch", "Keep"]
    assert labels("failed", {"step": 5}) == ["Resume", "Run again", "Fetch", "Keep"]
    resume = actions.of_run(run("failed", {"step": 5}), WHERE)[0]
    assert resume.words == ["rerun", "--resume", *WHERE, "r1"]


def test_a_form_becomes_the_words_that_a_person_types():
    asked = QueryParams(
        [("job", " digits "), ("place", "local"), ("nodes", "2"), ("set", "args.epochs=1\n\n a=b ")]
    )
    assert actions.words_of(asked, OneStack()) == [
        *("run", "--nodes=2", "--set=args.epochs=1", "--set=a=b", *WHERE, "--", "digits"),
    ]
    resize = QueryParams([("word", "cluster"), ("word", "resize"), ("word", "gpu"), ("nodes", "3")])
    assert actions.words_of(resize, OneStack()) == ["cluster", "resize", "gpu", "3"]


@pytest.mark.parametrize(
    "words", [["rm", "x"], ["shell"], ["cluster"], ["data", "rm"], ["env", "repair"], []]
)
def test_no_page_does_what_no_page_offers(words):
    with pytest.raises(Refused, match="no page does"):
        actions.do(words, OneStack())


def test_words_have_to_name_an_environment_that_is_shown(monkeypatch):
    monkeypatch.setattr(actions, "call", lambda words: pytest.fail(f"{words} were obeyed"))
    with pytest.raises(LaunchError, match="name no environment"):
        actions.do(["cancel", "last"], OneStack())
    with pytest.raises(LaunchError, match="there is no stack `prod` here"):
        actions.do(["cancel", "--stack=prod", "last"], OneStack())


def test_what_was_asked_is_not_asked_again_and_starts_do_not_wait(monkeypatch):
    asked = []
    monkeypatch.setattr(actions, "call", asked.append)
    actions.do(["run", *WHERE, "--", "digits"], OneStack())
    actions.do(["cluster", "resume", *WHERE, "gpu"], OneStack())
    actions.do(["cancel", *WHERE, "last"], OneStack())
    assert asked == [
        ["run", "--yes", "--json", "--detach", *WHERE, "--", "digits"],
        ["cluster", "resume", "--yes", *WHERE, "gpu"],
        ["cancel", *WHERE, "last"],
    ]


def test_values_are_worded():
    assert (share(None), share({"share": None}), share({"share": 0.256})) == ("", "", "26%")
    assert (left(None), left({"left_s": None}), left({"left_s": 61})) == ("", "", "1 min 1 s")
    assert money(None) == ""
    assert money({"amount": 1234.5, "currency": "USD"}) == "1,234.50 USD"
    assert text("a\x1b[2Jb") == "a\\x1b[2Jb"
    named = [{"name": name} for name in ("loss", "host_s", "top1", "a", "b", "c", "d", "e")]
    assert [each["name"] for each in figures(named)] == ["loss", "top1", "a", "b", "c", "d"]
