"""What goes wrong, as a test scripts it: with a request, or with a job."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tests.fakes.azureml.blobs import blob_refusal
from tests.fakes.azureml.messages import Refusal, Reply, Request


@dataclass(kw_only=True)
class RequestTrouble:
    """Answers requests otherwise; `times` of them, None for all.

    `host` and `path` are globs (path without query, in lower case). With `drop` nothing is answered:
    "before" the request was carried out, or "after" it was. `skip` requests that fit pass first.
    """

    method: str = "*"
    host: str = "*"
    path: str = "*"
    times: int | None = 1
    skip: int = 0
    status: int = 0
    code: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    drop: Literal["", "before", "after"] = ""
    delay_s: float = 0.0

    def fits(self, request: Request) -> bool:
        return (
            fnmatchcase(request.method, self.method)
            and fnmatchcase(request.host, self.host)
            and fnmatchcase(request.path.lower(), self.path.lower())
        )


@dataclass(kw_only=True)
class JobTrouble:
    """Befalls jobs whose name fits the glob `job`; `times` of them, None for all.

    `when` is searched for in the lines of every log of the job; empty, it happens at once. Once it
    has happened to lines or nodes (they are gone by then), `then` is called.
    """

    what: Literal[
        "queued for ever",
        "quota",
        "image pull",
        "image build",
        "preempted",
        "preempted, restarted",  # by Azure ML itself, which it does now and then
        "node failure",
        "log rotated",
        "log truncated",
    ]
    job: str = "*"
    when: str = ""
    node: int = 0
    notice_s: float = 0.0  # between SIGTERM and SIGKILL of a preempted node
    times: int | None = 1
    then: Callable[[], object] = lambda: None

    def is_due(self, lines: str) -> bool:
        return not self.when or re.search(self.when, lines) is not None


Trouble = RequestTrouble | JobTrouble


def throttled(
    *, retry_after_s: float = 1, path: str = "*", method: str = "*", times: int = 1
) -> RequestTrouble:
    return RequestTrouble(
        method=method,
        path=path,
        times=times,
        status=429,
        code="TooManyRequests",
        message="The request is being throttled as the limit has been reached.",
        headers={"Retry-After": f"{retry_after_s:g}"},
    )


def broken(*, path: str = "*", method: str = "*", times: int = 1) -> RequestTrouble:
    return RequestTrouble(
        method=method,
        path=path,
        times=times,
        status=500,
        code="ServiceError",
        message="InternalServerError",
    )


def conflict(*, path: str) -> RequestTrouble:
    return RequestTrouble(
        method="PUT",
        path=path,
        status=409,
        code="Conflict",
        message="Another operation on this or a dependent resource is in progress.",
    )


def lost_reply(*, path: str, method: str = "PUT") -> RequestTrouble:
    """The request is carried out, and the connection ends before the reply."""
    return RequestTrouble(method=method, path=path, drop="after")


def lost_request(*, path: str) -> RequestTrouble:
    """The connection ends before the request was carried out."""
    return RequestTrouble(method="PUT", path=path, drop="before")


def forbidden(
    *, path: str = "*", host: str = "management.azure.com", times: int | None = None
) -> RequestTrouble:
    """No role for it."""
    return RequestTrouble(
        host=host,
        path=path,
        times=times,
        status=403,
        code="AuthorizationFailed",
        message=(
            "The client 'c11e4700-0000-4000-8000-0000000a3171' does not have authorization to "
            "perform action 'Microsoft.MachineLearningServices/workspaces/jobs/write' over scope "
            "or the scope is invalid. If access was recently granted, please refresh your "
            "credentials."
        ),
    )


def wrong_tenant() -> RequestTrouble:
    """The token was given by another tenant than the subscription's."""
    return RequestTrouble(
        host="management.azure.com",
        times=None,
        status=401,
        code="InvalidAuthenticationTokenTenant",
        message=(
            "The access token is from the wrong issuer "
            "'https://sts.windows.net/00000000-0000-4000-8000-000000000000/'. It must match the "
            "tenant 'https://sts.windows.net/7e4a11d0-0000-4000-8000-0000000a3171/' associated "
            "with this subscription."
        ),
        headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
    )


def firewall(*, account: str) -> RequestTrouble:
    """The storage account's firewall does not let this address in."""
    return RequestTrouble(
        host=f"{account}.blob.core.windows.net",
        times=None,
        status=403,
        code="AuthorizationFailure",
        message="This request is not authorized to perform this operation.",
    )


class Troubles:
    """Those that wait to happen."""

    def __init__(self) -> None:
        self._waiting: list[Trouble] = []
        self._lock = threading.Lock()

    def add(self, *troubles: Trouble) -> None:
        with self._lock:
            self._waiting += troubles

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def of_job(self, name: str) -> list[JobTrouble]:
        """Those that a new job has before it; each counts once."""
        with self._lock:
            waiting = [each for each in self._waiting if isinstance(each, JobTrouble)]
            found = [each for each in waiting if fnmatchcase(name, each.job)]
            for each in found:
                self._count(each)
            return found

    def of_request(self, request: Request) -> RequestTrouble | None:
        with self._lock:
            for each in self._waiting:
                if isinstance(each, RequestTrouble) and each.fits(request):
                    if each.skip:
                        each.skip -= 1
                        continue
                    self._count(each)
                    return each
        return None

    def _count(self, trouble: Trouble) -> None:
        if trouble.times is not None:
            trouble.times -= 1
            if not trouble.times:
                self._waiting.remove(trouble)


def befall(trouble: RequestTrouble, request: Request) -> Reply | None:
    """What the trouble answers before the request is carried out; None to carry it out."""
    time.sleep(trouble.delay_s)
    if trouble.drop == "before":
        return Reply(drop=True)
    if not trouble.status:
        return None
    if ".blob." in request.host:
        return blob_refusal(trouble.status, trouble.code, trouble.message, trouble.headers)
    return Refusal(trouble.status, trouble.code, trouble.message, trouble.headers).reply()
