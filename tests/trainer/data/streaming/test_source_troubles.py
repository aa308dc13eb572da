"""What streamed pictures make of a store in trouble: asked again, waited for, refused, and named."""

from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.busy import HANG_S, wait_until
from tests.fakes.range_server import RangeServer, Trouble
from tests.trainer.data.streaming.conftest import read_all
from trainer.common.errors import TrainingError
from trainer.data.streaming.store import RangeStore, RemoteFile


def token_store(monkeypatch, server: RangeServer, key: Path, **options: float) -> RangeStore:
    """A store on loopback that may see a token, as only Azure's may."""
    monkeypatch.setattr(
        "trainer.data.streaming.store._AZURES", re.compile(r"http://127\.0\.0\.1:[0-9]+")
    )
    return RangeStore(server.endpoint, key, kind="token", **options)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_store_that_fails_now_and_then_is_asked_again(streaming, status):
    streaming.server.trouble = lambda number: Trouble(status=status) if number % 3 == 0 else None
    assert read_all(streaming.open()) == streaming.samples
    assert set(streaming.server.ranges.values()) == {1}


@pytest.mark.parametrize("trouble", [Trouble(cut=True), Trouble(flip=True)])
def test_an_answer_that_is_cut_or_changed_on_its_way_is_noticed(streaming, trouble):
    streaming.server.trouble = lambda number: trouble if number % 2 == 0 else None
    pictures = streaming.open()
    assert read_all(pictures) == streaming.samples
    assert streaming.server.num_requests == 2 * len(streaming.server.ranges)


def test_the_store_s_wish_to_wait_is_heeded(streaming):
    trouble = Trouble(status=503, headers={"Retry-After": "1"})
    streaming.server.trouble = lambda number: trouble if number == 0 else None
    begun_s = time.monotonic()
    streaming.open().read(0)
    assert time.monotonic() - begun_s >= 1


def test_a_store_that_stays_away_is_one_clear_error(streaming):
    pictures = streaming.open()
    pictures._blocks._store._patience_s = 0.2
    streaming.server.stop()
    with pytest.raises(TrainingError) as error:
        pictures.read(0)
    assert str(error.value) == (
        f"the store {streaming.server.endpoint} does not give `train/train-000000.tar`: "
        "Connection refused "
        "(hint: look at the store, then start the run again from its checkpoint)"
    )


def test_a_store_that_is_started_again_is_waited_for(streaming):
    pictures = streaming.open()
    pictures.read(0)
    port = streaming.server.port
    streaming.server.stop()
    failed = threading.Event()
    pictures._blocks._store._tell = lambda error, *, since_s: failed.set()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_all, pictures)
        assert failed.wait(HANG_S)
        again = RangeServer(streaming.packed, port=port)
        assert reading.result() == streaming.samples
    again.stop()


def test_an_expired_signature_is_read_again(streaming):
    pictures = streaming.open()
    pictures.read(0)
    streaming.server.sas = "sig=second"
    streaming.sas_file.write_text("?sig=second\n")
    assert read_all(pictures) == streaming.samples


def test_an_expired_signature_that_nobody_renewed_is_named_but_not_shown(streaming):
    pictures = streaming.open()
    streaming.server.sas = "sig=second"
    with pytest.raises(TrainingError) as error:
        pictures.read(0)
    assert str(error.value) == (
        f"the store {streaming.server.endpoint} lets us in no more: 403 AuthenticationFailed "
        "(hint: the signature of this run has expired: start it again from its checkpoint)"
    )


@pytest.mark.parametrize("is_late", [False, True])
def test_a_token_that_ends_while_it_is_read_is_read_again_and_waited_for(
    streaming, monkeypatch, is_late
):
    """The node writes a new one before the end, or only after the store has refused the old one."""
    key = streaming.folder / "token"
    key.write_text("first")
    streaming.server.token = "first"
    store = token_store(monkeypatch, streaming.server, key)
    (shard, *_) = sorted((streaming.packed / "train").glob("*.tar"))
    file = RemoteFile(path=f"train/{shard.name}", bytes=shard.stat().st_size)
    content = shard.read_bytes()
    assert store.read(file, 0, 10) == content[:10]
    streaming.server.token = "second"
    if not is_late:
        key.write_text("second")
        assert store.read(file, 10, 20) == content[10:30]
        return
    asked = streaming.server.num_requests
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(store.read, file, 10, 20)
        wait_until(lambda: streaming.server.num_requests > asked)
        key.write_text("second")
        assert reading.result() == content[10:30]


