"""What others wrote: decoded, converted and read without a surprise."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.host import untrusted
from jobs.host.untrusted import (
    TooLong,
    is_file_name,
    parse,
    parse_json,
    parse_rows,
    read_bounded,
)
from jobs.runs.failure import RankReport, root_cause, summary_line
from tests.fakes.blob_store import MemoryStore

DEEP = b"[" * 200_000
HOSTILE = [
    DEEP,
    b'{"rank": 1, "x": ' + DEEP,
    b'{"rank": 1, "host": "\xff\xfe"}',
    b'{"rank": ' + b"9" * 5000 + b"}",
    b'{"rank": 1, "ended_s": 1e999}',
    b'{"rank": "1"}',
    b"[]",
    b"",
]


class Row(Struct, frozen=True):
    name: str
    count: int = 0


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_record_is_one_kind_of_error(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_json(content, RankReport)


TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        " ",
        "\n",
        "Traceback (most recent call last):\n",
        "Fatal Python error: x",
        "error: \n",
        "preempted: ",
    ]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
REPORTS = st.fixed_dictionaries(
    {"rank": NUMBERS},
    optional={
        "exit_code": st.none() | NUMBERS,
        "signal": st.none() | NUMBERS | st.integers(-1, 70),
        "ended_s": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "stopped_s": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "stage": st.sampled_from([None, "setup", "command"]),
        "setup": st.none() | TEXTS,
        "traceback": st.none() | TEXTS,
        "traceback_s": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "last_lines": TEXTS,
        "host": TEXTS,
        "out_of_memory": st.booleans(),
    },
)


@given(st.lists(REPORTS, max_size=4))
def test_records_of_any_content_come_to_one_line(records: list[dict[str, Any]]) -> None:
    reports: list[RankReport] = []
    for each in records:
        with suppress(msgspec.DecodeError):
            reports.append(parse_json(msgspec.json.encode(each), RankReport))
    error = root_cause(reports, stopped_s=None)
    assert error is None or len(summary_line(error).splitlines()) == 1


def test_null_is_as_good_as_left_out() -> None:
    assert parse({"name": "a", "count": None}, Row, what="listing") == Row("a", 0)


@pytest.mark.parametrize("answer", [None, [], {}, {"name": None}, {"name": "a", "count": "b"}])
def test_an_answer_that_cannot_be_read_says_what_was_tried(answer: Any) -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"^listing rows: this version cannot read Azure's answer"
    ):
        parse(answer, Row, what="listing rows")


def test_odd_rows_are_left_out() -> None:
    rows = [None, {"name": "a"}, {"name": 1}, "x", {"name": "b", "count": None}, {}]
    assert parse_rows(rows, Row) == [Row("a"), Row("b")]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 100])
def test_no_more_is_read_than_a_blob_may_have(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "_BLOCK", 4)
    store = MemoryStore()
    store.blobs["a"] = bytes(size)
    if size > 10:
        with pytest.raises(TooLong, match="`a` in the store is longer than 10 B,"):
            read_bounded(store, "a", 10)
        assert store.requests[-1] == "range a 8 11"
    elif size:
        assert read_bounded(store, "a", 10) == bytes(size)
    assert read_bounded(store, "b", 10) is None


@pytest.mark.parametrize(
    ("name", "is_inside"),
    [("a/b.txt", True), ("a/..b", True), ("\ud800", True), ("x" * 255, True)]
    + [(name, False) for name in ("..", "a/../b", ".", "/a", "a//b", "", "a\\b", "x" * 256)],
)
def test_a_name_leads_to_a_file_inside_its_folder(name: str, is_inside: bool) -> None:
    assert is_file_name(name, is_windows=False) is is_inside
