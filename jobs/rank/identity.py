"""Get tokens of the identity that a job acts as; standard library only.

Azure ML serves them on the node itself. Of the cluster's identity: MSI_ENDPOINT, MSI_SECRET and
DEFAULT_IDENTITY_CLIENT_ID say where and as whom, as azure-identity's AzureMLCredential reads them.
Without these the machine's instance metadata service is asked. Of the person that sent the job
(`identity: user`): OBO_ENDPOINT, as azure-ai-ml's AzureMLOnBehalfOfCredential asks it.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from jobs.rank.settings import IDENTITY_VARIABLE

STORAGE = "https://storage.azure.com/"
VAULT = "https://vault.azure.net"
INSTANCE_METADATA = "http://169.254.169.254"
TIMEOUT_S = 5.0
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
# So long before its end a token is replaced.
MARGIN_S = 600.0


# What azure-identity looks for, and this module with it.
_NODES_OWN = ("MSI_ENDPOINT", "MSI_SECRET", "DEFAULT_IDENTITY_CLIENT_ID", "OBO_ENDPOINT")


def with_identity(
    environ: dict[str, str], *, first_process: str = "/proc/1/environ"
) -> dict[str, str]:
    """Give a rank that was told no identity that of its container's first process.

    mpirun starts ranks on other nodes through ssh, whose sessions do not inherit what Azure ML has
    told the container.
    """
    if "MSI_ENDPOINT" in environ or "OBO_ENDPOINT" in environ:
        return environ
    try:
        with open(first_process, "rb") as file:
            words = file.read().decode(errors="surrogateescape").split("\0")
    except OSError:
        return environ
    told = dict(word.split("=", 1) for word in words if "=" in word)
    return {**{name: told[name] for name in _NODES_OWN if told.get(name)}, **environ}


class NodeFailure(Exception):
    """A node's part cannot be done: the reason, and a hint that mends it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Identity:
    """Gives tokens by resource; asks for each only where there is none that lasts.

    `pauses_s` are those between tries.
    """

    def __init__(self, environ: dict[str, str], *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._environ, self._pauses_s = environ, pauses_s
        self._is_user = environ.get(IDENTITY_VARIABLE) == "user"
        # An address that proxies must never see: it is this machine's own.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._tokens: dict[str, tuple[str, float]] = {}

    def token(self, resource: str) -> str:
        """Give a bearer token; raises NodeFailure where there is none."""
        token, until_s = self._tokens.get(resource, ("", 0.0))
        if time.time() < until_s - MARGIN_S:
            return token
        try:
            answer = self._ask(resource)
            token = str(answer["access_token"])
            # Some services say it as a date; then it is asked for again soon.
            until = str(answer.get("expires_on", ""))
            until_s = float(until) if until.isdecimal() else time.time() + 2 * MARGIN_S
        except NodeFailure:
            # The old one may be good for a while yet.
            if time.time() < until_s - TIMEOUT_S:
                return token
            raise
        except (KeyError, TypeError, ValueError):
            raise self._no_token(resource, "the answer is not a token") from None
        self._tokens[resource] = token, until_s
        return token

    def forget(self, resource: str) -> None:
        """Ask for a new one next time: this one was refused."""
        self._tokens.pop(resource, None)

    def _ask(self, resource: str) -> Any:
        request = self._request(resource)
        why = ""
        for pause_s in (*self._pauses_s, None):
            try:
                with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                why = f"{error.code} {error.reason}"
                if error.code < 500 and error.code not in (404, 410, 429):
                    break
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = str(getattr(error, "reason", "") or error) or type(error).__name__
            if pause_s is not None:
                time.sleep(pause_s)
        raise self._no_token(resource, why)

    def _request(self, resource: str) -> urllib.request.Request:
        environ = self._environ
        if self._is_user:
            endpoint = environ.get("OBO_ENDPOINT")
            if not endpoint:
                raise self._no_token(resource, "Azure ML has not set OBO_ENDPOINT")
            return urllib.request.Request(f"{endpoint}?{urlencode({'resource': resource})}")  # noqa: S310
        client_id = environ.get("DEFAULT_IDENTITY_CLIENT_ID", "")
        endpoint, secret = environ.get("MSI_ENDPOINT"), environ.get("MSI_SECRET")
        if endpoint and secret:
            query = {"api-version": "2017-09-01", "resource": resource}
            # Of this version of the service; later ones say client_id.
            name, headers = "clientid", {"secret": secret}
        else:
            query = {"api-version": "2018-02-01", "resource": resource}
            host = environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or INSTANCE_METADATA
            endpoint = f"{host.rstrip('/')}/metadata/identity/oauth2/token"
            name, headers = "client_id", {"Metadata": "true"}
        if client_id:
            query[name] = client_id
        return urllib.request.Request(f"{endpoint}?{urlencode(query)}", headers=headers)  # noqa: S310

    def _no_token(self, resource: str, why: str) -> NodeFailure:
        if self._is_user:
            message = f"the job gets no token of its sender for {resource}: {why}"
            return NodeFailure(
                message, "send it without `identity: user`, as the cluster's identity"
            )
        message = f"the cluster's identity gets no token for {resource}: {why}"
        return NodeFailure(message, "the cluster needs a managed identity: pulumi up sets it")
