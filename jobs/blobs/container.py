"""Names one container of blobs, and decides over which way it is spoken to."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from jobs.blobs.authority import Authority, Identity, check_store
from jobs.contracts.errors import EnvironmentFailure


def _say_nothing(_reason: str) -> None:
    pass


class Container:
    """One container, as `http://127.0.0.1:10000/account/container`.

    Raises EnvironmentFailure where an identity is not to be shown to such a host, for plain HTTP
    beyond this machine, and for a proxy that aiohttp does not speak to.
    """

    def __init__(
        self, url: str, authority: Authority, *, waiting: Callable[[str], None] = _say_nothing
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        if isinstance(authority, Identity):
            check_store(url)
        self.url = url.rstrip("/")
        self.name = parts.path.rstrip("/").rpartition("/")[2]
        self.authority = authority
        # Told once an outage that the store has been waited for for long.
        self.waiting = waiting
        self.host = parts.hostname
        self.is_secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.is_secure else 80)
        self.is_loopback = is_loopback(self.host)
        if not (self.is_secure or self.is_loopback):
            message = f"the store {parts.scheme}://{parts.netloc} must be reached over TLS"
            raise EnvironmentFailure(message, hint="launch env check")
        # In plain text, to this machine, nobody is to pass it on.
        self.proxy = _proxy_for(self.host, self.port) if self.is_secure else None

    def url_of(self, name: str) -> str:
        """Give a blob's URL, with nothing that proves anything."""
        return f"{self.url}/{quote(name)}"


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine; a name is not, whatever it begins with."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy_for(host: str, port: int) -> str | None:
    """Give the proxy that the environment names for https, unless `no_proxy` names who is asked.

    Raises EnvironmentFailure for a proxy that does not speak HTTP.
    """
    from urllib import request  # loads more than a plan needs

    # The environment alone: what a system's settings name is not what a shell was told.
    names: Any = request
    proxy = names.getproxies_environment().get("https")
    if not proxy or names.proxy_bypass_environment(f"{host}:{port}"):
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if found.scheme not in ("http", "https"):
        message = (
            f"the proxy {found.scheme}://{found.hostname} is not spoken to over {found.scheme}"
        )
        raise EnvironmentFailure(message, hint="export https_proxy=http://HOST:PORT")
    return found.geturl()
