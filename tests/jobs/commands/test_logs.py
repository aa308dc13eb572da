"""Options of `launch logs`, as they are typed: which lines are asked for, and how they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.commands import logs
from jobs.contracts.spec import RunHandle
from jobs.runs.logs import LogLine
from tests.fakes.launching import FakeEngine, Launching

NOON_S = 1_767_355_200.0  # 2026-01-02T12:00:00Z


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What an engine is asked for, at noon."""
    found: list[dict[str, Any]] = []

    def read(_engine: FakeEngine, _: RunHandle, ranks: object, **asked: Any) -> Iterator[LogLine]:
        found.append({"ranks": ranks, **asked})
        yield LogLine(ts="2026-01-02T11:59:00.000000Z", rank=0, text="-x")

    monkeypatch.setattr(FakeEngine, "logs", read)
    monkeypatch.setattr(logs.time, "time", lambda: NOON_S)
    return found


@pytest.mark.parametrize(
    ("words", "changes", "line"),
    [
        ([], {}, "[0] -x\n"),
        (["--since", "5m"], {"since": "2026-01-02T11:55:00.000000Z"}, "[0] -x\n"),
        (
            ["--since", "2026-01-02T10:00:00+01:00"],
            {"since": "2026-01-02T09:00:00.000000Z"},
            "[0] -x\n",
        ),
        (["--timestamps"], {}, "[0] 2026-01-02T11:59:00.000000Z -x\n"),
        (["--grep=-x", "--tail", "3"], {"grep": re.compile("-x"), "tail": 3}, "[0] -x\n"),
    ],
)
def test_what_is_typed_is_asked_for(
    launching: Launching,
    asked: list[dict[str, Any]],
    words: list[str],
    changes: dict[str, Any],
    line: str,
) -> None:
    launching.add_run()
    typed = launching.type("logs", "last", *words)
    assert (typed.code, typed.out, typed.err) == (0, line, "")
    plain = {"ranks": None, "follow": False, "since": None, "tail": None, "grep": None}
    assert asked == [plain | changes]
