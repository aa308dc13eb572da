"""Digests from a registry: a small one on loopback that wants a token, and answers that are wrong."""

import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.images.registry import ImageReference, pin_bases, resolve_digest

MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
A, B = (f"sha256:{digit * 64}" for digit in "ab")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("debian", ("docker.io", "library/debian", "latest", None)),
        ("debian:12-slim", ("docker.io", "library/debian", "12-slim", None)),
        ("nvidia/cuda:13.2.1", ("docker.io", "nvidia/cuda", "13.2.1", None)),
        (
            f"docker.io/library/debian:12@{A}",
            ("docker.io", "library/debian", "12", A),
        ),
        ("nvcr.io/nvidia/pytorch:24.05-py3", ("nvcr.io", "nvidia/pytorch", "24.05-py3", None)),
        ("127.0.0.1:5000/a/b:c", ("127.0.0.1:5000", "a/b", "c", None)),
        ("localhost/a", ("localhost", "a", "latest", None)),
    ],
)
def test_a_reference_is_taken_apart(text, parts):
    host, repository, tag, digest = parts
    assert ImageReference.parse(text) == ImageReference(
        host=host, repository=repository, tag=tag, digest=digest
    )


@pytest.mark.parametrize(
    "text", ["", "UPPER/case", "a b", "https://docker.io/debian", "a@sha256:0", "a:", "-a", "a;b"]
)
def test_what_is_no_reference_is_refused(text):
    with pytest.raises(LaunchError) as caught:
        ImageReference.parse(text)
    assert caught.value.message == f"`{text}` is no image reference"


class Registry(BaseHTTPRequestHandler):
    """Serves one tag to whoever has a token, which it gives to everybody."""

    claimed = DIGEST
    realm = ""

    def do_GET(self):
        asked = urlsplit(self.path)
        if asked.path == "/token":
            assert parse_qs(asked.query)["scope"] == ["repository:yard/base:pull"]
            self.answer(200, json.dumps({"token": "t"}).encode())
        elif self.headers.get("Authorization") != "Bearer t":
            challenge = f'Bearer realm="{self.realm}",service="s",scope="repository:yard/base:pull"'
            self.answer(401, b"{}", {"WWW-Authenticate": challenge})
        elif asked.path == "/v2/yard/base/manifests/1":
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self.answer(200, MANIFEST, {"Docker-Content-Digest": self.claimed})
        else:
            self.answer(404, b"{}")

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(**settings):
    handler = type("Handler", (Registry,), settings)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.realm = settings.get("realm") or f"http://127.0.0.1:{server.server_port}/token"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_digest_is_that_of_the_manifest():
    with serving() as host:
        assert resolve_digest(ImageReference.parse(f"{host}/yard/base:1")) == DIGEST


def test_a_digest_that_is_not_the_manifests_is_refused():
    with serving(claimed=A) as host:
        with pytest.raises(EnvironmentFailure, match=f"says {A} of what is {DIGEST}"):
            resolve_digest(ImageReference.parse(f"{host}/yard/base:1"))


def test_a_tag_that_is_not_there_is_not_found():
    with serving() as host:
        with pytest.raises(NotFound) as caught:
            resolve_digest(ImageReference.parse(f"{host}/yard/base:2"))
    assert caught.value.message == f"{host} has no yard/base:2 for everybody"


@pytest.mark.parametrize("realm", ["http://elsewhere.example/token", "file:///etc/passwd"])
def test_a_token_is_asked_for_over_tls_alone(realm):
    with serving(realm=realm) as host:
        with pytest.raises(EnvironmentFailure, match="asks for"):
            resolve_digest(ImageReference.parse(f"{host}/yard/base:1"))


def test_a_registry_that_does_not_answer_is_named():
    reference = ImageReference.parse("127.0.0.1:1/yard/base:1")
    with pytest.raises(EnvironmentFailure, match=r"registry 127\.0\.0\.1:1 cannot be reached"):
        resolve_digest(reference)


def test_only_the_lines_of_the_arguments_change():
    before = (
        "# ARG BASE_IMAGE=x\nARG BASE_IMAGE=docker.io/a/b:1\nARG CUDA_BASE_IMAGE=c:1\n"
        "FROM ${BASE_IMAGE}\nARG BASE_IMAGE=other\n"
    )
    pinned = ImageReference.parse("docker.io/a/b:1").pinned(A)
    after = pin_bases(before, {"BASE_IMAGE": pinned, "CUDA_BASE_IMAGE": f"c:1@{B}"})
    assert after == (
        f"# ARG BASE_IMAGE=x\nARG BASE_IMAGE=docker.io/a/b:1@{A}\nARG CUDA_BASE_IMAGE=c:1@{B}\n"
        "FROM ${BASE_IMAGE}\nARG BASE_IMAGE=other\n"
    )
