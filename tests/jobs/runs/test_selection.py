"""Runs of a list: chosen by name, experiment, tags, state and age; ids cut where that is unique."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobs.commands.selection_options import read_selection
from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunState
from jobs.runs.selection import Selection, shortened_ids
from tests.jobs.runs.test_outcome import status

GIVEN = replace(
    status("completed"),
    name="resnet50",
    experiment="sweep",
    tags={"team": "vision", "note": ""},
    created="2026-11-21T12:00:00.000001Z",
)


@pytest.mark.parametrize(
    ("selection", "is_taken"),
    [
        (Selection(), True),
        (Selection(name="resnet*"), True),
        (Selection(name="resnet"), False),
        (Selection(experiment="sweep"), True),
        (Selection(experiment="resnet50"), False),
        (Selection(tags=(("team", None),)), True),
        (Selection(tags=(("team", "vision"), ("note", ""))), True),
        (Selection(tags=(("team", "vision"), ("owner", None))), False),
        (Selection(tags=(("team", "audio"),)), False),
        (Selection(states=frozenset({RunState.COMPLETED, RunState.FAILED})), True),
        (Selection(states=frozenset({RunState.FAILED})), False),
        (Selection(since="2026-11-21T12:00:00.000001Z"), True),
        (Selection(since="2026-11-21T12:00:00.000002Z"), False),
    ],
)
def test_a_run_is_taken_that_meets_every_condition(selection, is_taken):
    assert selection.takes(GIVEN) is is_taken


def test_an_id_tells_what_is_too_old():
    selection = Selection(since="2026-11-21T12:00:00.500000Z")
    ids = ["20261121-120001-0000", "20261121-120000-0000", "20261121-115959-zzzz"]
    assert [selection.is_too_old(each) for each in ids] == [False, False, True]
    assert not Selection().is_too_old(ids[2])


def test_options_are_parsed_whole():
    selection = read_selection("a*", "b", ["k", "k=v=w"], ["failed", "lost"], "2026-11-21T00:00Z")
    assert selection == Selection(
        name="a*",
        experiment="b",
        tags=(("k", None), ("k", "v=w")),
        states=frozenset({RunState.FAILED, RunState.LOST}),
        since="2026-11-21T00:00:00.000000Z",
    )
    assert read_selection(None, None, None, None, None).is_empty


@pytest.mark.parametrize(
    ("states", "since", "message"),
    [
        (["done"], None, "`--state done`: no run has this state"),
        (None, "soon", "`soon` is neither a duration nor a time"),
    ],
)
def test_what_is_no_state_and_no_time_is_refused(states, since, message):
    with pytest.raises(LaunchError) as caught:
        read_selection(None, None, None, states, since)
    assert caught.value.message == message


def test_ids_are_cut_where_no_other_run_begins_so():
    ids = ["20261121-120000-0001", "20261121-120001-0001", "20261121-120002-0001"]
    others = ["20261121-120001-0002", *ids]
    assert shortened_ids(ids, others) == {
        ids[0]: "20261121-120000",
        ids[1]: ids[1],
        ids[2]: "20261121-120002",
    }
