"""Sign requests to the store with the account's key, a SAS or an Azure identity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from jobs.blobs.credentials import STORAGE_SCOPE, Tokens
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host.units import now_in_seconds
from jobs.rank.hosts import STORES, is_azures


class Authority(Protocol):
    """A proof that requests are ours."""

    def credential(self) -> Any:
        """Give what azure-storage-blob's clients take as their credential."""
        ...

    def refused(self, status: int) -> bool:
        """Look for newer proof after a refusal (401 or 403); tell whether there is some."""
        ...


class SharedKey:
    """The account's own key: only the local store's is ever on a disk."""

    def __init__(self, account: str, key: str) -> None:
        self.account = account
        self.key = key

    def credential(self) -> Any:
        """Return the account's name and key as the SDK takes them."""
        return {"account_name": self.account, "account_key": self.key}

    def refused(self, status: int) -> bool:
        """Return False: a key does not change."""
        del status
        return False


class Sas:
    """A SAS that a service issued for one task."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._handed: list[Any] = []

    def credential(self) -> Any:
        """Return the SAS; a later one reaches the clients that hold this object."""
        from azure.core.credentials import AzureSasCredential

        made = AzureSasCredential(self.token)
        self._handed.append(made)
        return made

    def refused(self, status: int) -> bool:
        """Return False: a SAS that was handed over has no newer one."""
        del status
        return False

    def _replace(self, token: str) -> None:
        self.token = token
        for each in self._handed:
            each.update(token)


class SasFile(Sas):
    """A SAS that somebody gave us in a file; read again where the store refuses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(_read_sas(path))

    def refused(self, status: int) -> bool:
        """Read the file anew, tell whether it changed; raise EnvironmentFailure for a SAS that has ended."""
        del status
        before = self.token
        self._replace(_read_sas(self.path))
        if self.token != before:
            return True
        ends = dict(parse_qsl(self.token)).get("se", "")
        if ends and ends < now_in_seconds()[: len(ends)]:
            message = f"the SAS in `{self.path}` ended at {ends}"
            raise EnvironmentFailure(
                message, hint="write a new SAS into the file; files that were sent already are kept"
            )
        return False


def _read_sas(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        message = f"the SAS in `{path}` cannot be read: {reason}"
        raise LaunchError(message, hint="the file must hold a SAS token or a SAS URL") from None
    token = urlsplit(text).query if "://" in text else text.lstrip("?")
    if "sig=" not in token or not token.isascii() or not token.isprintable() or " " in token:
        message = f"`{path}` holds no SAS"
        raise LaunchError(message, hint="a file with a SAS token (sv=...&sig=...), or a SAS URL")
    return token


class Identity:
    """Whoever we are to Azure."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._shown = ""

    def credential(self) -> Any:
        """Return the credential whose tokens are this process's."""
        return self

    async def get_token(self, *_scopes: str, **_: object) -> Any:
        """Return an access token; `Tokens` renews one that ends soon."""
        from azure.core.credentials import AccessToken

        self._shown = self.tokens.header(STORAGE_SCOPE)
        # `Tokens` says when it ends: the client shall ask each time.
        return AccessToken(self._shown.removeprefix("Bearer "), int(time.time()))

    async def close(self) -> None:
        """Close nothing: the process keeps its tokens."""

    def refused(self, status: int) -> bool:
        """Renew the token after a 401; False after a 403, as no token brings a missing role."""
        return status == 401 and self.tokens.renew(STORAGE_SCOPE, self._shown)


def check_store(url: str, proof: str = "our login") -> None:
    """Raise EnvironmentFailure where an address, to be shown our proof, is of no store of Azure."""
    if not is_azures(url, STORES):
        address = "/".join(url.split("/")[:3])
        message = f"{proof} is not sent to `{address}`, which is not an Azure store"
        hint = "check who wrote the environment file: a store is https://NAME.blob.core.windows.net"
        raise EnvironmentFailure(message, hint=hint)
