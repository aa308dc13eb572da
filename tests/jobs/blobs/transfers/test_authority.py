"""How requests are signed, with azure-storage-blob as the judge."""

from __future__ import annotations

import time
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.rest import HttpRequest
from azure.storage.blob import generate_container_sas
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

from jobs.blobs.credentials import Tokens
from jobs.blobs.transfers.authority import API_VERSION, Identity, SasFile, SharedKey
from jobs.blobs.transfers.container import Container
from jobs.contracts.errors import EnvironmentFailure, LaunchError

ACCOUNT, KEY = "trainyard", "a2V5IG9mIHRoZSBhY2NvdW50"


class SdkRequest(HttpRequest):
    """Old and new requests of the SDK differ in `query`, which its policy reads."""

    @property
    def query(self):
        pairs = (pair.partition("=") for pair in self.url.partition("?")[2].split("&"))
        return {name: value for name, _, value in pairs if name}


@pytest.mark.parametrize(
    ("method", "path", "query", "ask", "headers"),
    [
        ("GET", "/trainyard/data", {}, "", {}),
        (
            "GET",
            "/trainyard/data",
            {"restype": "container", "comp": "list", "prefix": "a b/ü&="},
            "restype=container&comp=list&prefix=a%20b%2F%C3%BC%26%3D",
            {},
        ),
        (
            "PUT",
            "/data/a%20b%23%25%3F/%E6%97%A5",
            {},
            "",
            {
                "content-length": "110000",
                "content-md5": "1B2M2Y8AsgTpgAmY7PhCfg==",
                "x-ms-blob-type": "BlockBlob",
            },
        ),
        ("PUT", "/data/empty", {}, "", {"content-length": "0", "if-none-match": "*"}),
        (
            "PUT",
            "/data/large",
            {"comp": "block", "blockid": "AAAA+/=="},
            "comp=block&blockid=AAAA%2B%2F%3D%3D",
            {"content-length": "8388608", "x-ms-lease-id": "z"},
        ),
        ("GET", "/data/x", {}, "", {"x-ms-range": "bytes=0-7", "if-match": '"0x8D"'}),
        ("DELETE", "/data/x", {}, "", {"content-length": "0"}),
    ],
)
def test_a_request_is_signed_as_the_sdk_signs_it(method, path, query, ask, headers):
    headers = {"x-ms-date": "Sat, 21 Nov 2026 17:00:00 GMT", "x-ms-version": API_VERSION, **headers}
    url = f"http://127.0.0.1:10000{path}" + (f"?{ask}" if ask else "")
    request = SdkRequest(method, url, headers=headers)
    context = PipelineContext(SimpleNamespace())
    SharedKeyCredentialPolicy(ACCOUNT, KEY).on_request(PipelineRequest(request, context))
    ours = SharedKey(ACCOUNT, KEY).header(method, path, query, headers)
    assert ours == request.headers["Authorization"]


def test_a_containers_sas_is_the_sdks(monkeypatch):
    ends = "2026-11-22T17:00:00Z"
    theirs = dict(
        parse_qsl(
            generate_container_sas(ACCOUNT, "data", account_key=KEY, permission="rl", expiry=ends)
        )
    )
    # The SDK signs for its own newest version, which is part of what is signed.
    monkeypatch.setattr("jobs.blobs.transfers.authority.API_VERSION", theirs["sv"])
    assert dict(parse_qsl(SharedKey(ACCOUNT, KEY).container_sas("data", "rl", ends))) == theirs


@pytest.mark.parametrize(
    "written",
    [
        "sv=1&sig=a%2Bb",
        "?sv=1&sig=a%2Bb\n",
        "https://account.blob.core.windows.net/c?sv=1&sig=a%2Bb",
    ],
)
def test_a_sas_is_read_from_a_token_or_a_url(tmp_path, written):
    (tmp_path / "sas").write_text(written)
    given = SasFile(tmp_path / "sas")
    assert (given.query(), given.header("GET", "/", {}, {})) == ("sv=1&sig=a%2Bb", None)


@pytest.mark.parametrize("written", ["", "hello", "sv=1&sig=a b", "sv=1&sig=a\r\nx: y", "sig=ü"])
def test_what_is_no_sas_is_refused_without_being_shown(tmp_path, written):
    (tmp_path / "sas").write_bytes(written.encode())
    with pytest.raises(LaunchError, match=r"sas` holds no SAS") as error:
        SasFile(tmp_path / "sas")
    assert not written or written not in str(error.value)


def test_a_missing_sas_is_named(tmp_path):
    with pytest.raises(LaunchError, match="sas` cannot be read: No such file"):
        SasFile(tmp_path / "sas")


def test_a_refused_sas_is_read_again_and_an_ended_one_named(tmp_path):
    file = tmp_path / "sas"
    file.write_text("se=2020-01-01T00:00:00Z&sig=old")
    given = SasFile(file)
    with pytest.raises(EnvironmentFailure, match="ended at 2020-01-01T00:00:00Z") as error:
        given.refused(403, None)
    assert "write a new one there" in error.value.hint
    file.write_text("se=2099-01-01T00:00:00Z&sig=new")
    assert (given.refused(403, None), given.query()) == (True, "se=2099-01-01T00:00:00Z&sig=new")
    assert not given.refused(403, None)


def test_a_role_that_is_missing_is_no_matter_of_the_token():
    asked = []

    class Credential:
        def get_token(self, scope: str):
            asked.append(scope)
            return SimpleNamespace(token=f"t{len(asked)}", expires_on=time.time() + 3600)

    identity = Identity(Tokens(Credential()))
    assert identity.header("GET", "/", {}, {}) == "Bearer t1"
    assert not identity.refused(403, "Bearer t1")
    assert identity.refused(401, "Bearer t1")
    assert identity.header("GET", "/", {}, {}) == "Bearer t2"
    assert asked == ["https://storage.azure.com/.default"] * 2


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/data",
        "http://account.blob.core.windows.net/data",
        "https://account.blob.core.windows.net@evil.example/data",
        "https://account.blob.core.windows.net:444/data",
        "https://account.blob.core.windows.net.evil.example/data",
        "https://accountblob.core.windows.net/data",
        "https://evil.example/.blob.core.windows.net/data",
        "http://127.0.0.1:10000/account/data",
    ],
)
def test_our_login_is_shown_to_stores_of_azure_only(url):
    class Credential:
        def get_token(self, _scope: str):
            raise AssertionError

    with pytest.raises(EnvironmentFailure, match=r"our login is not shown to `http") as error:
        Container(url, Identity(Tokens(Credential())))
    assert "https://NAME.blob.core.windows.net" in error.value.hint
    Container(url, SharedKey(ACCOUNT, KEY))