def test_a_token_that_nobody_renews_is_named(streaming, monkeypatch):
    key = streaming.folder / "token"
    key.write_text("first")
    streaming.server.token = "second"
    store = token_store(monkeypatch, streaming.server, key, patience_s=0.2)
    with pytest.raises(TrainingError) as error:
        store.read(RemoteFile(path="train/x", bytes=10), 0, 10)
    assert str(error.value) == (
        f"the store {streaming.server.endpoint} does not give `train/x`: 401 "
        "InvalidAuthenticationInfo: the token is not renewed "
        "(hint: look at the store, then start the run again from its checkpoint)"
    )


def test_an_identity_that_may_not_read_is_not_said_to_have_expired(streaming, monkeypatch):
    key = streaming.folder / "token"
    key.write_text("first")
    streaming.server.trouble = lambda _: Trouble(status=403)
    store = token_store(monkeypatch, streaming.server, key)
    with pytest.raises(TrainingError) as error:
        store.read(RemoteFile(path="train/x", bytes=10), 0, 10)
    assert str(error.value).endswith(
        " lets us in no more: 403 Forbidden (hint: the cluster's identity may not read the "
        "container, or a firewall is in between: launch doctor)"
    )


@pytest.mark.parametrize("content", ["", "sig=a b", "sig=a\r\nHost: x"])
def test_what_is_no_signature_is_not_shown(tmp_path, content):
    (tmp_path / "sas").write_text(content)
    with pytest.raises(TrainingError, match="holds no signature") as error:
        RangeStore("http://127.0.0.1:1/a", tmp_path / "sas")
    assert "sig=a" not in str(error.value)


@pytest.mark.parametrize("has_md5", [True, False])
def test_a_shard_that_changed_is_refused(streaming, has_md5):
    streaming.server.has_md5 = has_md5
    pictures = streaming.open()
    pictures.read(0)
    shard = streaming.packed / "train" / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(TrainingError, match="differs from the pushed file"):
        read_all(pictures)


def test_a_shard_of_another_size_is_refused(streaming):
    pictures = streaming.open()
    shard = streaming.packed / "train" / "train-000000.tar"
    shard.write_bytes(shard.read_bytes() + b"?")
    with pytest.raises(TrainingError, match="differs from the pushed file"):
        pictures.read(0)


def test_a_shard_that_is_gone_is_named(streaming):
    pictures = streaming.open()
    (streaming.packed / "train" / "train-000000.tar").unlink()
    with pytest.raises(TrainingError, match=r"`train/train-000000.tar`: 404 BlobNotFound"):
        pictures.read(0)


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
def test_an_answer_that_is_no_range_is_not_read(tmp_path, monkeypatch, status):
    monkeypatch.setattr("trainer.data.streaming.store.TIMEOUT_S", 5)
    (tmp_path / "sas").write_text("sig=first")

    def answer() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            # A whole blob, of which nothing comes: whoever reads it waits in vain.
            client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
            client.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=answer)
        serving.start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/a"
        store = RangeStore(endpoint, tmp_path / "sas", patience_s=0)
        with pytest.raises(TrainingError, match=f"does not give `x`: {status}"):
            store.read(RemoteFile(path="x", bytes=1 << 40), 0, 10)
        serving.join()


def test_names_that_an_address_cannot_carry_are_quoted(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "ü#?%.tar").write_bytes(b"0123456789")
    (tmp_path / "sas").write_text("sig=first")
    server = RangeServer(tmp_path)
    store = RangeStore(server.endpoint, tmp_path / "sas")
    assert store.read(RemoteFile(path="a b/ü#?%.tar", bytes=10), 2, 3) == b"234"
    server.stop()


def test_a_store_that_is_away_for_long_is_told_once(streaming, monkeypatch, capsys):
    monkeypatch.setattr("trainer.data.streaming.store.SILENT_S", 0.1)
    monkeypatch.setattr("trainer.data.streaming.store.LONGEST_PAUSE_S", 0.1)
    pictures = streaming.open()
    streaming.server.trouble = lambda number: Trouble(status=503) if number < 6 else None
    pictures.read(0)
    told = capsys.readouterr().err
    address = streaming.server.endpoint
    assert told == f"warning: waiting for the store {address}: 503 Service Unavailable\n"
