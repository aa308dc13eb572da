"""Who we are to Azure: whoever DefaultAzureCredential finds; no key of any service is ever asked for.

A credential asks its source anew for each token (`az` takes a second), so tokens are kept in the
process, and never on a disk.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from jobs.errors import EnvironmentFailure

MANAGEMENT_SCOPE = "https://management.azure.com/.default"
# A token that ends sooner is renewed.
_SPARE_S = 300.0


@cache
def azure_credential() -> Any:
    """The process's one credential; nothing is asked of Azure yet."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        message = f"azure-identity cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint="uv sync --extra azure") from None
    import logging

    # Says at length, to stderr, which ways to log in it has tried; our error says what to do.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    return DefaultAzureCredential()


class Tokens:
    """Tokens of a credential (the process's own where none is given), renewed before they end."""

    def __init__(self, credential: Any = None) -> None:
        self._given = credential
        self._kept: dict[str, tuple[str, float]] = {}

    @property
    def credential(self) -> Any:
        """Whose tokens these are."""
        return self._given or azure_credential()

    def header(self, scope: str) -> str:
        """The Authorization header; raises EnvironmentFailure where nobody is logged in."""
        header, renew_at_s = self._kept.get(scope, ("", 0.0))
        if time.time() < renew_at_s:
            return header
        token = self._ask(scope)
        kept = f"Bearer {token.token}", max(token.expires_on - _SPARE_S, time.time() + 30)
        self._kept[scope] = kept
        return kept[0]

    def renew(self, scope: str) -> bool:
        """Ask again after a refusal; whether another token came."""
        before, _ = self._kept.pop(scope, ("", 0.0))
        # The one that there is would give the same token, until its time is over.
        azure_credential.cache_clear()
        return self.header(scope) != before

    def _ask(self, scope: str) -> Any:
        credential = self.credential
        from azure.core.exceptions import AzureError

        try:
            return credential.get_token(scope)
        except AzureError as error:
            raise not_logged_in(error) from error


def not_logged_in(error: Any) -> EnvironmentFailure:
    """Say what a failed login means; the credential's own text goes on for a page."""
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines()]
    told = next((line for line in lines if "AADSTS" in line), lines[0] if lines else "")
    message = f"not logged in to Azure: {told.partition('Trace ID')[0].strip() or 'no identity'}"
    return EnvironmentFailure(message, hint="az login, then the same again")
