"""Asks Resource Manager and a workspace's own services: JSON in and out, retried, errors explained.

azure-core carries the requests: it keeps to Retry-After, up to a minute of it, and tries again what
was throttled, broken or cut off. All that we send can be sent twice: names are ours.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from jobs.blobs.credentials import INSTALL_HINT, MANAGEMENT_SCOPE, Tokens, our_tokens
from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import Environment
from jobs.engines.azure_ml.refusals import CloudRefusal, Passing, PlaceMissing, explain, unreachable
from jobs.engines.azure_ml.states import items, mapping
from jobs.host import console
from jobs.host.untrusted import parse_json

if TYPE_CHECKING:
    from azure.core import PipelineClient

MANAGEMENT = "https://management.azure.com"
# The newest stable one that all routes used here share.
API_VERSION = "2024-04-01"
TIMEOUT_S = 60
CONNECT_S = 10
# A longer pause is talked about.
SILENCE_S = 3.0
LRO_POLL_S = 2.0
LONGEST_PAUSE_S = 60.0
_RETRIES = 5
# A region's, a private workspace's (GUID.workspace.REGION...), and of workspaces made before 2021:
# learn.microsoft.com/azure/machine-learning/how-to-custom-dns, v1/how-to-export-delete-data
_API_HOST = re.compile(
    r"[a-z0-9-]+(\.[a-z0-9-]+)*\.api\.azureml\.ms|[a-z0-9-]+\.experiments\.azureml\.net"
)
_METHODS = frozenset({"GET", "PUT", "POST", "PATCH", "DELETE"})


class Reply(Struct, frozen=True, kw_only=True):
    """A good answer: `body` is what its JSON says, an empty object where there is none."""

    status: int
    headers: Mapping[str, str]
    body: Any


class ArmClient:
    """One environment's Azure. A path begins with `/`; it is Resource Manager's unless `host` says.

    Every method blocks on the network and raises CloudRefusal (an EnvironmentFailure), which has
    `status` and `code`; PlaceMissing where workspace or subscription is not there. `what` is for the message:
    what was tried, as `cancelling ID`. May be used by several threads.
    """

    def __init__(self, environment: Environment, *, credential: Any = None) -> None:
        self.environment = environment
        self.tokens = our_tokens() if credential is None else Tokens(credential)
        self._client: PipelineClient[Any, Any] | None = None

    @property
    def workspace(self) -> str:
        """The workspace's path in Resource Manager."""
        return self.environment.workspace.id

    @property
    def endpoint(self) -> str:
        """The host of the workspace's own services: run history, artifacts, v1."""
        return self.environment.workspace.endpoint.rstrip("/")

    def require_endpoint(self) -> None:
        """Raise EnvironmentFailure where a run could be started and not be followed."""
        self._require_azure(self.endpoint)

    def get(self, path: str, **how: Any) -> Any:
        """Read a resource; raises if there is none; see `send` for the keywords."""
        return self.send("GET", path, **how).body

    def find(self, path: str, **how: Any) -> Any:
        """Read a resource, or None; raises PlaceMissing if its subscription or workspace is missing."""
        try:
            return self.get(path, **how)
        except PlaceMissing:
            raise
        except CloudRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def put(self, path: str, body: Any, **how: Any) -> Reply:
        """Write it, anew or again; see `send` for the keywords."""
        return self.send("PUT", path, body, **how)

    def patch(self, path: str, body: Any, **how: Any) -> Reply:
        """Change part of it; see `send` for the keywords."""
        return self.send("PATCH", path, body, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> Reply:
        """Ask for an action; see `send` for the keywords."""
        return self.send("POST", path, body, **how)

    def delete(self, path: str, **how: Any) -> Reply:
        """Remove it; see `send` for the keywords."""
        return self.send("DELETE", path, **how)

    def pages(
        self,
        path: str,
        *,
        api_version: str | None = API_VERSION,
        query: Mapping[str, str] | None = None,
        what: str = "",
    ) -> Iterator[Any]:
        """Yield the entries of a list; the next page is requested when the previous one is used up."""
        body = self.get(path, api_version=api_version, query=query, what=what)
        while True:
            yield from items(body.get("value"))
            following = body.get("nextLink")
            if not following:
                return
            body = self._follow("GET", following, what).body

    def wait(self, reply: Reply, *, timeout_s: float, what: str = "") -> bool:
        """Wait for the end of an operation (201, 202); tell whether it ended within `timeout_s`."""
        return self.outcome(reply, timeout_s=timeout_s, what=what) is not None

    def outcome(self, reply: Reply, *, timeout_s: float, what: str = "") -> Reply | None:
        """Wait for the end of an operation (201, 202) and return its last answer; None if late."""
        deadline = time.monotonic() + timeout_s
        while True:
            where = _operation(reply)
            if where is None:
                return reply
            wait_s = _pause_s(reply.headers.get("retry-after", ""))
            if time.monotonic() + wait_s > deadline:
                return None
            time.sleep(wait_s)
            answer = self._follow("GET", where, what)
            state = answer.body.get("status")
            if state in ("Failed", "Canceled"):
                failed = msgspec.json.encode({"error": answer.body.get("error") or {}})
                raise self._refusal(answer.status, failed, MANAGEMENT, what)
            if answer.status != 202 and state in (None, "Succeeded"):
                return answer
            # The address stays where the answer does not give another.
            headers = {"location": where, **dict(answer.headers)}
            reply = Reply(status=202, headers=headers, body=answer.body)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        api_version: str | None = API_VERSION,
        query: Mapping[str, str] | None = None,
        host: str = MANAGEMENT,
        headers: Mapping[str, str] | None = None,
        what: str = "",
    ) -> Reply:
        """Send one request, tried again where that can help."""
        asked = {**(query or {}), **({"api-version": api_version} if api_version else {})}
        url = f"{host}{path}{'?' if asked else ''}{urlencode(asked)}"
        return self._follow(method, url, what, body, headers)

    def _require_azure(self, url: str) -> None:
        # Our token opens the subscription: it goes nowhere else, whatever an answer says, or the
        # file of an environment.
        if not _is_azures(url):
            message = f"`{url.partition('?')[0]}` is not an address of Azure ML"
            raise EnvironmentFailure(message, hint=f"launch env show -s {self.environment.stack}")

    def _follow(
        self,
        method: str,
        url: str,
        what: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        host = urlsplit(url).netloc
        self._require_azure(url)
        try:
            proof = self.tokens.header(MANAGEMENT_SCOPE)
            response = self._exchange(method, url, body, headers, proof)
            if response.status_code == 401 and self.tokens.renew(MANAGEMENT_SCOPE, proof):
                proof = self.tokens.header(MANAGEMENT_SCOPE)
                response = self._exchange(method, url, body, headers, proof)
        except Passing:
            raise
        except Unreached as error:
            # Not even a token came.
            raise Passing(
                error.message, hint=error.hint, status=None, code="", text=error.message
            ) from error
        content: bytes = response.content
        if response.status_code >= 300:
            raise self._refusal(response.status_code, content, f"https://{host}", what)
        found = {name.lower(): value for name, value in response.headers.items()}
        try:
            parsed = parse_json(content or b"{}", object)
        except msgspec.DecodeError:
            raise self._refusal(response.status_code, content, f"https://{host}", what) from None
        # Whoever reads an answer reads an object.
        return Reply(status=response.status_code, headers=found, body=dict(mapping(parsed)))

    def _exchange(
        self, method: str, url: str, body: Any, headers: Mapping[str, str] | None, proof: str
    ) -> Any:
        client = self._opened()
        from azure.core.exceptions import AzureError
        from azure.core.rest import HttpRequest

        sent = {
            "Accept": "application/json",
            "Authorization": proof,
            **(headers or {}),
        }
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            sent["Content-Type"] = "application/json"
        request = HttpRequest(method, url, headers=sent, content=content)
        try:
            return client.send_request(
                request,
                connection_timeout=CONNECT_S,
                read_timeout=TIMEOUT_S,
                # All of ours can be repeated.
                retry_on_methods=_METHODS,
            )
        except AzureError as error:
            host = urlsplit(url).netloc
            raise unreachable(error, environment=self.environment, host=host) from error

    def _opened(self) -> PipelineClient[Any, Any]:
        if self._client is None:
            self._client = _make_client()
        return self._client

    def _refusal(self, status: int, content: bytes, host: str, what: str) -> CloudRefusal:
        return explain(status, content, environment=self.environment, what=what, host=host)


def _is_azures(url: str) -> bool:
    parts = urlsplit(url)
    is_known = parts.netloc == urlsplit(MANAGEMENT).netloc or _API_HOST.fullmatch(parts.netloc)
    return parts.scheme == "https" and bool(is_known)


def _operation(reply: Reply) -> str | None:
    """Give the address that tells how far a long operation is; None if it is over."""
    if reply.status not in (201, 202):
        return None
    return reply.headers.get("azure-asyncoperation") or reply.headers.get("location")


def _pause_s(asked: str) -> float:
    """Read Retry-After in seconds; its other form, a date, is not read."""
    return min(float(asked), LONGEST_PAUSE_S) if asked.isdecimal() else LRO_POLL_S


def _make_client() -> PipelineClient[Any, Any]:
    try:
        from azure.core import PipelineClient
        from azure.core.pipeline.policies import CustomHookPolicy, RequestIdPolicy, RetryPolicy
    except ImportError as error:
        message = f"azure-core cannot be loaded: {error}"
        raise EnvironmentFailure(message, hint=INSTALL_HINT) from None

    class Retries(RetryPolicy[Any, Any]):
        """Pauses as long as Azure asks, and no longer than we wait for it elsewhere."""

        def get_retry_after(self, response: Any) -> float | None:
            asked_s = super().get_retry_after(response)
            return None if asked_s is None else min(asked_s, LONGEST_PAUSE_S)

    retry = cast("Any", Retries)(
        retry_total=_RETRIES,
        retry_connect=_RETRIES,
        retry_read=_RETRIES,
        retry_status=_RETRIES,
        retry_backoff_factor=0.4,
        retry_backoff_max=30,
    )
    # Inside of the retries: hears of each answer.
    telling = cast("Any", CustomHookPolicy)(raw_response_hook=_tell_pause)
    policies = [RequestIdPolicy(), retry, telling]
    made: Any = cast("Any", PipelineClient)(MANAGEMENT, policies=policies)
    return made


def _tell_pause(given: Any) -> None:
    response = given.http_response
    asked: str = response.headers.get("Retry-After") or ""
    if response.status_code >= 400 and asked.isdecimal() and int(asked) >= SILENCE_S:
        sooner = f"; it is tried again after {LONGEST_PAUSE_S:.0f} s"
        console.say(
            f"Azure asks us to wait {asked} s{sooner if int(asked) > LONGEST_PAUSE_S else ''}"
        )
