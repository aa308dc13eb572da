"""Requests against a server that answers whatever a test writes: good, bad, late, cut, over TLS."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from jobs.blobs import session
from jobs.blobs.authority import SasFile, SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container
from jobs.blobs.refusals import StoreError
from jobs.blobs.session import CONTROL_TRIES
from jobs.contracts.errors import EnvironmentFailure
from tests.fakes.http_blobs import md5_of
from tests.fakes.scripted_server import CLOSE, Asked, answer, read_request, scripted_server
from tests.fakes.tls import certificate_of_localhost, serving
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("quick")
KEY = SharedKey("account", "a2V5")
RANGE = {"Content_Range": "bytes 0-4/5"}
WHOLE = answer(206, b"whole", **RANGE)


class Said(EnvironmentFailure):
    """The error of a store, as it came."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.text)
        self.status, self.code = error.status, error.code


def store_at(url: str, *, authority=KEY, waiting=lambda _: None) -> AzureStore:
    return AzureStore(Container(url, authority, waiting=waiting), Said)


def replies(*answers: bytes):
    """Answer each request with the next one; the last one again and again."""
    left = list(answers)
    return lambda _asked: left.pop(0) if len(left) > 1 else left[0]


def test_a_request_says_what_the_store_must_know():
    with scripted_server(replies(answer(201))) as server:
        assert store_at(server.url).create("a b/ü#%?", b"content")
    (asked,) = server.asked
    target = "/account/data/a%20b/%C3%BC%23%25%3F"
    assert (asked.line, asked.body) == (f"PUT {target} HTTP/1.1", b"content")
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["if-none-match"] == "*"
    assert asked.headers["content-md5"] == md5_of(b"content")
    assert asked.headers["authorization"].startswith("SharedKey account:")


