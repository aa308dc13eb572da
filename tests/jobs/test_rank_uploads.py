"""Metrics that grow while they are brought: what the store has is one state of them, with its MD5."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from jobs.rank_store import Answer, Container, md5_text
from jobs.rank_uploads import GrowingFile


class GrowingMetrics:
    """A container in memory; the file grows by a line while the first block is put."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content, self.md5 = b"", ""
        self._blocks: dict[str, bytes] = {}

    def put_block(self, _blob: str, block: str, content: bytes) -> Answer:
        if not self._blocks:
            with self.path.open("ab") as file:
                file.write(b"one more\n")
        self._blocks[block] = content
        return Answer(201, {}, b"")

    def put_list(self, _blob: str, blocks: list[str], md5: str, _headers: object) -> Answer:
        self.content, self.md5 = b"".join(self._blocks[block] for block in blocks), md5
        return Answer(201, {}, b"")


def test_a_line_that_comes_while_metrics_are_brought_waits_for_the_next_turn(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"first\n")
    store = GrowingMetrics(path)
    metrics = GrowingFile(cast("Container", store), str(path), "run/metrics.jsonl", 0)
    metrics.send()
    assert (store.content, store.md5) == (b"first\n", md5_text(b"first\n"))
    metrics.send()
    assert store.content == b"first\none more\n"
    assert store.md5 == md5_text(store.content)
