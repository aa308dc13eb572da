"""Proofs of who asks: a SAS in a file, tokens, and to whom they are shown."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from jobs.blobs.authority import Identity, SasFile
from jobs.blobs.container import Container
from jobs.blobs.credentials import Tokens
from jobs.contracts.errors import EnvironmentFailure, LaunchError


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
    assert (given.token, given.credential().signature) == ("sv=1&sig=a%2Bb", "sv=1&sig=a%2Bb")


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
    handed = given.credential()
    with pytest.raises(EnvironmentFailure, match="ended at 2020-01-01T00:00:00Z") as error:
        given.refused(403)
    assert "write a new SAS into the file" in error.value.hint
    file.write_text("se=2099-01-01T00:00:00Z&sig=new")
    assert (given.refused(403), given.token) == (True, "se=2099-01-01T00:00:00Z&sig=new")
    assert handed.signature == given.token
    assert not given.refused(403)


def test_a_role_that_is_missing_is_no_matter_of_the_token():
    asked = []

    class Credential:
        def get_token(self, scope: str):
            asked.append(scope)
            return SimpleNamespace(token=f"t{len(asked)}", expires_on=time.time() + 3600)

    identity = Identity(Tokens(Credential()))
    # Whatever a store says that it wants a token for, it gets the one for stores.
    assert asyncio.run(identity.get_token("https://management.azure.com/.default")).token == "t1"
    assert not identity.refused(403)
    assert identity.refused(401)
    assert asyncio.run(identity.get_token()).token == "t2"
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

    with pytest.raises(EnvironmentFailure, match=r"our login is not sent to `http") as error:
        Container(url, Identity(Tokens(Credential())))
    assert "https://NAME.blob.core.windows.net" in error.value.hint
