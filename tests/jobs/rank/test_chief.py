"""When a chief is over: by the store's clock, and never by what an earlier start has left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import cast

import pytest

from jobs.rank.chief import EARLIER_S, Chief
from jobs.rank.services import Answer, Container

# Nobody's clock here: whoever looks at the node's own is wrong by years.
NOW = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)


class Store:
    """Answers one after the other; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def look(self, _blob: str) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def answer(status: int, ended_s: float | None = None) -> Answer:
    """An answer of this moment; `ended_s` is when the record was written, from it."""
    headers = {"Date": format_datetime(NOW, usegmt=True)}
    if ended_s is not None:
        when = NOW + timedelta(seconds=ended_s)
        headers["Last-Modified"] = format_datetime(when, usegmt=True)
    return Answer(status, headers, b"")


@pytest.mark.parametrize(
    ("answers", "looks"),
    [
        ([answer(404), answer(200, 5)], [False, True]),
        ([answer(200, 5 - EARLIER_S)], [True]),
        ([answer(200, -5 - 2 * EARLIER_S), answer(200, 5)], [False, True]),
        ([Answer(0, {}, b""), answer(503), answer(200, 5)], [False, False, True]),
        ([Answer(200, {}, b"")], [False]),
    ],
    ids=["comes", "was over first", "of an earlier start", "store away", "no times"],
)
def test_a_chief_is_over_by_the_stores_clock(answers: list[Answer], looks: list[bool]) -> None:
    chief = Chief(cast("Container", Store(*answers)), "record")
    assert [chief.is_over() for _ in looks] == looks
