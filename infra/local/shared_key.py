"""Speaks to a blob store on loopback with its account key: list containers, create one.

azure-storage-blob would do, at 0.3 s of import in every `pulumi up` that starts the store.
Signing: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException

API_VERSION = "2021-12-02"


class StoreError(Exception):
    """The store does not answer, or answers with an error."""


def list_containers(port: int, account: str, key: str, *, timeout_s: float = 5) -> set[str]:
    """Names of all containers. Raises StoreError, also when the store has another key."""
    body = _request("GET", port, account, key, query={"comp": "list"}, timeout_s=timeout_s)
    return set(re.findall(r"<Container><Name>([^<]*)</Name>", body))


def create_container(port: int, account: str, key: str, name: str, *, timeout_s: float = 5) -> None:
    """Create a container; silent when it is there already."""
    query = {"restype": "container"}
    _request("PUT", port, account, key, path=f"/{name}", query=query, timeout_s=timeout_s)


def _request(
    method: str,
    port: int,
    account: str,
    key: str,
    *,
    query: dict[str, str],
    timeout_s: float,
    path: str = "/",
) -> str:
    path = f"/{account}{path}"
    headers = {
        "x-ms-date": formatdate(usegmt=True),
        "x-ms-version": API_VERSION,
        "Content-Length": "0",
    }
    signature = _sign(key, _string_to_sign(method, account, path, query, headers))
    headers["Authorization"] = f"SharedKey {account}:{signature}"
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        target = path + "?" + "&".join(f"{name}={value}" for name, value in query.items())
        connection.request(method, target, headers=headers)
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        message = f"no answer from 127.0.0.1:{port}: {error}"
        raise StoreError(message) from error
    finally:
        connection.close()
    if response.status == 409 and "ContainerAlreadyExists" in body:
        return body
    if response.status >= 300:
        message = f"{method} {path} on port {port}: {response.status} {response.reason}"
        raise StoreError(message)
    return body


def _string_to_sign(
    method: str, account: str, path: str, query: dict[str, str], headers: dict[str, str]
) -> str:
    # Twelve standard headers follow the method; an empty body counts as no length.
    standard = [""] * 11
    ms_headers = "".join(
        f"{name}:{value}\n" for name, value in sorted(headers.items()) if name.startswith("x-ms-")
    )
    # A store under an IP address has the account in the path, and so twice in the resource.
    resource = f"/{account}{path}"
    resource += "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
    return "\n".join([method, *standard]) + "\n" + ms_headers + resource


def _sign(key: str, text: str) -> str:
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
