"""Tokens: one of each kind in a process, renewed before it ends, and what it means that none comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError

from jobs.blobs.credentials import MANAGEMENT_SCOPE, STORAGE_SCOPE, Tokens
from jobs.contracts.errors import EnvironmentFailure, Unreached

HOUR_S = 3600.0


class Credential:
    """Gives tokens that last so long, in this order; an error is raised in its turn."""

    def __init__(self, *turns: float | Exception) -> None:
        self.turns = list(turns)
        self.num_asked = 0

    def get_token(self, scope: str) -> Any:
        self.num_asked += 1
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        token = f"{scope}{self.num_asked}"
        return SimpleNamespace(token=token, expires_on=time.time() + turn)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock on."""

    def move(by_s: float) -> None:
        now_s = time.time
        monkeypatch.setattr("jobs.blobs.credentials.time.time", lambda: now_s() + by_s)

    return move


def test_a_token_of_each_kind_is_asked_for_once_by_many_threads():
    credential = Credential(HOUR_S, HOUR_S)
    tokens = Tokens(credential)
    for scope in (MANAGEMENT_SCOPE, STORAGE_SCOPE):
        with ThreadPoolExecutor(8) as pool:
            given = set(pool.map(tokens.header, [scope] * 32))
        assert given == {f"Bearer {scope}{credential.num_asked}"}
    assert credential.num_asked == 2


def test_a_token_is_renewed_before_it_ends(later):
    credential = Credential(HOUR_S, HOUR_S)
    tokens = Tokens(credential)
    first = tokens.header(STORAGE_SCOPE)
    later(HOUR_S - 310)
    assert tokens.header(STORAGE_SCOPE) == first
    later(20)
    assert tokens.header(STORAGE_SCOPE) != first
    assert credential.num_asked == 2


def test_a_token_serves_to_its_end_where_nobody_gives_another(later):
    lost = ServiceRequestError("Failed to resolve 'login.microsoftonline.com'")
    tokens = Tokens(Credential(HOUR_S, lost, lost, HOUR_S))
    first = tokens.header(STORAGE_SCOPE)
    later(HOUR_S - 100)
    assert tokens.header(STORAGE_SCOPE) == first
    later(200)
    with pytest.raises(Unreached):
        tokens.header(STORAGE_SCOPE)
    assert tokens.header(STORAGE_SCOPE) not in ("", first)


def test_a_refused_token_is_renewed_once_for_all_that_held_it():
    credential = Credential(HOUR_S, HOUR_S, HOUR_S)
    tokens = Tokens(credential)
    first = tokens.header(STORAGE_SCOPE)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(tokens.renew, [STORAGE_SCOPE] * 8, [first] * 8))
    second = tokens.header(STORAGE_SCOPE)
    assert (second != first, credential.num_asked) == (True, 2)
    assert tokens.renew(STORAGE_SCOPE, second)
    assert credential.num_asked == 3


def test_the_same_token_again_is_no_renewal():
    class Stubborn:
        def get_token(self, _scope: str) -> Any:
            return SimpleNamespace(token="t", expires_on=time.time() + HOUR_S)

    tokens = Tokens(Stubborn())
    assert not tokens.renew(STORAGE_SCOPE, tokens.header(STORAGE_SCOPE))


CHAIN = (
    "DefaultAzureCredential failed to retrieve a token from the included credentials.\n"
    "Attempted credentials:\n"
    "\tEnvironmentCredential: EnvironmentCredential authentication unavailable.\n"
    "\tManagedIdentityCredential: ManagedIdentityCredential authentication unavailable. Error: "
    "connecting to 169.254.169.254:80: dial tcp: connection refused, network is unreachable\n"
)
POOL = (
    "HTTPSConnectionPool(host='login.microsoftonline.com', port=443): Max retries exceeded with "
    "url: /organizations/oauth2/v2.0/token (Caused by NewConnectionError(': Failed to establish a "
    "new connection: [Errno -3] Temporary failure in name resolution'))"
)


@pytest.mark.parametrize(
    "error",
    [
        ServiceRequestError("Failed to resolve 'login.microsoftonline.com'"),
        ServiceRequestError(""),
        CredentialUnavailableError(message="Failed to invoke the Azure CLI"),
        CredentialUnavailableError(message=f"ERROR: {POOL}"),
        ClientAuthenticationError(message=f"Authentication failed: {POOL}"),
        ClientAuthenticationError(message=f"{CHAIN}\tAzureCliCredential: ERROR: {POOL}\n"),
        ClientAuthenticationError(
            message=f"{CHAIN}\tAzureCliCredential: Please ensure you have network connection."
        ),
    ],
)
def test_a_login_that_nobody_answers_is_not_taken_for_none(error: Exception):
    with pytest.raises(Unreached, match=r"^Azure's login cannot be reached: .") as raised:
        Tokens(Credential(error)).header(MANAGEMENT_SCOPE)
    assert raised.value.hint == "type the same again when the network is up"
    assert "169.254" not in raised.value.message


# As azure-identity 1.25 says it of a login that answers with 429 or 500.
@pytest.mark.parametrize(
    "said",
    [
        "EnvironmentCredential: Authentication failed: {'code': 'temporarily_unavailable'}",
        "EnvironmentCredential: Authentication failed: HTTP Error: 500",
        "AzureCliCredential: ERROR: AADSTS90055: There are too many incoming requests.",
    ],
)
def test_a_login_that_is_busy_is_waited_for(said: str):
    error = ClientAuthenticationError(message=f"{CHAIN}\t{said}\n")
    with pytest.raises(Unreached) as raised:
        Tokens(Credential(error)).header(MANAGEMENT_SCOPE)
    assert raised.value.message == f"Azure's login service is busy or out of order: {said}"
    assert raised.value.hint == "type the same again in a minute"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ClientAuthenticationError(
                message=f"{CHAIN}\tAzureCliCredential: Please run 'az login' to set up an account"
            ),
            "DefaultAzureCredential failed to retrieve a token from the included credentials.",
        ),
        (
            CredentialUnavailableError(
                message="ERROR: AADSTS70043: The refresh token has expired. Trace ID: 1\n"
                "Please ensure you have network connection"
            ),
            "ERROR: AADSTS70043: The refresh token has expired.",
        ),
    ],
)
def test_who_is_not_logged_in_is_told_in_one_line(error: Exception, told: str):
    with pytest.raises(EnvironmentFailure) as raised:
        Tokens(Credential(error)).header(MANAGEMENT_SCOPE)
    assert not isinstance(raised.value, Unreached)
    assert raised.value.message == f"not logged in to Azure: {told}"
    assert raised.value.hint == "az login, then type the same again"
