"""Where the store is: resolves its name, knows the proxy and TLS on the way, opens sockets."""

from __future__ import annotations

import os
import re
import socket
import sys
from base64 import b64encode
from collections.abc import Callable, Generator
from errno import EWOULDBLOCK
from functools import cached_property
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from jobs.blobs.transfers.portable import CONNECTING, READ, WRITE, tune
from jobs.contracts.errors import EnvironmentFailure
from jobs.host.socket_owner import check_own_server

if TYPE_CHECKING:
    import ssl

_LONGEST_ANSWER = 16 << 10
# A host and a port, as in `no_proxy`; an IPv6 address has brackets then.
_PORTED = re.compile(r"(\[[^\]]*\]|[^:\[\]]*):([0-9]{1,5})")


class Address:
    """A host and port behind an `http` or `https` URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.is_secure = parts.scheme == "https"
        self.is_loopback = _is_loopback(self.host)
        # As the Host header has it.
        self.name = parts.netloc
        # What a socket says where it would block.
        self.wants_read: tuple[type[OSError], ...] = (BlockingIOError,)
        self.wants_write: tuple[type[OSError], ...] = (BlockingIOError,)
        self._proxy = _proxy_for(self.host, self.port) if self.is_secure else None
        self._places: list[tuple[int, Any]] = []

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """What TLS needs; None for plain HTTP, which is spared the library's 10 ms."""
        if not self.is_secure:
            return None
        import ssl

        self.wants_read, self.wants_write = (ssl.SSLWantReadError,), (ssl.SSLWantWriteError,)
        return ssl.create_default_context()

    def connect(
        self, keep: Callable[[socket.socket], None]
    ) -> Generator[int | float, None, socket.socket]:
        """Open a socket without blocking; `keep` gets it before the first wait. Raises OSError."""
        family, place = (self._places or self._resolve())[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        tune(made)
        failed = made.connect_ex(place)
        keep(made)
        try:
            while failed in CONNECTING:
                yield WRITE
                failed = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or _not_yet(made)
            if failed:
                raise OSError(failed, os.strerror(failed))
        except OSError:  # also the TimeoutError of who waited in vain
            # The next try takes the name's next address, and asks anew after the last one.
            self._places = [each for each in self._places if each != (family, place)]
            raise
        if self.is_loopback and not self.is_secure and sys.platform == "linux":
            check_own_server(made)
        if self._proxy is not None:
            yield from self._pass_proxy(made, self._proxy)
        return made

    def _resolve(self) -> list[tuple[int, Any]]:
        host, port = self.host, self.port
        if self._proxy is not None:
            host, port = self._proxy.hostname, self._proxy.port or 80
        # A name in ASCII need not go through Python's own, slow to load, encoding of names.
        name = host.encode("ascii") if host and host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        self._places = [(family, place) for family, _, _, _, place in found]
        return self._places

    def _pass_proxy(
        self, made: socket.socket, proxy: SplitResult
    ) -> Generator[int | float, None, None]:
        target = f"{self.host}:{self.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if proxy.username is not None:
            user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            head += f"Proxy-Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
        made.send(f"{head}\r\n".encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            try:
                some = made.recv(4096)
            except BlockingIOError:
                yield READ
                continue
            answer += some
            if not some or len(answer) > _LONGEST_ANSWER:
                break
        if answer[9:10] != b"2":
            line = answer.partition(b"\r\n")[0].decode("latin-1") or "nothing"
            message = f"the proxy {proxy.hostname} answered {line}"
            raise ConnectionError(message)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name, whatever it begins with


def _not_yet(made: socket.socket) -> int:
    """EWOULDBLOCK where it was woken before the other side has answered."""
    try:
        made.getpeername()
    except OSError:
        return EWOULDBLOCK
    return 0


def _proxy_for(host: str, port: int) -> SplitResult | None:
    """The proxy that the environment names for https, unless `no_proxy` names who is asked.

    Raises EnvironmentFailure for a proxy that is to be spoken to over TLS.
    """
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if not proxy or any(_is_named(each, host, port) for each in direct.lower().split(",")):
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if found.scheme != "http":
        # In plain text it would be told who we are, and answer with nothing that helps.
        message = (
            f"the proxy {found.scheme}://{found.hostname} is not spoken to over {found.scheme}"
        )
        raise EnvironmentFailure(message, hint="export https_proxy=http://HOST:PORT")
    return found


def _is_named(pattern: str, host: str, port: int) -> bool:
    """Whether one entry of `no_proxy` is about a host: a domain, an address, a network, a port."""
    pattern = pattern.strip()
    if ported := _PORTED.fullmatch(pattern):
        if int(ported[2]) != port:
            return False
        pattern = ported[1]
    pattern = pattern.strip("[]").lstrip(".")
    try:
        return ip_address(host) in ip_network(pattern, strict=False)
    except ValueError:
        return pattern == "*" or bool(pattern and f".{host}".endswith(f".{pattern}"))
