"""Horovod's rendezvous: bytes by path, on loopback, within bounds, whatever is sent."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from jobs.engines.local.horovod_store import MAX_KEYS, MAX_VALUE_BYTES, RendezvousServer
from tests.busy import HANG_S, Bound


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    made = RendezvousServer()
    yield made
    made.close()


def ask(server: RendezvousServer, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    try:
        client.request(method, path, body=body or None)
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def test_key_is_absent_until_it_is_put_and_after_it_is_deleted(server: RendezvousServer) -> None:
    value = bytes(range(256)) * 100
    assert ask(server, "GET", "/global/0") == (404, b"")
    assert ask(server, "PUT", "/global/0", value) == (200, b"")
    assert ask(server, "GET", "/global/0") == (200, value)
    assert ask(server, "DELETE", "/global/0") == (200, b"")
    assert ask(server, "GET", "/global/0") == (404, b"")
    assert ask(server, "POST", "/global/0")[0] == 501


def test_many_requests_share_a_connection(server: RendezvousServer) -> None:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    for number in range(50):
        client.request("PUT", f"/scope/{number}", body=b"%d" % number)
        assert client.getresponse().read() == b""
    client.request("GET", "/scope/49")
    assert client.getresponse().read() == b"49"
    client.close()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / SPDY/3\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"PUT /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /a HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"PUT /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_VALUE_BYTES + 1), 413),
        (b"PUT /a HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"GET /" + b"a" * 65532, 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101, 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_server_lives_on(
    server: RendezvousServer, sent: bytes, answer: int
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as client:
        client.sendall(sent)
        told = b""
        with contextlib.suppress(ConnectionResetError):  # it hangs up on what it has not read
            while piece := client.recv(1 << 12):
                told += piece
    assert b"Error code: %d\n" % answer in told.replace(b"</p>", b"")
    assert ask(server, "GET", "/a") == (404, b"")


def test_silent_and_vanished_clients_hold_up_nobody(server: RendezvousServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    silent[0].sendall(b"PUT /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
    for client in silent[25:]:
        client.close()
    assert ask(server, "PUT", "/b", b"x") == (200, b"")
    assert ask(server, "GET", "/a") == (404, b"")
    for client in silent[:25]:
        client.close()


def test_number_of_keys_is_bounded(server: RendezvousServer) -> None:
    server.values.update((f"/{number}", b"") for number in range(MAX_KEYS))
    assert ask(server, "PUT", "/one-more", b"x") == (507, b"")
    assert ask(server, "PUT", "/0", b"new") == (200, b"")
    assert ask(server, "GET", "/0") == (200, b"new")


def test_value_of_a_client_that_was_killed_is_not_stored(server: RendezvousServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as client:
        client.sendall(b"PUT /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert ask(server, "GET", "/a") == (404, b"")


def test_closed_server_gives_its_port_back_at_once() -> None:
    made = RendezvousServer()
    bound = Bound(5)
    made.close()
    bound.check()
    with socket.create_server(("127.0.0.1", made.port), reuse_port=False):
        pass


def test_server_listens_on_loopback_only(server: RendezvousServer) -> None:
    with socket.socket(socket.AF_INET6) as other, pytest.raises(OSError, match="refused"):
        other.connect(("::1", server.port))
