"""Metrics that grow while they are brought: what the store has is one state of them, with its MD5."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.rank.identity import NodeFailure
from jobs.rank.services import Answer, Container, block_id, md5_text
from jobs.rank.uploads import BLOCK_BYTES, METRICS_BLOCK_BYTES, GrowingFile, Tree


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
    metrics = GrowingFile(cast("Container", store), str(path), "run/metrics.jsonl", "w")
    metrics.send()
    assert (store.content, store.md5) == (b"first\n", md5_text(b"first\n"))
    metrics.send()
    assert store.content == b"first\none more\n"
    assert store.md5 == md5_text(store.content)


class Memory:
    """A container in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.is_away = False
        self._blocks: dict[str, bytes] = {}

    def get(self, blob: str) -> bytes:
        if self.is_away:
            message = "the store is busy"
            raise NodeFailure(message, "look at it")
        return self.blobs[blob]

    def put(self, blob: str, content: bytes, _headers: object) -> Answer:
        self.blobs[blob] = content
        return Answer(201, {"ETag": "one"}, b"")

    def put_block(self, _blob: str, block: str, content: bytes) -> Answer:
        self._blocks[block] = content
        return Answer(201, {}, b"")

    def put_list(self, blob: str, blocks: list[str], md5: str, _headers: object) -> Answer:
        self.blobs[blob] = b"".join(self._blocks[block] for block in blocks)
        assert md5 == md5_text(self.blobs[blob])
        return Answer(201, {"ETag": "one"}, b"")

    def delete(self, blob: str, _etag: str) -> Answer:
        del self.blobs[blob]
        return Answer(202, {}, b"")


def test_metrics_that_could_not_be_read_are_not_written_over(tmp_path: Path) -> None:
    store, path, mark = Memory(), tmp_path / "metrics.jsonl", tmp_path / "unread"
    earlier = b"x" * (METRICS_BLOCK_BYTES + 5) + b"\n"
    store.blobs["metrics"], store.is_away = earlier, True
    metrics = GrowingFile(cast("Container", store), str(path), "metrics", "w", unread=str(mark))
    mark.touch()
    path.write_bytes(b"later\n")
    with pytest.raises(NodeFailure, match="busy"):
        metrics.send()
    assert store.blobs["metrics"] == earlier
    store.is_away = False
    metrics.send()
    assert store.blobs["metrics"] == earlier + b"later\n"
    later = b"later\n" + b"y" * METRICS_BLOCK_BYTES + b"\n"
    path.write_bytes(later)
    metrics.send()
    assert store.blobs["metrics"] == earlier + later


@pytest.mark.parametrize("is_last", [False, True])
def test_what_the_store_has_outlives_the_folder(tmp_path: Path, is_last: bool) -> None:
    store, outputs = Memory(), tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "model").write_bytes(b"model")
    tree = Tree(cast("Container", store), str(outputs), "run/", "w", attempt=1, node=0)
    tree.send(is_last=True)
    (outputs / "model").unlink()
    if not is_last:
        outputs.rmdir()
    tree.send(is_last=is_last)
    assert store.blobs == {"run/model": b"model"}


def test_an_output_that_is_gone_is_deleted_once_the_store_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    tree.send(is_last=True)
    (tmp_path / "outputs" / "small").unlink()
    delete, asked = store.delete, list[str]()

    def delete_in_the_end(blob: str, etag: str) -> Answer:
        asked.append(blob)
        return delete(blob, etag) if len(asked) > 1 else Answer(503, {}, b"")

    monkeypatch.setattr(store, "delete", delete_in_the_end)
    tree.send(is_last=False)
    assert set(store.blobs) == {"run/small", "run/large"}
    for _ in range(2):
        tree.send(is_last=False)
    assert set(store.blobs) == {"run/large"}
    assert asked == ["run/small"] * 2


def of_outputs(folder: Path) -> tuple[Memory, Tree]:
    """A folder of outputs that has one file of each kind, and the tree that brings it."""
    folder.mkdir()
    (folder / "small").write_bytes(b"small")
    (folder / "large").write_bytes(bytes(BLOCK_BYTES + 1))
    store = Memory()
    return store, Tree(cast("Container", store), str(folder), "run/", "w", attempt=1, node=0)


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line.split(" ", 1)[1] for line in capfd.readouterr().out.splitlines()]


def test_a_link_that_leads_to_itself_is_left_out_and_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    (tmp_path / "outputs" / "latest").symlink_to("latest")
    for _ in range(2):
        tree.send(is_last=True)
    assert set(store.blobs) == {"run/small", "run/large"}
    assert lines(capfd) == [
        "warning: outputs/latest stays on the node: Too many levels of symbolic links"
    ]


