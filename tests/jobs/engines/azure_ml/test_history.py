"""What Azure ML's answers say of runs, also of jobs that others have made in the workspace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.engines.azure_ml.history import attempt_of, listed_runs, our_time, status_of
from jobs.engines.azure_ml.states import judge, why_it_waits
from tests.fakes.azure_runs import RUN

ODD_NAMES = [
    "99999999-999999-zzzz",
    "20260230-120000-0001",
    "20261121-120000-zzzz",
    "\u0662\u0660\u0662\u0666\u0661\u0661\u0662\u0661-120000-0001",
    f"{RUN}_0",
    f"{RUN}_1",
    f"{RUN}_01",
    f"{RUN}_{'9' * 900}",
    f"{RUN}\n",
]
KEYS = ["name", "properties", "status", "displayName", "resources", "instanceCount", "tags"]
KEYS += ["trainyard.stack", "trainyard.cluster", "trainyard.processes_per_node"]
KEYS += ["error", "code", "message", "details", "innerError", "warnings", "errors"]
KEYS += ["startTimeUtc", "endTimeUtc", "nodeStateCounts", "scaleSettings", "maxNodeCount"]
TEXTS = [
    RUN,
    *ODD_NAMES,
    "Failed",
    "Canceled",
    "Running",
    "3",
    "",
    "\u0663",
    "9" * 5000,
    "2026-11-21",
]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TEXTS) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=25,
)


def job(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "properties": {"status": "Running", **properties}}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_is_no_time_or_attempt_is_no_run_of_ours(name: str) -> None:
    found = list(listed_runs([job(name), job(RUN)]))
    assert [(each.run, each.attempt) for each in found] == [(RUN, 1)]


def test_a_run_is_listed_once_by_its_newest_attempt_and_others_jobs_are_not() -> None:
    other = f"{RUN[:-1]}2"
    rows = [job(f"{RUN}_2"), job(other, tags={"by": "hand"}), job(RUN, tags={"trainyard": "1"})]
    assert [(each.run, each.attempt) for each in listed_runs(rows)] == [(RUN, 2)]


@pytest.mark.parametrize(
    "row",
    [
        {},
        [],
        None,
        {"name": RUN},
        {"name": RUN, "properties": None},
        job(RUN, resources="many", properties=[]),
        job(RUN, resources={"instanceCount": "two"}, displayName=["a"], status={}),
        job(RUN, resources={"instanceCount": -1}),
        job(RUN, properties={"trainyard.processes_per_node": "many", "trainyard.stack": 7}),
    ],
)
def test_an_odd_row_does_not_end_a_listing(row: Any) -> None:
    other = f"{RUN[:-1]}2"
    found = list(listed_runs([row, job(other)]))
    assert found[-1].run == other
    status = status_of(found[0], "folder")
    assert status.world_size // status.nodes >= 1


NAMED = st.fixed_dictionaries({"name": st.sampled_from([RUN, *ODD_NAMES]), "properties": ODD})


# Rows that are drawn may all be dropped.
@example([None, job(RUN)])
@given(st.lists(ODD | NAMED, max_size=4))
def test_no_row_ends_a_listing(rows: list[Any]) -> None:
    for listed in listed_runs(rows):
        status = status_of(listed, "folder")
        assert status.world_size >= status.nodes >= 1
        assert status.created.startswith("2026-11-21T12:00:00.")


@given(ODD)
def test_no_answer_of_the_history_ends_a_look(answer: Any) -> None:
    details = answer if isinstance(answer, dict) else {"error": answer, "warnings": answer}
    assert attempt_of(1, details).number == 1
    assert judge("Failed", error=details, warnings=()).cause is not None
    why_it_waits("cpu", details, is_building=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00.000000Z"),
        ("2026-11-21T13:00:00.1234567+01:00", "2026-11-21T12:00:00.123456Z"),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_a_time_that_is_none_is_left_out(text: Any, expected: str | None) -> None:
    assert our_time(text) == expected
