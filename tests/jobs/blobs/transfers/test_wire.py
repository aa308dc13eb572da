"""Requests against a server that answers whatever a test writes: good, bad, late, cut, over TLS."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from jobs.blobs.transfers import connection as connection_module
from jobs.blobs.transfers import container as container_module
from jobs.blobs.transfers import pace as pace_module
from jobs.blobs.transfers.authority import SasFile, SharedKey
from jobs.blobs.transfers.connection import Connection, drive
from jobs.blobs.transfers.container import CONTROL_TRIES, Container, StoreError
from jobs.blobs.transfers.listing import list_page
from tests.fakes.scripted_server import CLOSE, Asked, answer, read_request, scripted_server
from tests.fakes.tls import certificate_of_localhost, serving
from tests.ports import free_port

KEY = SharedKey("account", "a2V5")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No waits between tries: what they are is pace's test."""
    monkeypatch.setattr(pace_module, "_FIRST_WAIT_S", 0.001)


def ask(url: str, method: str = "GET", name: str = "blob", *, authority=KEY, **options):
    container = Container(url, authority)
    connection = Connection(container.address)
    try:
        return drive(container.request(connection, method, name, **options), connection)
    finally:
        connection.close()


def replies(*answers: bytes):
    """Answer each request with the next one; the last one again and again."""
    left = list(answers)
    return lambda _asked: left.pop(0) if len(left) > 1 else left[0]


def test_a_request_says_what_the_store_must_know():
    with scripted_server(replies(answer(201))) as server:
        said = ask(
            server.url,
            "PUT",
            "a b/ü#%?",
            query={"comp": "block", "blockid": "a+/="},
            headers={"content-md5": "x"},
            body=b"content",
        )
    assert (said.status, said.body, said.num_tries) == (201, b"", 1)
    (asked,) = server.asked
    target = "/account/data/a%20b/%C3%BC%23%25%3F?comp=block&blockid=a%2B%2F%3D"
    assert (asked.line, asked.body) == (f"PUT {target} HTTP/1.1", b"content")
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["x-ms-version"] == "2023-11-03"
    assert asked.headers["authorization"].startswith("SharedKey account:")


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nabcd\r\n3;extension=1\r\nefg\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    "said",
    [
        answer(200, b"abcdefg"),
        CHUNKED,
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"abcdefg"),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcdefg" + CLOSE,
        b"HTTP/1.0 200 OK\r\n\r\nabcdefg" + CLOSE,
    ],
)
def test_every_framing_of_an_answer_is_read(said):
    with scripted_server(replies(said)) as server:
        container = Container(server.url, KEY)
        connection = Connection(container.address)
        bodies = [
            drive(container.request(connection, "GET", "x"), connection).body for _ in range(3)
        ]
        connection.close()
    assert bodies == [b"abcdefg"] * 3
    assert server.num_connections == (3 if said.endswith(CLOSE) else 1)


