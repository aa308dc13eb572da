"""How a node's results reach the store: whole at any moment, each byte about once, node by node."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.rank.identity import Identity
from jobs.rank.services import Container
from jobs.rank.settings import UNREAD_METRICS
from jobs.rank.uploads import BLOCK_BYTES, METRICS_BLOCK_BYTES, Uploads
from tests import seeds
from tests.fakes.azureml import FakeAzure, RequestTrouble, broken, firewall


class Node:
    """One node of a run, whose turns a test takes."""

    def __init__(
        self, azure: FakeAzure, folder: Path, run: str, *, number: int = 0, attempt: int = 1
    ) -> None:
        place = azure.place
        self.azure, self.run = azure, run
        self.folder = folder / f"{attempt}-{number}"
        self.outputs = self.folder / "outputs"
        self.outputs.mkdir(parents=True)
        (self.folder / "inputs").mkdir()
        identity = Identity(dict(os.environ))
        store = f"https://{place.data_account}.blob.core.windows.net"
        self.uploads = Uploads(
            str(self.folder),
            Container(store, "runs", identity, pauses_s=(0.0,)),
            identity,
            run=run,
            attempt=attempt,
            node=number,
            is_main=number == 0,
        )
        self._runs = azure.blobs.open(place.data_account, "runs")

    def write(self, name: str, content: bytes, *, age_s: float = 60.0) -> None:
        """Write an output as it was left so long ago."""
        path = self.outputs / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        when = path.stat().st_mtime - age_s
        os.utime(path, (when, when))

    def read(self, name: str) -> bytes:
        """What a reader sees, who checks the MD5 that the blob has."""
        blob = self._runs.get_blob_client(f"{self.run}/{name}")
        content = blob.download_blob().readall()
        told = blob.get_blob_properties().content_settings.content_md5
        assert bytes(told) == hashlib.md5(content).digest()
        return content

    def names(self) -> list[str]:
        prefix = f"{self.run}/outputs/"
        return [each.name.removeprefix(prefix) for each in self._runs.list_blobs(prefix)]

    def sent(self) -> int:
        """How many bytes have been sent for this run."""
        requests = self.azure.requests(method="PUT", path=f"/runs/{self.run}/")
        return sum(len(each.body) for each in requests if "comp=blocklist" not in each.target)


@pytest.fixture
def make(azure: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes nodes of one run; this process asks as one of them."""
    for name, value in (azure._routing() | azure._node_identity()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DEFAULT_IDENTITY_CLIENT_ID", azure.place.cluster_client_id)
    return partial(Node, azure, tmp_path, f"run-{tmp_path.name}")


def test_of_growing_metrics_only_the_last_block_is_sent_again(make: Any) -> None:
    node = make()
    metrics, content = node.folder / "metrics.jsonl", b""
    for _ in range(5):
        content += b"x" * (METRICS_BLOCK_BYTES // 2 - 1) + b"\n"
        metrics.write_bytes(content)
        assert node.uploads.turn(is_last=False)
        assert node.read("metrics.jsonl") == content
    assert node.sent() < 1.7 * len(content)
    before = node.sent()
    assert node.uploads.turn(is_last=False)
    assert node.sent() == before
    # As the program does when it goes on from a checkpoint: another file, and a shorter one.
    (node.folder / "new").write_bytes(b"other\n")
    (node.folder / "new").replace(metrics)
    assert node.uploads.turn(is_last=True)
    assert node.read("metrics.jsonl") == b"other\n"


def test_outputs_come_when_they_are_at_rest_and_go_when_they_are_gone(make: Any) -> None:
    node = make()
    node.write("model/a", b"a")
    node.write("growing", b"half", age_s=-3600)
    assert node.uploads.turn(is_last=False)
    assert node.names() == ["model/a"]
    (node.outputs / "model" / "a").unlink()
    large = seeds.content(2 * BLOCK_BYTES + 5)
    node.write("large ö", large)
    assert node.uploads.turn(is_last=False)
    assert node.names() == ["large ö"]
    assert node.uploads.turn(is_last=True)
    assert node.names() == ["growing", "large ö"]
    assert node.read("outputs/large ö") == large


def test_a_link_to_a_folder_is_not_followed_and_one_to_a_file_is(make: Any) -> None:
    node = make()
    node.write("file", b"content")
    (node.outputs / "link").symlink_to("file")
    (node.outputs / "round").symlink_to(".")
    (node.outputs / "nowhere").symlink_to("missing")
    assert node.uploads.turn(is_last=True)
    assert node.names() == ["file", "link"]


@pytest.mark.parametrize("size", [3, BLOCK_BYTES + 3])
def test_the_first_node_has_a_name_that_two_nodes_write(make: Any, size: int) -> None:
    nodes = [make(number=number) for number in range(3)]
    for number, node in enumerate(nodes):
        node.write("same", bytes([number]) * size)
    for node in (nodes[2], nodes[0], nodes[1], nodes[2]):
        assert node.uploads.turn(is_last=True)
    assert nodes[0].read("outputs/same") == bytes(size)
    # What an attempt before has left is nobody's any more.
    later = make(number=1, attempt=2)
    later.write("same", b"later")
    assert later.uploads.turn(is_last=True)
    assert later.read("outputs/same") == b"later"


def test_a_store_that_was_away_is_told_of_twice_and_nothing_is_lost(
    make: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    node = make()
    node.write("model", b"model")
    node.azure.script(broken(path=f"/runs/{node.run}/*", times=6))
    turns = [node.uploads.turn(is_last=False) for _ in range(4)]
    assert turns == [False, False, False, True]
    assert node.read("outputs/model") == b"model"
    lines = [line.split(" ", 2)[2] for line in capfd.readouterr().out.splitlines()]
    assert [line.partition(":")[0] for line in lines] == [
        "results do not reach the store",
        "results reach the store again",
    ]


def test_an_expired_token_is_replaced(make: Any) -> None:
    node = make()
    node.write("one", b"1")
    assert node.uploads.turn(is_last=False)
    node.azure.script(RequestTrouble(method="PUT", path="/runs/*", status=401, code="Expired"))
    node.write("two", b"2")
    assert node.uploads.turn(is_last=True)
    assert node.names() == ["one", "two"]


def test_readers_of_streams_find_a_fresh_token(make: Any) -> None:
    node = make()
    path = node.folder / "inputs" / "digits.token"
    path.write_text("old")
    assert node.uploads.turn(is_last=False)
    assert path.read_text().count(".") == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_metrics_that_were_not_read_stay_before_those_that_come(make: Any) -> None:
    for attempt in (1, 2):
        node = make(attempt=attempt)
        if attempt > 1:
            (node.folder / UNREAD_METRICS).touch()
        (node.folder / "metrics.jsonl").write_bytes(f"of {attempt}\n".encode())
        assert node.uploads.turn(is_last=True)
    assert node.read("metrics.jsonl") == b"of 1\nof 2\n"


def test_a_store_that_refuses_to_the_end_is_told_of_and_given_up(
    make: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jobs.rank.uploads.REFUSED_PATIENCE_S", 0.0)
    node = make()
    node.write("x", b"x")
    node.azure.script(firewall(account=node.azure.place.data_account))
    node.uploads.finish()
    assert [line.split(" ", 2)[2] for line in capfd.readouterr().out.splitlines()] == [
        "results do not reach the store: the store cannot deliver "
        f"`{node.run}/outputs/x`: 403 AuthorizationFailure (the storage account's network rules "
        "must let the cluster's network in); training goes on",
        "not all results reached the store: the rest is lost with this node",
    ]
