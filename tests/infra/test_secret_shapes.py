"""The search for secrets finds each kind; tests/contract and azure_stack search with it."""

from __future__ import annotations

import pytest

from tests.secret_shapes import SHAPES, find_secrets

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PLANTED = {
    "signature of a SAS": "https://ty.blob.core.windows.net/data?sv=2024-11-04&sig=abcDEF123%2Babcdefghij%3D",
    "connection string": "InstrumentationKey=0a1b2c3d-0000-4000-8000-00000000a2ee;Region=x",
    "token": "Bearer eyJhbGciOiJSUzI1NiIs.eyJhdWQiOiJodHRwczov.c2lnbmF0dXJl",
    "account key": f'"key": "{KEY}"',
    "private key": "-----BEGIN RSA PRIVATE KEY-----",
    "secret of an application": "abc8Q~abcdefghijklmnopqrstuvwxyz01234567",
}


@pytest.mark.parametrize("kind", SHAPES)
def test_each_kind_is_found(kind):
    assert [each.partition(":")[0] for each in find_secrets(PLANTED[kind])] == [kind]