def test_an_answer_may_come_byte_by_byte():
    def dribble(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for each in CHUNKED:
                connection.send(bytes([each]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=dribble, args=(listener,))
        thread.start()
        said = ask(f"http://127.0.0.1:{listener.getsockname()[1]}/account/data")
        thread.join()
    assert said.body == b"abcdefg"


@pytest.mark.parametrize(
    "broken",
    [
        CLOSE,
        b"HTTP/1.1 200 OK\r\nContent-Le" + CLOSE,
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabc" + CLOSE,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc" + CLOSE,
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n" + CLOSE,
        b"HTTP/1.1 200 OK\r\n\r\n" + CLOSE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n" + CLOSE,
        b"HTTP/1.1 abc\r\n\r\n" + CLOSE,
        b"\x16\x03\x01 not HTTP\r\n\r\n" + CLOSE,
        b"x" * 70_000 + CLOSE,
        answer(500),
        answer(503, b"<Error><Code>ServerBusy</Code></Error>", Retry_After="0"),
        answer(429),
        answer(408),
        # A byte of the request may have changed on its way.
        answer(403, x_ms_error_code="AuthenticationFailed"),
        answer(400, x_ms_error_code="Md5Mismatch"),
    ],
)
def test_what_went_wrong_once_is_asked_again(broken):
    with scripted_server(replies(broken, answer(200, b"whole"))) as server:
        said = ask(server.url)
    assert (said.body, said.num_tries, len(server.asked)) == (b"whole", 2, 2)


def test_what_goes_wrong_for_ever_is_given_up():
    with scripted_server(
        replies(answer(500, b"<Error><Code>InternalError</Code></Error>"))
    ) as server:
        with pytest.raises(StoreError) as error:
            ask(server.url)
    assert (error.value.status, error.value.code) == (500, "InternalError")
    assert len(server.asked) == CONTROL_TRIES


def test_a_refusal_is_asked_twice_only():
    with scripted_server(replies(answer(404, x_ms_error_code="ContainerNotFound"))) as server:
        with pytest.raises(StoreError) as error:
            ask(server.url)
    assert (error.value.code, len(server.asked)) == ("ContainerNotFound", 2)


def test_an_error_that_the_caller_expects_is_an_answer():
    with scripted_server(replies(answer(404, x_ms_error_code="BlobNotFound"))) as server:
        said = ask(server.url, accept=("BlobNotFound",))
    assert (said.status, said.num_tries) == (404, 1)


def test_a_connection_that_the_store_closed_meanwhile_is_no_failure(monkeypatch):
    monkeypatch.setattr(container_module, "CONTROL_TRIES", 1)
    with scripted_server(lambda _: answer(200, b"x") + CLOSE) as server:
        container = Container(server.url, KEY)
        connection = Connection(container.address)
        for _ in range(3):
            assert drive(container.request(connection, "GET"), connection).body == b"x"
        connection.close()
    assert (len(server.asked), server.num_connections) == (3, 3)


def test_an_answer_before_the_body_was_read_is_heard():
    """A store may refuse 8 MB by their head, and hang up."""
    refusal = answer(403, x_ms_error_code="AuthorizationFailure", Connection="close")

    def refuse(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(refusal)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/account/data"
        with pytest.raises(StoreError) as error:
            ask(url, "PUT", body=bytes(8 << 20))
        thread.join()
    assert error.value.code == "AuthorizationFailure"


def test_a_store_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(connection_module, "STALL_S", 0.05)
    with scripted_server(lambda _: b"") as server, pytest.raises(StoreError) as error:
        ask(server.url)
    assert (error.value.status, error.value.text) == (None, "no answer for 0 s")


def test_nobody_there_is_said():
    with pytest.raises(StoreError, match="Connection refused"):
        ask(f"http://127.0.0.1:{free_port()}/account/data")


def test_a_sas_that_was_replaced_is_taken_at_the_next_refusal(tmp_path):
    file = tmp_path / "sas"
    file.write_text("se=2020-01-01&sig=old")

    def judge(asked: Asked) -> bytes:
        if asked.target.endswith("?se=2099-01-01&sig=new"):
            return answer(200, b"x")
        file.write_text("se=2099-01-01&sig=new")
        return answer(403, x_ms_error_code="AuthenticationFailed")

    with scripted_server(judge) as server:
        assert ask(server.url, authority=SasFile(file)).body == b"x"
    assert [asked.target.rpartition("=")[2] for asked in server.asked] == ["old", "new"]
    assert "authorization" not in server.asked[0].headers


def test_a_page_of_a_listing_is_read_whatever_the_names_are():
    body = (
        b'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
        b'<Blob><Name>a/&lt;&amp;amp;&#xE9;\xc3\xbc</Name><Properties><Etag>"0x1"</Etag>'
        b"<Content-Length>7</Content-Length><Content-MD5>AAAA</Content-MD5></Properties></Blob>\n"
        b'<Blob><Name Encoded="true">b%EF%BF%BE</Name><Properties><Content-Length>0</Content-Length>'
        b"<Content-MD5 /><Etag>0x2</Etag></Properties></Blob>"
        b"</Blobs><NextMarker>c&amp;d</NextMarker></EnumerationResults>"
    )
    with scripted_server(replies(answer(200, body))) as server:
        container = Container(server.url, KEY)
        connection = Connection(container.address)
        page = drive(list_page(container, connection, prefix="a b", marker="m"), connection)
        connection.close()
    assert [(blob.name, blob.bytes, blob.md5, blob.etag) for blob in page.blobs] == [
        ("a/<&amp;éü", 7, bytes(3), "0x1"),
        ("b\ufffe", 0, None, "0x2"),
    ]
    assert page.marker == "c&d"
    assert server.asked[0].target == (
        "/account/data?comp=list&maxresults=2000&restype=container&prefix=a%20b&marker=m"
    )


# --- TLS and proxies ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    return certificate_of_localhost(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def without_proxy(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_megabytes_go_and_come_over_tls(certificate, monkeypatch, without_proxy):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    content = bytes(range(256)) * 20_000
    with scripted_server(lambda asked: answer(201, asked.body), tls=serving(certificate)) as server:
        said = ask(f"https://localhost:{server.port}/data", "PUT", body=content)
    assert said.body == content


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(certificate, without_proxy):
    with scripted_server(replies(answer(200)), tls=serving(certificate)) as server:
        with pytest.raises(StoreError, match="certificate verify failed"):
            ask(f"https://localhost:{server.port}/data")
    assert (server.num_connections, server.asked) == (1, [])


def test_a_proxy_is_passed_where_the_environment_names_one(certificate, monkeypatch, without_proxy):
    asked: list[Asked] = []

    def pass_on(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(read_request(connection))
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with serving(certificate).wrap_socket(connection, server_side=True) as secure:
                asked.append(read_request(secure))
                secure.sendall(answer(200, b"x"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        monkeypatch.setenv("https_proxy", f"http://user:p%40ss@127.0.0.1:{port}")
        thread = threading.Thread(target=pass_on, args=(listener,))
        thread.start()
        assert ask("https://localhost:4443/data").body == b"x"
        thread.join()
    assert asked[0].line == "CONNECT localhost:4443 HTTP/1.1"
    assert asked[0].headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"
    assert asked[1].line == "GET /data/blob HTTP/1.1"


def test_a_proxy_that_refuses_is_named(monkeypatch, without_proxy):
    with scripted_server(replies(answer(407))) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.port}")
        with pytest.raises(StoreError, match=r"the proxy 127.0.0.1 answered HTTP/1.1 407 Said"):
            ask("https://account.blob.core.windows.net/data")


def test_an_error_code_that_is_no_ascii_is_a_code_all_the_same():
    body = "<Error><Code>Kaputtü</Code></Error>".encode()
    with scripted_server(replies(answer(409, body))) as server:
        with pytest.raises(StoreError) as error:
            ask(server.url)
    assert error.value.code == "Kaputt\ufffd\ufffd"


def test_a_store_that_is_waited_for_is_talked_about_once_an_outage(monkeypatch):
    monkeypatch.setattr(container_module, "_SILENCE_S", 0.0)
    said: list[str] = []
    outage = [CLOSE, answer(500), CLOSE]
    with scripted_server(replies(*outage, answer(200), *outage, answer(200))) as server:
        container = Container(server.url, KEY, waiting=said.append)
        for _ in range(2):
            connection = Connection(container.address)
            drive(container.request(connection, "GET", "blob"), connection)
            connection.close()
    assert said == ["it closed the connection"] * 2


def test_a_short_outage_is_not_talked_about():
    said: list[str] = []
    with scripted_server(replies(CLOSE, answer(500), answer(200))) as server:
        container = Container(server.url, KEY, waiting=said.append)
        connection = Connection(container.address)
        drive(container.request(connection, "GET", "blob"), connection)
        connection.close()
    assert said == []
