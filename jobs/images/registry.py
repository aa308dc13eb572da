"""Asks container registries which digest a tag has today; for public images, without a login."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse

DOCKER_HUB = "docker.io"
DOCKER_HUB_HOST = "registry-1.docker.io"
# An index first: its digest stands for the image on every kind of processor.
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
TIMEOUT_S = 30.0
LIMIT_BYTES = 4 << 20
LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")
# A first part with a dot, a port or `localhost` is a host; anything else is of Docker Hub.
REFERENCE = re.compile(
    r"(?:(?P<host>localhost(?::\d+)?|[\w.-]+\.[\w.-]+(?::\d+)?|[\w-]+:\d+|\[::1\]:\d+)/)?"
    r"(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class ImageReference:
    """The parts of a name like docker.io/library/debian:bookworm-slim@sha256:..."""

    host: str
    repository: str
    tag: str
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> ImageReference:
        """Raises LaunchError for what is no reference."""
        match = REFERENCE.fullmatch(text)
        if match is None:
            message = f"`{text}` is no image reference"
            raise LaunchError(message, hint="as in docker.io/library/debian:bookworm-slim")
        host = match["host"] or DOCKER_HUB
        repository = match["repository"]
        if host == DOCKER_HUB and "/" not in repository:
            repository = f"library/{repository}"
        return cls(
            host=host,
            repository=repository,
            tag=match["tag"] or "latest",
            digest=match["digest"],
        )

    def pinned(self, digest: str) -> str:
        """The reference in full, with this digest."""
        return f"{self.host}/{self.repository}:{self.tag}@{digest}"


def resolve_digest(reference: ImageReference) -> str:
    """The digest that the registry has for the tag now, computed from the manifest itself.

    Raises NotFound where the registry has no such tag, EnvironmentFailure where it does not answer.
    """
    host = DOCKER_HUB_HOST if reference.host == DOCKER_HUB else reference.host
    scheme = "http" if is_loopback(host) else "https"
    url = f"{scheme}://{host}/v2/{reference.repository}/manifests/{reference.tag}"
    headers = {"Accept": MANIFESTS}
    with _open(url, headers, reference) as first:
        answer, body = first, first.read(LIMIT_BYTES + 1)
    if answer.status == 401:
        token = _token(answer.headers.get("WWW-Authenticate", ""), reference)
        with _open(url, {**headers, "Authorization": f"Bearer {token}"}, reference) as second:
            answer, body = second, second.read(LIMIT_BYTES + 1)
    if answer.status in {401, 403, 404}:
        message = f"{reference.host} has no {reference.repository}:{reference.tag} for everybody"
        raise NotFound(
            message, hint="write the digest into the Dockerfile yourself: NAME@sha256:..."
        )
    if answer.status != 200 or len(body) > LIMIT_BYTES:
        raise _unexpected(reference, f"answered {answer.status} with {len(body)} bytes")
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    claimed = answer.headers.get("Docker-Content-Digest", digest)
    if claimed != digest:
        raise _unexpected(reference, f"says {claimed} of what is {digest}")
    return digest


def pin_bases(dockerfile: str, digests: Mapping[str, str]) -> str:
    """The Dockerfile with other values for the arguments that are named."""
    for name, value in digests.items():
        line = re.compile(rf"^(ARG[ \t]+{name}=)\S+", re.MULTILINE)
        dockerfile = line.sub(lambda match, value=value: match[1] + value, dockerfile, count=1)
    return dockerfile


def is_loopback(host: str) -> bool:
    """Whether a host, perhaps with a port, is this machine itself."""
    return LOOPBACK.fullmatch(host) is not None


def _token(challenge: str, reference: ImageReference) -> str:
    """What a registry wants to see from everybody, from where it says."""
    said: dict[str, str] = dict(CHALLENGE.findall(challenge))
    realm = said.get("realm", "")
    parts = urlsplit(realm)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc))
    if not challenge.startswith("Bearer ") or not is_safe:
        raise _unexpected(reference, f"asks for `{challenge}`")
    asked = {name: said[name] for name in ("service", "scope") if name in said}
    asked.setdefault("scope", f"repository:{reference.repository}:pull")
    with _open(f"{realm}?{urlencode(asked)}", {}, reference) as answer:
        body = answer.read(LIMIT_BYTES)
    try:
        given = json.loads(body)
        return str(given.get("token") or given["access_token"])
    except (ValueError, KeyError, AttributeError) as error:
        raise _unexpected(reference, "gave no token") from error


def _open(url: str, headers: Mapping[str, str], reference: ImageReference) -> HTTPResponse:
    """Ask; the answer may be a refusal. Raises EnvironmentFailure without one."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(url, headers=dict(headers))  # noqa: S310 - https, or this machine
    try:
        return urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except HTTPError as error:
        return error  # type: ignore[return-value] - it is a response, too
    except OSError as error:
        raise _unexpected(reference, f"cannot be reached: {error}") from error


def _unexpected(reference: ImageReference, what: str) -> EnvironmentFailure:
    message = f"registry {reference.host} {what}"
    return EnvironmentFailure(
        message, hint=f"{reference.repository}:{reference.tag} stays as it is"
    )
