"""Talks to the blob store or the key vault as the node's identity: one request, tried a few times."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import random
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from jobs.rank.hosts import STORES, VAULTS, is_azures
from jobs.rank.identity import STORAGE, VAULT, Identity, NodeFailure

BLOB_VERSION = "2021-12-02"
VAULT_VERSION = "7.4"
TIMEOUT_S = 60.0
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
LONGEST_PAUSE_S = 30.0
PASSING = (408, 429, 500, 502, 503, 504)
_HOSTS = {STORAGE: STORES, VAULT: VAULTS}


class Refused(NodeFailure):
    """The store refuses this identity or this network; a retry does not help."""


class Answer(NamedTuple):
    """A service's answer; `status` is 0 if there was none, and the body says why."""

    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    @property
    def why(self) -> str:
        """The status and the service's own word for it."""
        if not self.status:
            return self.text
        code = self.headers.get("x-ms-error-code") or _code(self.body)
        return f"{self.status} {code}".strip()


class Service:
    """One endpoint, asked with tokens for one resource; by any number of threads."""

    def __init__(
        self,
        endpoint: str,
        resource: str,
        identity: Identity,
        *,
        pauses_s: tuple[float, ...] = PAUSES_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.endpoint = endpoint
        self._resource, self._identity = resource, identity
        self._pauses_s, self._timeout_s = pauses_s, timeout_s
        self._opener = _opener()

    def ask(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask until there is an answer that will not change.

        Raises NodeFailure without a token, and for an endpoint that must not see one.
        """
        self._check_host()
        answer = self._try(method, target, body, headers or {})
        for pause_s in self._pauses_s:
            if answer.status == 401:
                self._identity.forget(self._resource)
            elif answer.status and answer.status not in PASSING:
                break
            waited = answer.headers.get("Retry-After", "") if answer.status else ""
            asked_s = min(float(waited), LONGEST_PAUSE_S) if waited.isdecimal() else 0.0
            # Many ranks ask at the same moment.
            time.sleep(max(asked_s, pause_s) * random.uniform(1.0, 1.5))
            answer = self._try(method, target, body, headers or {})
        return answer

    def _check_host(self) -> None:
        domain = _HOSTS[self._resource]
        if not is_azures(self.endpoint, domain):
            address = "/".join(self.endpoint.split("/")[:3])
            message = f"the cluster's identity is not sent to `{address}`"
            raise NodeFailure(message, f"the environment has to name https://NAME.{domain}")

    def _try(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        request = urllib.request.Request(  # noqa: S310
            self.endpoint + target,
            data=body,
            method=method,
            headers={
                "Authorization": f"Bearer {self._identity.token(self._resource)}",
                "Content-Type": "application/octet-stream",
                **headers,
            },
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply:
                return Answer(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                try:
                    text = error.read()
                except (OSError, http.client.HTTPException):
                    text = b""
            return Answer(error.code, error.headers, text)
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", "") or error) or type(error).__name__
            return Answer(0, {}, why.encode())


def _opener() -> urllib.request.OpenerDirector:
    """Open URLs through proxies, without redirections: a token is meant for one host."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _code(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


class Container:
    """A container of the store; what is written has its MD5, so that readers can check it."""

    def __init__(self, store: str, name: str, identity: Identity, **limits: Any) -> None:
        self._service = Service(f"{store}/{name}", STORAGE, identity, **limits)

    def get(self, blob: str) -> bytes:
        """Give a whole blob; raises NodeFailure, KeyError where there is none."""
        answer = self._ask("GET", blob)
        if answer.status == 404:
            raise KeyError(blob)
        if answer.status != 200:
            raise unreachable(blob, answer)
        told = answer.headers.get("Content-MD5")
        if told and told != md5_text(answer.body):
            message = f"`{blob}` arrived with other content than was sent"
            raise NodeFailure(message, "start the run again")
        return answer.body

    def look(self, blob: str) -> Answer:
        """Give the headers of a blob."""
        return self._ask("HEAD", blob)

    def put(self, blob: str, content: bytes, headers: dict[str, str]) -> Answer:
        """Put a whole blob."""
        kind = {"x-ms-blob-type": "BlockBlob", "x-ms-blob-content-md5": md5_text(content)}
        return self._ask("PUT", blob, body=content, headers={**kind, **headers})

    def put_block(self, blob: str, block: str, content: bytes) -> Answer:
        """Put one block, which is nothing until a list names it."""
        query = f"comp=block&blockid={quote(block, safe='')}"
        return self._ask("PUT", blob, query, content, {"Content-MD5": md5_text(content)})

    def put_list(self, blob: str, blocks: list[str], md5: str, headers: dict[str, str]) -> Answer:
        """Make a blob of its blocks, at once and whole."""
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        text = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'
        headers = {"x-ms-blob-content-md5": md5, **headers}
        return self._ask("PUT", blob, "comp=blocklist", text.encode(), headers)

    def delete(self, blob: str, etag: str) -> Answer:
        """Delete a blob that is still the same."""
        return self._ask("DELETE", blob, headers={"If-Match": etag})

    def _ask(
        self,
        method: str,
        blob: str,
        query: str = "",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        target = f"/{quote(blob)}" + (f"?{query}" if query else "")
        version = {"x-ms-version": BLOB_VERSION}
        return self._service.ask(method, target, body=body, headers={**version, **(headers or {})})


def block_id(writer: str, index: int) -> str:
    """Name a block: each writer's names are its own, and all have one length."""
    return base64.b64encode(f"{writer}-{index:08d}".encode()).decode()


def md5_text(content: bytes) -> str:
    """Give the MD5 as the store writes it; against errors on the way, not against people."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def unreachable(blob: str, answer: Answer) -> NodeFailure:
    """Make the error for a blob that the store does not give or take."""
    message = f"the store cannot deliver `{blob}`: {answer.why}"
    if answer.status not in (401, 403):
        return NodeFailure(message, "check the store")
    if answer.headers.get("x-ms-error-code") == "AuthorizationFailure":
        hint = "the storage account's network rules must let the cluster's network in"
    else:
        hint = "the cluster's identity needs its role on the container: pulumi up sets it"
    return Refused(message, hint=hint)


def fetch_secrets(vault: str, wanted: dict[str, str], identity: Identity) -> dict[str, str]:
    """Give each variable its secret's value; raises NodeFailure for the first that is not to be had."""
    service = Service(vault.rstrip("/"), VAULT, identity)
    return {name: _fetch(service, secret) for name, secret in wanted.items()}


def _fetch(service: Service, secret: str) -> str:
    vault = (urlsplit(service.endpoint).hostname or "").partition(".")[0]
    answer = service.ask("GET", f"/secrets/{quote(secret)}?api-version={VAULT_VERSION}")
    if answer.status == 200:
        return str(json.loads(answer.body)["value"])
    message = f"secret `{secret}` cannot be read from the key vault {vault}: "
    if answer.status == 404:
        hint = f"az keyvault secret set --vault-name {vault} --name {secret} --file FILE"
        raise NodeFailure(message + "it has no secret of this name", hint)
    if answer.status == 403 and "forbiddenby" in answer.text.lower():
        hint = "the vault's network rules must let the cluster's network in"
        raise NodeFailure(message + "its firewall refuses the node (403)", hint)
    if answer.status in (401, 403):
        hint = (
            f"name `{secret}` under trainyard:secrets of the stack and run pulumi up: the "
            "clusters' identity needs Key Vault Secrets User on it"
        )
        message += f"the cluster's identity may not ({answer.status})"
        raise NodeFailure(message, hint)
    raise NodeFailure(message + answer.why, "check the vault, then start the run again")
