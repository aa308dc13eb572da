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
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlsplit

from jobs.errors import EnvironmentFailure, LaunchError

# Spoken on the wire; Azurite and every cloud know it.
API_VERSION = "2023-11-03"
_SCOPE = "https://storage.azure.com/.default"
# A token that ends sooner is renewed.
_SPARE_S = 300.0
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

    def refused(self) -> bool:
        """Look for newer proof after a refusal; whether there is some."""
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

    def refused(self) -> bool:
        """See Authority; a key does not change."""
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

    def refused(self) -> bool:
        """See Authority."""
        return False


class SasFile:
    """A SAS that somebody gave us in a file; read again where the store refuses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read()

    def query(self) -> str:
        """See Authority."""
        return self._token

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        """See Authority; the query says it all."""
        del method, path, query, headers

    def refused(self) -> bool:
        """See Authority. Raises EnvironmentFailure for a SAS that has ended."""
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
    """Whoever DefaultAzureCredential finds us to be; tokens are renewed before they end."""

    def __init__(self, credential: Any) -> None:
        self.credential = credential
        self._header = ""
        self._renew_at = 0.0

    def query(self) -> str:
        """See Authority."""
        return ""

    def header(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> str:
        """See Authority; asks for a token where the one there is ends soon."""
        del method, path, query, headers
        if time.time() >= self._renew_at:
            token = self._token()
            self._header = f"Bearer {token.token}"
            self._renew_at = max(token.expires_on - _SPARE_S, time.time() + 30)
        return self._header

    def refused(self) -> bool:
        """See Authority."""
        if not self._header:
            return False
        before, self._renew_at = self._header, 0.0
        return self.header("", "", {}, {}) != before

    def _token(self) -> Any:
        from azure.core.exceptions import AzureError

        try:
            return self.credential.get_token(_SCOPE)
        except AzureError as error:
            reason = (error.message.splitlines() or [type(error).__name__])[0]
            message = f"no identity of Azure is found: {reason}"
            raise EnvironmentFailure(
                message, hint="az login, with a role on the store as Storage Blob Data Contributor"
            ) from error
