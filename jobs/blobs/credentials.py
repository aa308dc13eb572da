"""Gets tokens from whatever DefaultAzureCredential finds; asks for no key of any service.

A credential asks its source anew for each token (`az` takes a second), so the process has one of
each kind, which all that ask Azure share; never on a disk.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.contracts.errors import EnvironmentFailure, Unreached

MANAGEMENT_SCOPE = "https://management.azure.com/.default"
STORAGE_SCOPE = "https://storage.azure.com/.default"
INSTALL_HINT = "pip install 'trainyard[azure]', in a clone uv sync --extra azure"
# A token that ends sooner is renewed.
_SPARE_S = 300.0
# Where no other comes, this one is asked for again so much later.
_PAUSE_S = 30.0
# How `az`, MSAL and azure-core say that nobody answered.
_NO_NETWORK = re.compile(
    r"max retries exceeded|network connection|network is unreachable|read timed out"
    r"|connection (aborted|broken|error|refused|reset|timed out)|failed to (establish|resolve)"
    r"|name resolution|name or service not known|nodename nor servname|getaddrinfo"
    r"|failed to invoke the azure cli",
    re.IGNORECASE,
)
# How they say that the login itself is throttled, or out of order.
# The numbers: https://learn.microsoft.com/entra/identity-platform/reference-error-codes
_BUSY = re.compile(
    r"AADSTS(90006|90024|90033|90055)\b|HTTP Error: (429|5\d\d)|too many requests"
    r"|temporarily_unavailable",
    re.IGNORECASE,
)
_LONGEST = 300
# It looks for a service that only Azure's own machines have.
_SOURCE_OF_NODES = "ManagedIdentityCredential"


@dataclass(frozen=True, kw_only=True)
class _Kept:
    header: str
    renew_at_s: float
    ends_s: float


class Tokens:
    """Tokens of a credential (the process's own where none is given), renewed before they end.

    May be used by several threads.
    """

    def __init__(self, credential: Any = None) -> None:
        self._given, self._found = credential, credential
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.RLock()

    @property
    def credential(self) -> Any:
        """Whose tokens these are; nothing is asked of Azure yet."""
        with self._lock:
            if self._found is None:
                self._found = _found_credential()
            return self._found

    def header(self, scope: str) -> str:
        """Give the Authorization header.

        Raises EnvironmentFailure where nobody is logged in, Unreached where that cannot be told.
        """
        with self._lock:
            kept = self._kept.get(scope)
            if kept is not None and time.time() < kept.renew_at_s:
                return kept.header
            try:
                return self._ask(scope)
            except Unreached:
                if kept is None or time.time() >= kept.ends_s:
                    raise
                return kept.header

    def renew(self, scope: str, refused: str) -> bool:
        """Ask again after a header was refused (401); whether there is another one now."""
        with self._lock:
            kept = self._kept.get(scope)
            if kept is not None and kept.header != refused:
                return True  # somebody else was refused, too, and has asked
            self._kept.pop(scope, None)
            # The one that there is would give the same token, until its time is over.
            self._found = self._given
            return self._ask(scope) != refused

    def _ask(self, scope: str) -> str:
        credential = self.credential
        from azure.core.exceptions import AzureError

        try:
            token = credential.get_token(scope)
        except AzureError as error:
            raise no_token(error) from error
        self._kept[scope] = _Kept(
            header=f"Bearer {token.token}",
            renew_at_s=max(
                token.expires_on - _SPARE_S, min(time.time() + _PAUSE_S, token.expires_on)
            ),
            ends_s=token.expires_on,
        )
        return self._kept[scope].header


@cache
def our_tokens() -> Tokens:
    """Return the tokens that this process shares."""
    return Tokens()


def no_token(error: Exception) -> EnvironmentFailure:
    """Say why no token came; the credential's own text goes on for a page."""
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    text = str(getattr(error, "message", "") or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    of_login = [line for line in lines if not line.startswith(_SOURCE_OF_NODES)]
    if busy := next((line for line in of_login if _BUSY.search(line)), ""):
        message = f"Azure's login service is busy or out of order: {busy[:_LONGEST]}"
        return Unreached(message, hint="type the same again in a minute")
    told = next((line for line in lines if "AADSTS" in line), "")
    if not told:
        silent = [line for line in of_login if _NO_NETWORK.search(line)]
        if isinstance(error, ServiceRequestError | ServiceResponseError):
            silent = silent or lines[:1] or [type(error).__name__]
        if silent:
            message = f"Azure's login cannot be reached: {silent[0][:_LONGEST]}"
            return Unreached(message, hint="type the same again when the network is up")
    told = (told or (lines[0] if lines else "")).partition("Trace ID")[0].strip()
    message = f"not logged in to Azure: {told or 'no identity'}"
    return EnvironmentFailure(message, hint="az login, then type the same again")


def _found_credential() -> Any:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        message = f"azure-identity cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint=INSTALL_HINT) from None
    import logging

    # Says at length, to stderr, which ways to log in it has tried; our error says what to do.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    return DefaultAzureCredential()
