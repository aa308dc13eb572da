"""The store as an environment names it: who asks, over what, and what an error means there."""

from __future__ import annotations

import datetime
import hashlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import msgspec
import pytest

from jobs.blobs.authority import Identity, SasFile, SharedKey
from jobs.blobs.azure_store import AzureStore
from jobs.blobs.container import Container, is_loopback
from jobs.blobs.credentials import Tokens
from jobs.blobs.files import Incoming
from jobs.blobs.refusals import StoreError
from jobs.blobs.store import _connect, _explain, open_data_store
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import Environment, Storage
from tests.fakes.gangs import make_environment
from tests.fakes.local_server import name_server
from tests.fakes.scripted_server import Asked, answer, scripted_server
from tests.fakes.tls import certificate_of_localhost, serving


def environment_of(folder: Path, endpoint: str, *, key: str | None = "a2V5") -> Environment:
    """One whose store is at an endpoint; local where it has a key."""
    made = make_environment(folder / "workspace")
    if key is not None:
        (folder / "storage").mkdir()
        (folder / "storage" / "account.key").write_text(key)
        name_server(folder / "storage")
    return msgspec.structs.replace(
        made,
        engine="local" if key is not None else "azureml",
        storage=Storage(
            account="account",
            blob_endpoint=endpoint,
            containers=made.storage.containers,
            folder=str(folder / "storage") if key is not None else None,
        ),
    )


def test_a_sas_file_stands_in_for_the_key(tmp_path, capsys):
    (tmp_path / "sas").write_text("https://account.blob.core.windows.net/data?sv=1&sig=a%2Bb")
    (tmp_path / "sas").chmod(0o644)
    refusal = answer(403, x_ms_error_code="AuthorizationPermissionMismatch")
    with scripted_server(lambda _: refusal) as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        store = open_data_store(environment, sas_file=tmp_path / "sas")
        with pytest.raises(EnvironmentFailure, match="AuthorizationPermissionMismatch") as error:
            store.read("x")
    assert error.value.hint == (
        f"check that the SAS in `{tmp_path}/sas` is for this container and allows this"
    )
    said = capsys.readouterr().err
    assert said == f"warning: `{tmp_path}/sas` can be read by others; chmod 600 {tmp_path}/sas\n"
    assert {asked.target for asked in server.asked} == {"/account/data/x?sv=1&sig=a%2Bb"}
    assert not any("authorization" in asked.headers for asked in server.asked)
    with pytest.raises(LaunchError, match="a SAS cannot create another SAS"):
        store.read_only_sas("", 60)


def test_nothing_is_said_without_tls_beyond_loopback(tmp_path):
    (tmp_path / "sas").write_text("sv=1&sig=a")
    (tmp_path / "sas").chmod(0o600)
    environment = environment_of(tmp_path, "http://account.example", key=None)
    with pytest.raises(EnvironmentFailure, match="must be reached over TLS"):
        open_data_store(environment, sas_file=tmp_path / "sas")


def test_a_page_follows_a_page_and_each_request_is_small(tmp_path):
    def page(asked: Asked) -> bytes:
        query = dict(parse_qsl(asked.target.partition("?")[2]))
        first = int(query.get("marker", "0"))
        blobs = "".join(
            f"<Blob><Name>x/{number:03}</Name><Properties><Etag>e</Etag><BlobType>BlockBlob</BlobType>"
            f"<Content-Length>{number}</Content-Length></Properties></Blob>"
            for number in range(first, first + 100)
        )
        marker = f"<NextMarker>{first + 100}</NextMarker>" if first < 200 else "<NextMarker />"
        body = f"<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>"
        return answer(200, body.encode(), Content_Type="application/xml")

    with scripted_server(page) as server:
        environment = environment_of(tmp_path, f"http://127.0.0.1:{server.port}/account")
        found = open_data_store(environment).list("x/")
        assert next(found).name == "x/000"
        assert len(server.asked) == 1
        assert [blob.bytes for blob in found] == list(range(1, 300))
    assert (len(server.asked), server.num_connections) == (3, 1)


