"""What pages show of stacks: those that are up, slow, away or in the cloud, and their clusters."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from unittest.mock import patch

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.ui import reading
from jobs.ui.reading import Late, Reading, Told, _Asked, alike
from tests.busy import HANG_S, wait_until
from tests.fakes.asked_pages import CLUSTER, Stacks, asked, pages_of, rows_of, run, text_of


def test_stacks_of_which_nobody_knows_whether_they_are_up_are_shown():
    stacks = Stacks(
        {"local": True, "old": False, "dev": None, "prod": None},
        local={"ls": [run("here")]},
        old={"ls": [run("gone")]},
        dev={"ls": [run("azure")]},
        prod={"ls": EnvironmentFailure("no network", hint="plug it in")},
    )
    assert stacks.places() == ["local", "dev", "prod"]
    assert Stacks({"dev": None, "local": True}).places() == ["local", "dev"]
    answer = pages_of(stacks).runs(asked())
    assert [row[2] for row in rows_of(answer)[1:]] == ["here", "azure"]
    assert "no network" in text_of(answer)
    assert "plug it in" in text_of(answer)
    assert {each[0] for each in stacks.heard} == {"local", "dev", "prod"}


@pytest.mark.parametrize("page", ["runs", "datasets", "clusters", "doctor"])
def test_an_error_of_one_stack_is_in_its_place_and_hides_no_other(page):
    broken = dict.fromkeys(("ls", "data", "model", "env", "doctor"), LaunchError("it is away"))
    good = {
        "ls": [run("here")],
        "data": [
            {"name": "digits", "version": 1, "digest": "ab", "files": 3, "bytes": 5, "created": "x"}
        ],
        "env": {"subscription_id": None, "clusters": {"cpu": CLUSTER}},
        "doctor": [{"part": "python", "health": "ok", "found": "3.13", "mend": None}],
    }
    stacks = Stacks({"dev": None, "local": True}, dev=broken, local=good)
    answer = getattr(pages_of(stacks), page)(asked())
    assert text_of(answer).count("it is away") == 1
    assert "<strong>dev</strong>" in text_of(answer)
    told = {cell for row in rows_of(answer) for cell in row}
    assert told & {"here", "digits", "cpu", "python"}


def test_clusters_of_this_machine_say_who_has_their_nodes():
    on = [
        run("a", state="running", nodes=2),
        run("b", state="queued"),
        run("c", state="running", cluster="other"),
    ]
    told = {"env": {"subscription_id": None, "clusters": {"cpu": CLUSTER}}, "ls": on}
    answer = pages_of(Stacks({"local": True}, local=told)).clusters(asked())
    assert [list(each) for each in zip(*rows_of(answer), strict=True)] == [
        ["Cluster", "cpu"],
        ["Size", "local"],
        ["Nodes", "3"],
        ["Running", "2"],
        ["Waiting", "1"],
        ["Idle", "1"],
        ["CPUs", "4"],
        ["GPUs", "0"],
        ["Ranks", "2"],
        ["Costs now", "5.00 USD/h"],
    ]


def test_clusters_of_azure_say_what_their_nodes_do_and_cost_and_can_be_changed():
    live = {
        "name": "gpu",
        "size": "NC64",
        "priority": "low_priority",
        "state": "steady",
        "min_nodes": 1,
        "max_nodes": 4,
        "nodes": 3,
        "idle_s": 120,
        "errors": ["no <quota>"],
        "counts": {
            "idle": 2,
            "running": 1,
            "preparing": 0,
            "leaving": 0,
            "unusable": 0,
            "preempted": 0,
        },
        "price_per_node_hour": 2.5,
        "currency": "USD",
    }
    told = {"env": {"subscription_id": "s", "clusters": {}}, "cluster": [live]}
    answer = pages_of(Stacks({"dev": None}, dev=told)).clusters(asked())
    head, row = rows_of(answer)
    assert dict(zip(head, row, strict=True)) == {
        "Cluster": "gpu",
        "Size": "NC64",
        "Priority": "low priority",
        "State": "steady",
        "Nodes": "3 of 1-4",
        "Idle": "2",
        "Running": "1",
        "Preparing": "0",
        "Leaving": "0",
        "Unusable": "0",
        "Preempted": "0",
        "Costs now": "7.50 USD/h",
        "Idle costs": "5.00 USD/h",
        "Idle after": "2 min",
    }
    page = text_of(answer)
    assert "no &lt;quota&gt;" in page
    assert [each for each in ("Pause", "Keep warm", "Resize") if f"<button>{each}<" in page] == [
        *("Pause", "Keep warm", "Resize")
    ]


def answered(late, works, number):
    """Ask until the question of this number has its answer; gives what all said then."""
    told = []

    def ask():
        told[:] = late.ask(works)
        return not told[number].error

    wait_until(ask, what=lambda: told[number].error)
    return told


def test_a_stack_that_is_slow_is_told_and_its_late_answer_is_on_the_next_page():
    is_there, num_asked = threading.Event(), []

    def slow():
        num_asked.append(1)
        is_there.wait(HANG_S)
        return Told(place="dev", value=["late"])

    late = Late(patience_s=0.05)
    works = {("local", "ls"): lambda: Told(place="local", value=["here"]), ("dev", "ls"): slow}
    # A busy machine may not have run its thread at the first look.
    first = answered(late, works, 0)
    assert first[0].value == ["here"]
    assert first[1].error.message == "`dev` has not answered yet"
    is_there.set()
    answered(late, works, 1)
    assert len(num_asked) <= 2
    assert late._asked == {}


def test_a_stack_that_does_not_answer_keeps_few_threads(monkeypatch):
    monkeypatch.setattr(reading, "MOST_WAITING", 2)
    is_there, num_asked = threading.Event(), []

    def hang():
        num_asked.append(1)
        is_there.wait(HANG_S)
        return Told(place="dev", value="late")

    late = Late(patience_s=0.01, patience_of_one_s=0.01)
    here = {("local", "ls"): lambda: Told(place="local", value="here")}
    for others in (here, {}):
        for number in range(4):
            works = {("dev", "ls", str(number)): hang} | others
            # A busy machine may not have run its thread at the first look.
            told = answered(late, works, 1) if others else late.ask(works)
            assert told[0].error.message == (
                "`dev` has not answered yet"
                if number < 2
                else "2 questions wait for `dev`; this one was not asked"
            )
            assert [each.value for each in told[1:]] == ["here"] * len(others)
    assert len(num_asked) == 2
    is_there.set()
    assert answered(late, {("dev", "ls", "4"): hang}, 0)[0].value == "late"


def test_an_answer_that_two_pages_waited_for_takes_no_later_question_with_it():
    is_there = threading.Event()
    late = Late(patience_of_one_s=0.01)
    slow = {("dev", "ls"): lambda: is_there.wait(HANG_S) and Told(place="dev", value="first")}
    assert late.ask(slow)[0].error
    first = late._asked["dev", "ls"]
    is_there.set()
    first.answer.result(HANG_S)
    again = _Asked()  # by a third page, once the second had taken the answer

    def wait_and_ask_again(answers, _):
        late._asked["dev", "ls"] = again
        return wait(answers)

    with patch.object(reading, "wait", wait_and_ask_again):
        assert late.ask(slow)[0].value == "first"
    assert late._asked == {("dev", "ls"): again}


def test_a_late_answer_that_grew_old_is_asked_for_again(monkeypatch):
    is_there = threading.Event()
    late = Late(patience_of_one_s=0.01)
    slow = {("dev", "ls"): lambda: is_there.wait(HANG_S) and Told(place="dev", value="old")}
    assert late.ask(slow)[0].error
    is_there.set()
    assert late._asked["dev", "ls"].answer.result(HANG_S).value == "old"
    monkeypatch.setattr(reading, "KEPT_S", -1.0)
    late._patience_of_one_s = 30
    assert late.ask({("dev", "ls"): lambda: Told(place="dev", value="new")})[0].value == "new"


def test_a_stack_that_cannot_be_read_is_asked_again_after_a_while_only(monkeypatch):
    away = EnvironmentFailure("not logged in")
    stacks = Stacks({"local": True, "dev": None}, dev={"env": away}, local={"env": away})
    for _ in range(3):
        assert [each.error for each in stacks.ask_each("ls")] == [None, away]
    assert [each for each in stacks.heard if each[0] == "dev"] == [["dev", "env", "show"]]
    monkeypatch.setattr(reading, "KEPT_S", 0.0)
    stacks.answers["dev"] = {"ls": ["there"]}
    assert [each.value for each in stacks.ask_each("ls")] == [[], ["there"]]


def test_an_error_of_several_stacks_is_said_once():
    told = [
        Told(place=place, error=LaunchError(f"`{place}` is away", hint="log in"))
        for place in ("dev", "prod")
    ]
    told += [Told(place="local", value=[]), Told(place="test", error=LaunchError("test broke"))]
    assert [(each.place, each.error.message, each.error.hint) for each in alike(told)] == [
        ("dev, prod", "`STACK` is away", "log in"),
        ("test", "test broke", None),
    ]


def test_a_request_lists_the_stacks_once(monkeypatch):
    num_asked = []
    monkeypatch.setattr(
        "jobs.ui.reading.call",
        lambda words: num_asked.append(words) or [{"stack": "a", "up": True}],
    )
    once = Reading(None).once()
    assert (once.places(), once.words_for("a"), once.words_for("a")) == (
        *(["a"], ["--stack=a"], ["--stack=a"]),
    )
    assert num_asked == [["env", "ls", "--json"]]
