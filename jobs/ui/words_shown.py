"""Words values for pages, as the verbs word them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from jobs.contracts.spec import RunState
from jobs.host.console import count_text, duration_text, figure_text, masked, size_text
from jobs.host.structs import prepared
from jobs.runs.outcome import parse_time
from jobs.runs.outlook import Outlook, left_text, share_text
from jobs.stacks.cost import money_text

MOST_FIGURES = 6


def age(created: str) -> str:
    """Say how long ago a time was."""
    passed = datetime.now(UTC) - parse_time(created)
    return " ".join(duration_text(max(passed.total_seconds(), 0)).split()[:2])


def took(run: dict[str, Any]) -> str:
    """Say how long a run took, or has taken so far; a lost one has no end, and does not run either."""
    if run["started"] is None or (run["ended"] is None and RunState(run["state"]).is_terminal()):
        return ""
    end = parse_time(run["ended"]) if run["ended"] else datetime.now(UTC)
    return duration_text(max((end - parse_time(run["started"])).total_seconds(), 0))


def share(progress: dict[str, Any] | None) -> str:
    """Say how far a run is."""
    return share_text(msgspec.convert(progress, prepared(Outlook))) if progress else ""


def left(progress: dict[str, Any] | None) -> str:
    """Say how much time a run has left."""
    return left_text(msgspec.convert(progress, prepared(Outlook))) if progress else ""


def money(cost: dict[str, Any] | None) -> str:
    """Say what a run has cost so far."""
    return money_text(cost["amount"], cost["currency"]) if cost else ""


def command(words: Sequence[str]) -> str:
    """Write words as a shell takes them."""
    return shlex.join(words)


def as_json(value: Any) -> str:
    """Write a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def text(value: Any) -> str:
    """Write a value of a table's cell; control characters, and bytes that are no UTF-8, as escapes."""
    if value is None:
        return ""
    return masked(str(value)).encode(errors="backslashreplace").decode()


def figures(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose the figures that the head of a page shows: not those of time, which have curves."""
    return [each for each in metrics if not each["name"].endswith("_s")][:MOST_FIGURES]


FILTERS: dict[str, Callable[..., Any]] = {
    "age": age,
    "took": took,
    "share": share,
    "left": left,
    "money": money,
    "command": command,
    "as_json": as_json,
    "text": text,
    "size": size_text,
    "duration": duration_text,
    "figure": figure_text,
    "figures": figures,
    "count": count_text,
}