def test_a_name_that_no_blob_can_have_is_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    deep = tmp_path.joinpath("outputs", *["x" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    (tmp_path / "outputs" / os.fsdecode(b"gr\xfcn")).touch()
    for _ in range(2):
        tree.send(is_last=True)
    assert set(store.blobs) == {"run/small", "run/large"}
    assert sorted(lines(capfd)) == [
        "warning: outputs/gr\\xfcn stays on the node: its name is not UTF-8",
        f"warning: outputs/{'/'.join(['x' * 200] * 5)} stays on the node: its name has more "
        "than 923 characters",
    ]


def test_a_file_that_cannot_be_read_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    (tmp_path / "outputs" / "before").write_bytes(b"before")
    tree.send(is_last=True)
    (tmp_path / "outputs" / "odd").touch()
    os.utime(tmp_path / "outputs" / "odd", (0, 0))
    put = store.put

    def read_and_put(blob: str, content: bytes, headers: object) -> Answer:
        if blob == "run/odd":  # as a mode would have it, but for root
            raise PermissionError(errno.EACCES, "Permission denied", blob)
        return put(blob, content, headers)

    monkeypatch.setattr(store, "put", read_and_put)
    for name in ("small", "large"):
        path = tmp_path / "outputs" / name
        path.write_bytes(path.read_bytes() + b" of later")
        os.utime(path, (0, 0))
    (tmp_path / "outputs" / "before").unlink()
    with pytest.raises(OSError, match="Permission denied"):
        tree.send(is_last=False)
    assert {name: content[-9:] for name, content in store.blobs.items()} == {
        "run/small": b" of later",
        "run/large": b" of later",
    }


def test_a_large_file_that_cannot_be_read_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    (tmp_path / "outputs" / "another").write_bytes(bytes(BLOCK_BYTES + 1))
    asked: list[str] = []
    put_list = store.put_list

    def read_and_put(blob: str, *given: Any) -> Answer:
        asked.append(blob)
        if blob == asked[0]:
            raise PermissionError(errno.EACCES, "Permission denied", blob)
        return put_list(blob, *given)

    monkeypatch.setattr(store, "put_list", read_and_put)
    with pytest.raises(OSError, match="Permission denied"):
        tree.send(is_last=True)
    assert set(store.blobs) == {"run/small", "run/large", "run/another"} - {asked[0]}


def test_what_was_brought_of_a_folder_stays_while_the_folder_cannot_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    (tmp_path / "outputs" / "folder").mkdir()
    for name in ("folder/model", "folders", "model"):
        (tmp_path / "outputs" / name).touch()
    tree.send(is_last=True)
    for name in ("folders", "model"):
        (tmp_path / "outputs" / name).unlink()
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/folder/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    tree.send(is_last=False)
    assert set(store.blobs) == {"run/small", "run/large", "run/folder/model"}
    assert lines(capfd) == ["warning: outputs/folder stays on the node: Permission denied"]


def test_a_store_that_is_away_is_not_asked_for_every_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, tree = of_outputs(tmp_path / "outputs")
    (tmp_path / "outputs" / "another").write_bytes(bytes(BLOCK_BYTES + 1))
    asked: list[str] = []

    def put_list(blob: str, *_: object) -> Answer:
        asked.append(blob)
        return Answer(503, {}, b"")

    monkeypatch.setattr(store, "put_list", put_list)
    with pytest.raises(NodeFailure, match="503"):
        tree.send(is_last=True)
    assert len(asked) == 1


class Shared(Memory):
    """A container in which another node has written one blob."""

    def __init__(self, mark: dict[str, str]) -> None:
        super().__init__()
        self._headers = {f"x-ms-meta-{name}": text for name, text in mark.items()}
        self.blobs["run/model"] = b"another's"

    def put(self, blob: str, content: bytes, headers: object) -> Answer:
        assert isinstance(headers, dict)
        if "If-None-Match" in headers and blob in self.blobs:
            return Answer(409, {}, b"")
        return super().put(blob, content, headers)

    def look(self, _blob: str) -> Answer:
        return Answer(200, {**self._headers, "ETag": "other"}, b"")


@pytest.mark.parametrize(
    ("mark", "is_kept"),
    [
        ({"attempt": "2", "node": "0"}, True),
        ({"attempt": "2", "node": "2"}, False),
        ({"attempt": "1", "node": "0"}, False),
        ({}, False),
    ],
    ids=["lower node", "higher node", "earlier attempt", "nobody's"],
)
def test_a_file_of_two_nodes_is_that_of_the_lower_one_in_this_attempt(
    tmp_path: Path, mark: dict[str, str], is_kept: bool
) -> None:
    store, outputs = Shared(mark), tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "model").write_bytes(b"model")
    tree = Tree(cast("Container", store), str(outputs), "run/", "w", attempt=2, node=1)
    tree.send(is_last=True)
    assert store.blobs == {"run/model": b"another's" if is_kept else b"model"}


def test_blocks_of_two_writers_have_names_of_one_length_and_none_in_common() -> None:
    names = [block_id(writer, index) for writer in ("a1", "b2") for index in (0, 1, 49_999)]
    assert len(set(names)) == len(names)
    assert len({len(name) for name in names}) == 1
