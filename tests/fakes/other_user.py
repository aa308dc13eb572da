"""Another user of this machine: does something as uid 65534, in a child."""

from __future__ import annotations

import encodings.idna  # noqa: F401 (the child may not read where Python is)
import os
import select
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def as_other_user(act: Callable[[], str]) -> str:
    """What `act` gives, or the name of the error that it meets, as uid 65534."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, where threads run
        child = os.fork()
    if not child:
        try:
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                said = act()
            except BaseException as error:  # noqa: BLE001 (the parent reads what it was)
                said = type(error).__name__
            os.write(write, said.encode())
        finally:
            os._exit(0)  # a fork of pytest must not go on
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def exchange(address: tuple[str, int], sent: bytes) -> str:
    """What is answered to these bytes; empty where the connection is only closed."""
    with socket.create_connection(address, timeout=300) as client:
        try:
            client.sendall(sent)
            return client.recv(1 << 16).decode("latin-1")
        except ConnectionError:
            return ""


class Squatter:
    """Another user's server on a port of 127.0.0.1; says 201 to whatever it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.received = b""


@contextmanager
def squatting() -> Iterator[Squatter]:
    """A squatter at work; what it received is known afterwards."""
    found = Squatter()
    read, write = os.pipe()
    stop, stopping = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            stopping.close()
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            _squat(write, stop)
        finally:
            os._exit(0)
    os.close(write)
    stop.close()
    with os.fdopen(read, "rb") as heard:
        found.port = int(heard.readline())
        yield found
        stopping.close()
        found.received = heard.read()
    os.waitpid(child, 0)


def _squat(write: int, stop: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.write(write, b"%d\n" % server.getsockname()[1])
        heard = [server, stop]
        while True:
            for each in select.select(heard, [], [])[0]:
                if each is stop:
                    return
                if each is server:
                    heard.append(server.accept()[0])
                    continue
                got = each.recv(1 << 16)
                if not got:
                    heard.remove(each)
                    continue
                os.write(write, got)
                each.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