@contextmanager
def black_hole() -> Iterator[int]:
    """A port on loopback where a connect neither succeeds nor fails."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than it keeps waiting; the rest goes unanswered
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize("way", ["small", "together"])
def test_the_next_address_of_a_store_is_tried_where_the_first_says_nothing(
    tmp_path, monkeypatch, way
):
    environment = environment_of(tmp_path, "http://localhost:9/account", key=None)
    container = Container("http://localhost:9/account/data", SharedKey("account", "a2V5"))
    store = AzureStore(container, partial(_explain, environment, "data", None))
    monkeypatch.setattr("jobs.blobs.session.CONNECT_S", 0.1)
    with (
        black_hole() as silent,
        scripted_server(lambda _: answer(200, b"x", Content_Range="bytes 0-0/1")) as server,
    ):
        places = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", each)) for each in (silent, server.port)]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: places)
        if way == "small":
            assert store.read("a") == b"x"
            return
        digest = hashlib.sha256(b"x").hexdigest()
        file = Incoming(name="a", path=tmp_path / "a", bytes=1, sha256=digest, mode=0o444)
        store.receive([file], lambda *_: None)
    assert (tmp_path / "a").read_bytes() == b"x"


KEY_ANSWER = """<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>
<SignedOid>00000000-0000-0000-0000-000000000001</SignedOid>
<SignedTid>00000000-0000-0000-0000-000000000002</SignedTid>
<SignedStart>2026-11-21T00:00:00Z</SignedStart><SignedExpiry>2099-01-01T00:00:00Z</SignedExpiry>
<SignedService>b</SignedService><SignedVersion>2021-12-02</SignedVersion>
<Value>a2V5</Value></UserDelegationKey>"""


def test_an_identity_has_a_read_only_sas_signed_by_a_lent_key(tmp_path, monkeypatch):
    certificate = certificate_of_localhost(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("no_proxy", "localhost")

    monkeypatch.setattr(
        "jobs.blobs.authority.is_azures",
        lambda url, _: url.startswith("https://localhost:"),
    )

    class Credential:
        def get_token(self, *_scopes: str, **_options: object):
            return SimpleNamespace(token="t", expires_on=int(time.time()) + 3600)

    lend = answer(200, KEY_ANSWER.encode(), Content_Type="application/xml")
    with scripted_server(lambda _: lend, tls=serving(certificate)) as server:
        container = Container(
            f"https://localhost:{server.port}/data", Identity(Tokens(Credential()))
        )
        store = AzureStore(container, lambda error: EnvironmentFailure(error.text))
        fields = dict(parse_qsl(store.read_only_sas("set/", 3600)))
    (asked,) = server.asked
    assert asked.line.startswith("POST /?restype=service&comp=userdelegationkey ")
    assert (fields["sp"], fields["sr"], fields["sktid"][-1]) == ("rl", "c", "2")
    ends = datetime.datetime.fromisoformat(fields["se"]).timestamp()
    assert 3500 < ends - time.time() < 3700


def test_a_sas_of_the_local_store_is_read_by_who_reads_sas_files(tmp_path):
    environment = environment_of(tmp_path, "http://127.0.0.1:1/account")
    token = _connect(environment, "data", None).read_only_sas("", 60)
    (tmp_path / "sas").write_text(token)
    assert SasFile(tmp_path / "sas").token == token


def test_a_firewall_is_named_only_where_there_is_one(tmp_path):
    (tmp_path / "sas").write_text("sv=1&sig=a")
    (tmp_path / "sas").chmod(0o600)
    for name in ("local", "azure"):
        (tmp_path / name).mkdir()
    local = environment_of(tmp_path / "local", "http://127.0.0.1:10000/account")
    azure = environment_of(tmp_path / "azure", "https://account.example", key=None)
    error = StoreError(403, "AuthorizationFailure", "AuthorizationFailure")

    def said(environment: Environment, sas_file: Path | None) -> tuple[str, str | None]:
        explained = _explain(environment, "data", sas_file, error)
        return explained.message, explained.hint

    sas = tmp_path / "sas"
    of_sas = f"check that the SAS in `{sas}` is for this container and allows this"
    refused = "the store http://127.0.0.1:10000/account refuses access: AuthorizationFailure"
    assert said(local, sas) == (refused, of_sas)
    assert said(local, None) == (refused, f"launch env check -s {local.stack}")
    closed = "the firewall of https://account.example blocks this machine's"
    vpn = "connect by VPN or peering, or add the address to `allowed_ips` of the stack"
    assert said(azure, None) == (f"{closed} address", vpn)
    either = f"{closed} address, or the SAS does not allow this"
    assert said(azure, sas) == (either, f"{vpn}; {of_sas}")


def test_an_identity_that_is_sought_in_vain_is_not_told_of_twice(tmp_path):
    """Without a handler Python writes what azure-identity warns of to stderr."""
    environment = environment_of(tmp_path, "https://account.blob.core.windows.net", key=None)
    (tmp_path / "environment.json").write_bytes(msgspec.json.encode(environment))
    program = """
import logging, sys
from pathlib import Path
import msgspec
from jobs.blobs.credentials import our_tokens
from jobs.contracts.spec import Environment
from jobs.blobs.store import open_data_store
open_data_store(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Environment))
our_tokens().credential
logging.getLogger("azure.identity._credentials.chained").warning("no token")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "environment.json"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_plain_http_is_for_this_machine_only(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("no_proxy", "is_direct"),
    [
        ("", False),
        ("*", True),
        ("windows.net", True),
        (".windows.net", True),
        ("other.net, account.blob.core.windows.net", True),
        ("account.blob.core.windows.net:443", True),
        ("account.blob.core.windows.net:8443", False),
        ("dows.net", False),
        ("10.0.0.0/8", False),
    ],
)
def test_no_proxy_names_domains_and_ports(monkeypatch, no_proxy, is_direct):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    container = Container(
        "https://account.blob.core.windows.net/data", SharedKey("account", "a2V5")
    )
    assert container.proxy == (None if is_direct else "http://proxy.example:3128")


def test_a_proxy_of_another_protocol_is_told_nothing(tmp_path, monkeypatch):
    environment = environment_of(tmp_path, "https://account.blob.core.windows.net", key=None)
    (tmp_path / "sas").write_text("sv=1&sig=a")
    (tmp_path / "sas").chmod(0o600)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "socks5://user:secret@proxy.example:8443")
    with pytest.raises(EnvironmentFailure) as caught:
        open_data_store(environment, sas_file=tmp_path / "sas")
    assert (caught.value.message, caught.value.hint) == (
        "the proxy socks5://proxy.example is not spoken to over socks5",
        "export https_proxy=http://HOST:PORT",
    )
