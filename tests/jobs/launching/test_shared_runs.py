"""Runs before are shared through the store: those of a job, and those of its nodes; nobody waits for it."""

from __future__ import annotations

import json
from threading import Event

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.launching import shared_runs
from jobs.launching.shared_runs import add_soon, exchange, share
from jobs.runs.past import PastRun, add_past_runs, read_past_runs
from tests.busy import HANG_S, wait_until
from tests.fakes.blob_store import MemoryStore

RUN = "20261123-120000-{:04d}"
SIZE = "Standard_NC24s_v3"
KEY, OTHER = "a" * 16, "b" * 16


def past(number=1, **given):
    return PastRun(**{"run": RUN.format(number), "key": KEY, "size": SIZE, "rate": 9.0} | given)


def names(*numbers):
    by_job = [f"past-runs/{KEY}/{RUN.format(number)}.json" for number in numbers]
    return {
        *by_job,
        *(f"past-sizes/{SIZE.lower()}/{RUN.format(number)}.json" for number in numbers),
    }


@pytest.fixture
def folders(tmp_path):
    found = [tmp_path / name for name in ("here", "there")]
    for each in found:
        each.mkdir()
    return found


@pytest.mark.parametrize("is_patient", [True, False])
def test_runs_of_a_job_are_shared_through_the_store(folders, is_patient):
    here, there = folders
    store = MemoryStore()
    elsewhere = past(2, key=OTHER, size="Standard_X")
    add_past_runs(here, [past(1), elsewhere, PastRun(run=RUN.format(3))])
    assert len(exchange(store, here, KEY, SIZE, is_patient=is_patient)) == 3
    assert store.blobs.keys() == names(1)
    found = exchange(store, there, KEY, SIZE, is_patient=is_patient)
    assert found == read_past_runs(there) == [past(1)]
    requests = len(store.requests)
    exchange(store, there, KEY, SIZE, is_patient=is_patient)
    assert len(store.requests) == requests + 2  # the listings alone


def test_checks_and_other_jobs_on_such_nodes_are_shared(folders):
    here, there = folders
    store = MemoryStore()
    check = past(2, key=OTHER, rate=None, bus_gb_per_s=3.0, nodes=2)
    other = past(3, key=OTHER, size=SIZE.upper())
    silent = past(5, rate=None)
    for each in (check, other, silent, past(4, key=OTHER, size="Standard_X")):
        share(store, each)
    assert exchange(store, there, KEY, SIZE) == [other, check]
    add_past_runs(here, [check])
    assert exchange(MemoryStore(), here, KEY, SIZE) == [check]


def test_what_is_shared_already_stays_as_it_is():
    store = MemoryStore()
    share(store, past())
    share(store, past(rate=1.0))
    assert {msgspec.json.decode(each)["rate"] for each in store.blobs.values()} == {9.0}


def test_the_newest_of_many_shared_runs_are_brought(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_runs, "MOST_SHARED", 3)
    monkeypatch.setattr(shared_runs, "MOST_OF_SIZE", 2)
    store = MemoryStore()
    for number in range(9):
        share(store, past(number, key=KEY if number % 2 else OTHER))
    brought = [past(7), past(5), past(3), past(8, key=OTHER)]
    expected = sorted(brought, key=lambda each: each.run, reverse=True)
    assert exchange(store, tmp_path, KEY, SIZE) == expected


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 99_999, b"x" * 10**6, b'{"run": "../x"}'])
def test_what_is_no_run_in_the_store_is_passed_over(tmp_path, content):
    store = MemoryStore()
    for name in names(7):
        store.blobs[name] = content
    for name in names(9):  # another run under its name
        store.blobs[name] = msgspec.json.encode(past(8))
    store.blobs[f"past-runs/{KEY}/../../{RUN.format(8)}.json"] = b'{"run": "%s"}' % RUN.encode()
    assert exchange(store, tmp_path, KEY, SIZE) == []


# --- A plan that does not wait -----------------------------------------------------------------


def test_a_plan_has_what_comes_soon(tmp_path):
    asked = []

    def ask():
        asked.append(1)
        add_past_runs(tmp_path, [past()])

    assert add_soon(tmp_path, KEY, SIZE, ask) == [past()]
    # Asked a moment ago; another job was not.
    assert add_soon(tmp_path, KEY, SIZE, ask) == [past()]
    assert len(asked) == 1
    add_soon(tmp_path, OTHER, SIZE, ask)
    assert len(asked) == 2


def test_a_store_that_gives_no_answer_holds_no_plan_up(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_runs, "SOON_S", 0.01)
    add_past_runs(tmp_path, [past()])
    given_up, asked = Event(), []

    def ask():
        asked.append(1)
        given_up.wait(HANG_S)

    try:
        assert add_soon(tmp_path, KEY, SIZE, ask) == [past()]
        wait_until(lambda: asked)
        assert add_soon(tmp_path, KEY, SIZE, ask) == [past()]
        assert len(asked) == 1
    finally:
        given_up.set()


def test_a_store_that_refuses_is_left_alone(tmp_path):
    def ask():
        raise EnvironmentFailure("no such container")

    assert add_soon(tmp_path, KEY, SIZE, ask) == []


@pytest.mark.parametrize(
    "content", ["{", '{"x": "y"}', json.dumps({f"{KEY} {SIZE.lower()}": 9e99})]
)
def test_a_damaged_note_of_what_was_asked_means_that_it_is_asked(tmp_path, content):
    (tmp_path / "past-runs-asked.json").write_text(content)
    asked = []
    add_soon(tmp_path, KEY, SIZE, lambda: asked.append(1))
    assert asked == [1]