CHUNKED = (
    b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/5\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nwhol\r\n1;extension=1\r\ne\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    "broken",
    [
        CLOSE,
        b"HTTP/1.1 206 OK\r\nContent-Le" + CLOSE,
        b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nabc" + CLOSE,
        b"HTTP/1.1 206 OK\r\nContent-Length: x\r\n\r\n" + CLOSE,
        CHUNKED[:-4] + CLOSE,
        b"HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n" + CLOSE,
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
    with scripted_server(replies(broken, CHUNKED)) as server:
        assert store_at(server.url).read("x") == b"whole"
    assert len(server.asked) == 2


def test_what_goes_wrong_for_ever_is_given_up():
    refusal = answer(500, x_ms_error_code="InternalError")
    with scripted_server(replies(refusal)) as server:
        with pytest.raises(Said) as error:
            store_at(server.url).read("x")
    assert (error.value.status, error.value.code) == (500, "InternalError")
    assert len(server.asked) == CONTROL_TRIES


def test_a_refusal_is_asked_twice_only():
    with scripted_server(replies(answer(404, x_ms_error_code="ContainerNotFound"))) as server:
        with pytest.raises(Said) as error:
            store_at(server.url).read("x")
    assert (error.value.code, len(server.asked)) == ("ContainerNotFound", 2)


def test_an_error_that_the_caller_expects_is_an_answer():
    with scripted_server(replies(answer(404, x_ms_error_code="BlobNotFound"))) as server:
        assert store_at(server.url).read("x") is None
    assert len(server.asked) == 1


def test_no_redirect_is_followed():
    with scripted_server(replies(WHOLE)) as elsewhere:
        moved = answer(307, Location=f"{elsewhere.url}/x")
        with scripted_server(replies(moved)) as server, pytest.raises(Said):
            store_at(server.url).read("x")
    assert elsewhere.asked == []


def test_a_store_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(session, "STALL_S", 0.05)
    with scripted_server(lambda _: b"") as server, pytest.raises(Said) as error:
        store_at(server.url).read("x")
    assert (error.value.status, error.value.message) == (None, "no answer for 0 s")


def test_nobody_there_is_said():
    # Linux names nobody who listens there: `check_own_server` would refuse as well.
    with pytest.raises(Said, match="Connect call failed"):
        store_at(f"http://127.0.0.1:{free_port()}/account/data").read("x")


def test_a_sas_that_was_replaced_is_taken_at_the_next_refusal(tmp_path):
    file = tmp_path / "sas"
    file.write_text("se=2020-01-01&sig=old")

    def judge(asked: Asked) -> bytes:
        if asked.target.endswith("?se=2099-01-01&sig=new"):
            return WHOLE
        file.write_text("se=2099-01-01&sig=new")
        return answer(403, x_ms_error_code="AuthenticationFailed")

    with scripted_server(judge) as server:
        assert store_at(server.url, authority=SasFile(file)).read("x") == b"whole"
    assert [asked.target.rpartition("=")[2] for asked in server.asked] == ["old", "new"]
    assert "authorization" not in server.asked[0].headers


def test_a_page_of_a_listing_is_read_whatever_the_names_are():
    properties = "<BlobType>BlockBlob</BlobType>"
    body = (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
        f'<Blob><Name>a/&lt;&amp;amp;&#xE9;ü</Name><Properties><Etag>"0x1"</Etag>{properties}'
        "<Content-Length>7</Content-Length><Content-MD5>AAAA</Content-MD5></Properties></Blob>\n"
        f'<Blob><Name Encoded="true">b%EF%BF%BE</Name><Properties>{properties}'
        "<Content-Length>0</Content-Length></Properties></Blob>"
        "</Blobs><NextMarker /></EnumerationResults>"
    ).encode()
    with scripted_server(replies(answer(200, body, Content_Type="application/xml"))) as server:
        found = list(store_at(server.url).list("a b"))
    assert [(each.name, each.bytes, each.md5, each.etag) for each in found] == [
        ("a/<&amp;éü", 7, b"\0\0\0", "0x1"),
        ("b\ufffe", 0, None, ""),
    ]


@pytest.mark.parametrize("body", [b"", b"<a/>", b"no XML", b"<EnumerationResults/>"])
def test_what_is_no_listing_is_one_message(body):
    said = answer(200, body, Content_Type="application/xml")
    with scripted_server(replies(said)) as server, pytest.raises(EnvironmentFailure):
        list(store_at(server.url).list(""))


# --- TLS and proxies ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    return certificate_of_localhost(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def without_proxy(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(certificate, without_proxy):
    with scripted_server(replies(WHOLE), tls=serving(certificate)) as server:
        with pytest.raises(Said, match="certificate verify failed"):
            store_at(f"https://localhost:{server.port}/data").read("x")
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
                secure.sendall(WHOLE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        monkeypatch.setenv("https_proxy", f"http://user:p%40ss@127.0.0.1:{port}")
        thread = threading.Thread(target=pass_on, args=(listener,))
        thread.start()
        assert store_at("https://localhost:4443/data").read("x") == b"whole"
        thread.join()
    assert asked[0].line == "CONNECT localhost:4443 HTTP/1.1"
    assert asked[0].headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"
    assert asked[1].line == "GET /data/x HTTP/1.1"


def test_a_proxy_of_the_environment_is_not_told_of_the_local_store(monkeypatch):
    with scripted_server(replies(WHOLE)) as proxy, scripted_server(replies(WHOLE)) as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert store_at(server.url).read("x") == b"whole"
    assert proxy.asked == []


def test_a_proxy_that_refuses_is_named(monkeypatch, without_proxy):
    with scripted_server(replies(answer(407))) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.port}")
        with pytest.raises(Said, match="407"):
            store_at("https://account.blob.core.windows.net/data").read("x")


def test_a_store_that_is_waited_for_is_talked_about_once_an_outage(monkeypatch):
    monkeypatch.setattr(session, "_SILENCE_S", 0.0)
    said: list[str] = []
    outage = [answer(500), answer(500), answer(500)]
    with scripted_server(replies(*outage, WHOLE, *outage, WHOLE)) as server:
        store = store_at(server.url, waiting=said.append)
        for _ in range(2):
            store.read("x")
    assert said == ["500 Said"] * 2


def test_a_short_outage_is_not_talked_about():
    said: list[str] = []
    with scripted_server(replies(CLOSE, answer(500), WHOLE)) as server:
        store_at(server.url, waiting=said.append).read("x")
    assert said == []
