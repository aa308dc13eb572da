"""When a chief is over: by the store's clock, and never by what an earlier start has left."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.rank import chief as watcher
from jobs.rank.chief import EARLIER_S, Chief, served, watch_chief
from jobs.rank.record import record_path
from jobs.rank.services import Answer, Container
from tests.fakes.rank_settings import SETTINGS

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


def test_a_server_that_prepares_its_node_still_is_ended_when_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank has no record before its first command."""
    (tmp_path / "ranks").mkdir()
    looks: list[float] = []
    ended: list[tuple[int, int]] = []

    def select(_read: Any, _write: Any, _error: Any, timeout_s: float) -> Any:
        looks.append(timeout_s)
        assert len(looks) < 4, "it looks for ever"
        if len(looks) == 3:
            Path(record_path(str(tmp_path), 1)).write_text(json.dumps({"child": 42}))
        return [], [], []

    monkeypatch.setattr(watcher, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(watcher, "die_with_parent", lambda: None)
    monkeypatch.setattr(watcher, "GRACE_S", 0.0)
    monkeypatch.setattr(Chief, "is_over", lambda _: True)
    monkeypatch.setattr(os, "killpg", lambda child, number: ended.append((child, number)))
    watch_chief(SETTINGS, str(tmp_path), 1)
    assert ended == [(42, signal.SIGTERM), (42, signal.SIGKILL)]
    assert (tmp_path / served(1)).exists()
