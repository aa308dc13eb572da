"""What pages may do, in which words, and nothing else."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from jobs.contracts.errors import NotFound, Refused
from jobs.ui import actions
from jobs.ui.actions import Action
from jobs.ui.reading import Reading
from jobs.ui.words_shown import figures, left, money, share, text, took

WHERE = ["--stack=local"]


class OneStack(Reading):
    def __init__(self):
        super().__init__(None)

    def stacks(self):
        return [{"stack": "local", "up": True}]


def run(state, newest=None):
    return {"id": "r1", "state": state, "checkpoints": {"newest": newest}}


def labels(state, newest=None):
    return [each.label for each in actions.of_run(run(state, newest), "local")]


def line(*words, place="local"):
    return actions.line_of(Action(place=place, words=words), OneStack())


def test_what_can_be_done_with_a_run_depends_on_its_state():
    assert labels("running") == ["Cancel", "Fetch"]
    assert labels("completed", {"step": 5}) == ["Run again", "Fetch", "Keep"]
    assert labels("failed") == ["Run again", "Fetch", "Keep"]
    assert labels("failed", {"step": 5}) == ["Resume", "Run again", "Fetch", "Keep"]
    resume = actions.of_run(run("failed", {"step": 5}), "local")[0]
    assert resume == Action(label="Resume", place="local", words=["rerun", "--resume", "r1"])


def test_a_form_becomes_the_words_that_a_person_types():
    asked = QueryParams(
        [
            ("job", " digits "),
            ("place", "local"),
            ("nodes", "2"),
            ("set", "args.epochs=1\r\n\r\n a=b "),
        ]
    )
    started = actions.asked_of(asked)
    assert started.words == ["run", "--nodes=2", "--set=args.epochs=1", "--set=a=b", "digits"]
    assert actions.line_of(started, OneStack()).words() == [
        *("run", "--nodes=2", "--set=args.epochs=1", "--set=a=b", *WHERE, "digits"),
    ]
    resize = QueryParams([("word", "cluster"), ("word", "resize"), ("word", "gpu"), ("nodes", "3")])
    assert actions.asked_of(resize).words == ["cluster", "resize", "gpu", "3"]
    again = QueryParams([("word", "rerun"), ("word", "r1"), ("set", "a=b"), ("place", "local")])
    assert actions.asked_of(again) == Action(place="local", words=["rerun", "--set=a=b", "r1"])
    cancelled = QueryParams([("word", "cancel"), ("word", "r1"), ("set", "a=b")])
    assert actions.asked_of(cancelled) == Action(place="", words=["cancel", "r1"])


def test_what_is_started_is_taken_apart_for_the_form_that_changes_it():
    words = ["rerun", "--set=a=1", "--resume", "--nodes=2", "--set=b=2", "r1"]
    rest = Action(place="local", words=["rerun", "--resume", "r1"])
    given = {"set": "a=1\nb=2", "nodes": "2"}
    assert actions.changes_of(Action(place="local", words=words)) == (rest, given)
    assert actions.changes_of(Action(place="local", words=["cancel", "r1"])) is None


@pytest.mark.parametrize(
    "words", [["rm", "x"], ["shell"], ["cluster"], ["data", "rm"], ["env", "repair"], []]
)
def test_no_page_does_what_no_page_offers(words):
    with pytest.raises(Refused, match="no page does"):
        line(*words)


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        *((verb, "--stack=prod") for verb in actions.VERBS),
        *((verb, "-sprod") for verb in actions.VERBS),
        *((verb, "-s") for verb in actions.VERBS),
        *((verb, "--env=/etc/other.json") for verb in actions.VERBS),
        ("fetch", "--into=/etc"),
        ("run", "--"),
        ("run", "--resume"),
        ("rerun", "--resume=x"),
        ("rerun", "--env"),
        ("cancel", "--set=a=b"),
        ("run", "--setting=a"),
        ("run", "--no-fetch"),
    ],
)
def test_words_that_name_an_environment_or_a_folder_are_refused(verb, option):
    with pytest.raises(Refused, match=f"no page does `launch {verb} {option}`"):
        line(*verb.split(), "x", option, "prod")


@pytest.mark.parametrize("runs", [["last"], ["../20261121-120000-abcd"], ["2026"], [], ["a", "b"]])
def test_a_folder_is_named_by_an_id_alone(runs):
    with pytest.raises(Refused, match=f"`{' '.join(runs)}` is no id of a run"):
        line("fetch", *runs)


def test_the_environment_is_one_that_is_shown():
    with pytest.raises(NotFound, match="there is no stack `prod` here"):
        line("cancel", "last", place="prod")
    with pytest.raises(NotFound, match="there is no stack `` here"):
        line("cancel", "last", place="")
    assert line("cluster", "pause", "gpu").words() == ["cluster", "pause", *WHERE, "gpu"]


def test_what_was_asked_is_not_asked_again_and_starts_do_not_wait(monkeypatch):
    asked = []
    monkeypatch.setattr(actions, "call", asked.append)
    actions.do(line("run", "--nodes=2", "digits"))
    actions.do(line("rerun", "r1"))
    actions.do(line("cluster", "resume", "gpu"))
    actions.do(line("cancel", "last"))
    assert asked == [
        ["run", "--yes", "--json", "--detach", "--nodes=2", *WHERE, "digits"],
        ["rerun", "--yes", "--json", "--detach", *WHERE, "r1"],
        ["cluster", "resume", "--yes", *WHERE, "gpu"],
        ["cancel", *WHERE, "last"],
    ]


def test_what_is_started_is_planned_first(monkeypatch):
    monkeypatch.setattr(actions, "call", list)
    assert actions.plan_of(line("run", "digits")) == ["plan", "--json", *WHERE, "digits"]
    assert actions.plan_of(line("cancel", "r1")) is None


def test_values_are_worded():
    untold = {"done": 12, "total": None, "unit": "step", "samples_per_s": None, "updated_s": 1.0}
    untold |= {"share": None, "left_s": None}
    nearly = untold | {"share": 0.996, "left_s": 61}
    assert (share(None), share(untold), share(nearly)) == ("", "12 steps", "99 %")
    assert (left(None), left(untold), left(nearly)) == ("", "", "1 min 1 s")
    assert money(None) == ""
    assert money({"amount": 1234.5, "currency": "USD"}) == "1234.50 USD"
    assert money({"amount": 0.004, "currency": "USD"}) == "0.004 USD"
    lost = {"started": "2026-11-01T00:00:00Z", "ended": None, "state": "lost"}
    assert took(lost) == ""
    assert took(lost | {"ended": "2026-11-01T00:01:01Z", "state": "failed"}) == "1 min 1 s"
    assert text("a\x1b[2Jb") == "a\\x1b[2Jb"
    named = [{"name": name} for name in ("loss", "host_s", "top1", "a", "b", "c", "d", "e")]
    assert [each["name"] for each in figures(named)] == ["loss", "top1", "a", "b", "c", "d"]
