"""Proves to the store who asks: by the account's key, a SAS in a file, or an identity of Azure.

The rules of signing: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
and .../create-service-sas
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, quote, urlsplit

from jobs.blobs.credentials import STORAGE_SCOPE, Tokens
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.rank.hosts import STORES, is_azures

# Spoken on the wire; Azurite and every cloud know it.
API_VERSION = "2023-11-03"
# The headers whose values are signed, in their order; `content-length` counts only over 0.
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class Authority(Protocol):
    """What makes a request one of ours."""

    def query(self) -> str:
        """What each URL's query ends with; empty for none."""
        ...

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> str | None:
        """Give the Authorization header; `path` as it is on the wire, header names lower case."""
        ...

    def refused(self, status: int, header: str | None) -> bool:
        """Look for newer proof after a refusal (401 or 403); whether there is some."""
        ...


class SharedKey:
    """The account's own key: only the local store's is ever on a disk."""

    def __init__(self, account: str, key: str) -> None:
        self.account = account
        self._key = base64.b64decode(key)

    def query(self) -> str:
        """See Authority."""
        return ""

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> str:
        """See Authority."""
        values = [headers.get(name, "") for name in _SIGNED]
        if values[2] == "0":
            values[2] = ""
        ours = "".join([f"{n}:{headers[n]}\n" for n in sorted(headers) if n.startswith("x-ms-")])
        # A store under an IP address has the account in the path, and so twice in the resource.
        resource = f"/{self.account}{path}"
        if query:
            resource += "".join([f"\n{name}:{query[name]}" for name in sorted(query)])
        text = "\n".join((method, *values, ours + resource))
        return f"SharedKey {self.account}:{self.sign(text)}"

    def sign(self, text: str) -> str:
        """HMAC-SHA256 under the key, in base64."""
        return base64.b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode()

    def refused(self, status: int, header: str | None) -> bool:
        """See Authority; a key does not change."""
        del status, header
        return False

    def container_sas(self, container: str, permissions: str, expires: str) -> str:
        """Give a service SAS of one container; `permissions` as `rl`, `expires` ISO 8601, UTC."""
        fields = {"se": expires, "sp": permissions, "sv": API_VERSION, "sr": "c"}
        resource = f"/blob/{self.account}/{container}"
        # Start, identifier, IP range and protocol are left open, and so are snapshot, encryption
        # scope and the five headers that a SAS may override.
        text = "\n".join(
            (permissions, "", expires, resource, "", "", "", API_VERSION, "c", "", "", *[""] * 5)
        )
        fields["sig"] = self.sign(text)
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


class Sas:
    """A SAS that a service gave us for one task; there is no other."""

    def __init__(self, token: str) -> None:
        self._token = token

    def query(self) -> str:
        """See Authority."""
        return self._token

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        """See Authority; the query says it all."""
        del method, path, query, headers

    def refused(self, status: int, header: str | None) -> bool:
        """See Authority."""
        del status, header
        return False


class SasFile(Sas):
    """A SAS that somebody gave us in a file; read again where the store refuses it."""

    def __init__(self, path: Path) -> None:
        super().__init__("")
        self._path = path
        self._read()

    def refused(self, status: int, header: str | None) -> bool:
        """See Authority. Raises EnvironmentFailure for a SAS that has ended."""
        del status, header
        before = self._token
        self._read()
        if self._token != before:
            return True
        ends = dict(parse_qsl(self._token)).get("se", "")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if ends and ends < now[: len(ends)]:
            message = f"the SAS in `{self._path}` ended at {ends}"
            raise EnvironmentFailure(
                message, hint="write a new one there; what was sent already stays"
            )
        return False

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            message = f"the SAS in `{self._path}` cannot be read: {reason}"
            raise LaunchError(message, hint="a file with a SAS token, or a SAS URL") from None
        token = urlsplit(text).query if "://" in text else text.lstrip("?")
        if "sig=" not in token or not token.isascii() or not token.isprintable() or " " in token:
            message = f"`{self._path}` holds no SAS"
            raise LaunchError(
                message, hint="a file with a SAS token (sv=...&sig=...), or a SAS URL"
            )
        self._token = token


class Identity:
    """Whoever we are to Azure."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def query(self) -> str:
        """See Authority."""
        return ""

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> str:
        """See Authority; asks for a token where the one there is ends soon."""
        del method, path, query, headers
        return self.tokens.header(STORAGE_SCOPE)

    def refused(self, status: int, header: str | None) -> bool:
        """See Authority; a role that is missing comes with no token."""
        return status == 401 and self.tokens.renew(STORAGE_SCOPE, header or "")


def check_store(url: str, proof: str = "our login") -> None:
    """Raise EnvironmentFailure where an address, to be shown our proof, is of no store of Azure."""
    if not is_azures(url, STORES):
        address = "/".join(url.split("/")[:3])
        message = f"{proof} is not shown to `{address}`, which is no store of Azure"
        hint = "see who wrote the environment's file: a store is https://NAME.blob.core.windows.net"
        raise EnvironmentFailure(message, hint=hint)
