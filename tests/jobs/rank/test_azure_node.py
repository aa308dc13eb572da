"""What a node of Azure ML reads from its store before, and what it says where the store refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.rank import azure_node
from jobs.rank.azure_node import AzureNode
from jobs.rank.identity import NodeFailure
from jobs.rank.record import Record
from jobs.rank.services import Answer
from jobs.rank.settings import UNREAD_METRICS
from jobs.rank.world import RankJob, World
from tests.fakes.rank_settings import SETTINGS

# A rank that starts no process beside itself.
WORLD = World(0, 2, 1, 2, 0, "127.0.0.1", "1")


class Store:
    """A container that answers alike whatever it is asked, or raises its answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def get(self, blob: str) -> Any:
        return self._give(blob)

    def put(self, blob: str, _content: bytes, _headers: object) -> Any:
        return self._give(blob)

    def _give(self, blob: str) -> Any:
        self.asked.append(blob)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def node_of(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> tuple[AzureNode, list[bytes]]:
    """A rank's node with this store, and what it feeds into the log."""
    said: list[bytes] = []
    log: Any = SimpleNamespace(feed=said.append)
    monkeypatch.setattr(azure_node, "Container", lambda *_, **__: store)
    return AzureNode(SETTINGS, RankJob(str(folder), ["true"]), WORLD, {}, log), said


@pytest.mark.parametrize(
    ("answer", "files", "told"),
    [
        (b"earlier\n", {"metrics.jsonl": b"earlier\n"}, []),
        (KeyError("metrics.jsonl"), {}, []),
        (
            NodeFailure("403 AuthorizationFailure", "a hint"),
            {UNREAD_METRICS: b""},
            [b"warning: earlier metrics cannot be read: 403 AuthorizationFailure\n"],
        ),
    ],
    ids=["earlier", "none", "refused"],
)
def test_an_attempt_begins_with_the_metrics_of_those_before_or_knows_that_it_has_not_read_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    files: dict[str, bytes],
    told: list[bytes],
) -> None:
    store = Store(answer)
    node, said = node_of(tmp_path, store, monkeypatch)
    node._fetch_metrics()
    assert store.asked == ["a/metrics.jsonl"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert said == told


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(201, {}, b""), ""),
        (Answer(503, {}, b""), Answer(503, {}, b"").why),
        (NodeFailure("403 AuthorizationFailure", "a hint"), "403 AuthorizationFailure"),
    ],
    ids=["taken", "busy", "refused"],
)
def test_a_record_that_the_store_does_not_take_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, why: str
) -> None:
    store = Store(answer)
    node, said = node_of(tmp_path, store, monkeypatch)
    record = Record(WORLD)
    record.exit_code, record.ended_s = 0, 5.0
    node._send(record)
    assert store.asked == ["a/ranks/1/00000.json"]
    line = f"warning: the record of this rank's end cannot be stored: {why}\n".encode()
    assert said == ([line] if why else [])
