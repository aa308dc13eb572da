"""Checks that each part of an environment can be used from here: store, workspace, clusters.

On Azure it asks each service without signing in: a firewall refuses that as it would refuse a job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from jobs.blobs.refusals import FIREWALL_HINT, behind_firewall
from jobs.contracts.spec import Cluster, Environment
from jobs.host.console import count_text
from jobs.host.parallel import parallel
from jobs.host.untrusted import parse_json

if TYPE_CHECKING:
    from email.message import Message
    from urllib.error import HTTPError

TIMEOUT_S = 10
MAX_BODY_BYTES = 64 << 10
# Before this version the blob service says 403 to who has not signed in.
BLOB_VERSION = "2023-11-03"
# A 403 that has to do with signing in, not with the address.
_NO_SIGN_IN = {"AuthenticationFailed", "NoAuthenticationInformation"}


class PartCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the environment, its usability, the finding and the command that mends it.

    Not `known` is a part that nobody could be asked about; `ok` is False then, too.
    """

    part: str
    ok: bool
    detail: str
    known: bool = True
    mend: str = ""


def check_environment(environment: Environment) -> list[PartCheck]:
    """Check every part; changes nothing, starts nothing, blocks for at most some seconds."""
    checks: list[Callable[[], PartCheck]] = [
        partial(_check_store, environment),
        partial(_check_workspace, environment),
    ]
    if environment.key_vault is not None:
        url = f"{environment.key_vault.uri.rstrip('/')}/secrets?api-version=7.4"
        checks.append(partial(_check_service, "key vault", url))
    if environment.registry is not None:
        url = f"https://{environment.registry.login_server}/v2/"
        checks.append(partial(_check_service, "registry", url))
    return [
        *parallel(lambda check: check(), checks),
        *(_check_cluster(name, each, environment) for name, each in environment.clusters.items()),
    ]


def _check_service(part: str, url: str) -> PartCheck:
    """Check that a service answers and not a firewall; 401 and the like are expected."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    place = url.partition("?")[0]
    request = Request(url, headers={"x-ms-version": BLOB_VERSION})  # noqa: S310 (the environment's own)
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            status, code = answer.status, ""
    except HTTPError as error:
        with error:
            status, code = error.code, _error_code(error.headers, _body(error))
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        return PartCheck(part=part, ok=False, detail=f"no answer from {place}: {reason}")
    if status == 403 and code not in _NO_SIGN_IN:
        said = f"403 {code}".strip()
        detail = f"{behind_firewall(place)} ({said}): {FIREWALL_HINT}"
        return PartCheck(part=part, ok=False, detail=detail)
    if status >= 500:
        return PartCheck(part=part, ok=False, detail=f"{place} answers {status} {code}".rstrip())
    detail = f"{place} answers"
    if part == "key vault":
        detail += "; its firewall is tested only after signing in"
    return PartCheck(part=part, ok=True, detail=detail)


def _body(error: HTTPError) -> bytes:
    """Read a refusal's body; empty where it does not arrive."""
    from http.client import HTTPException

    try:
        return error.read(MAX_BODY_BYTES)
    except (OSError, HTTPException):
        return b""


def _error_code(headers: Message, body: bytes) -> str:
    """Find Azure's error code: in a header, in XML (storage) or in JSON (the others)."""
    if code := headers.get("x-ms-error-code"):
        return code
    if b"<Code>" in body:
        return body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode("ascii", "replace")
    try:
        return parse_json(body, _Refusal).name
    except msgspec.DecodeError:
        return ""


class _Reason(Struct, frozen=True):
    code: str = ""
    innererror: _Reason | None = None


class _Refusal(Struct, frozen=True):
    """A refusal in JSON; services of Azure fill `error`, registries `errors`."""

    error: _Reason = _Reason()
    errors: tuple[_Reason, ...] = ()

    @property
    def name(self) -> str:
        """The innermost code, which is the most specific."""
        reason = self.errors[0] if self.errors else self.error
        while reason.innererror is not None and reason.innererror.code:
            reason = reason.innererror
        return reason.code


def _check_store(environment: Environment) -> PartCheck:
    storage = environment.storage
    if storage.folder is None:
        return _check_service("storage", f"{storage.blob_endpoint.rstrip('/')}/?comp=list")
    # infra's own program knows whether what listens there is this environment's Azurite.
    program = [sys.executable, "-P", "-m", "infra.local.azurite_server", "status", storage.folder]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return PartCheck(part="storage", ok=True, detail=f"answering at {storage.blob_endpoint}")
    stack = environment.stack
    detail = (
        f"Azurite is down; a job that needs it starts it again, as does "
        f"`pulumi refresh -s {stack}`, `pulumi up -s {stack}`"
    )
    return PartCheck(part="storage", ok=False, detail=detail)


def _check_workspace(environment: Environment) -> PartCheck:
    url = urlsplit(environment.workspace.endpoint)
    if url.scheme != "file":
        return _check_service("workspace", f"{environment.workspace.endpoint.rstrip('/')}/")
    folder = nearest = Path(unquote(url.path))
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return PartCheck(part="workspace", ok=False, detail=f"{nearest} cannot be written to")
    return PartCheck(part="workspace", ok=True, detail=f"{folder} can be written to")


def _check_cluster(name: str, cluster: Cluster, environment: Environment) -> PartCheck:
    detail = (
        f"up to {count_text(cluster.max_nodes, 'node')} of "
        f"{count_text(cluster.cpus_per_node, 'core')}, {count_text(cluster.gpus_per_node, 'GPU')}"
    )
    if environment.workspace.is_folder:
        wanted, cores = cluster.cpus_per_node * cluster.max_nodes, _num_cores()
        # A node has one core at least, so more nodes than cores is the owner's choice.
        if cluster.cpus_per_node > 1 and wanted > cores:
            detail += f"; this machine has {count_text(cores, 'core')} now: `pulumi up` again"
            return PartCheck(part=f"cluster {name}", ok=False, detail=detail)
    return PartCheck(part=f"cluster {name}", ok=True, detail=detail)


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
