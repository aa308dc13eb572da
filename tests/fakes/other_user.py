"""Another user of this machine: does something as uid 65534, in a child."""

from __future__ import annotations

import encodings.idna  # noqa: F401 (the child may not read where Python lies)
import os
import socket
import warnings
from collections.abc import Callable

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def as_other_user(act: Callable[[], str]) -> str:
    """What `act` gives, or the error of the system that it meets, as uid 65534."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, where threads run
        child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = act()
        except OSError as error:
            said = type(error).__name__
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def exchange(address: tuple[str, int], sent: bytes) -> str:
    """What is answered to these bytes; empty where the connection is only closed."""
    with socket.create_connection(address, timeout=2) as client:
        try:
            client.sendall(sent)
            return client.recv(1 << 16).decode("latin-1")
        except ConnectionError:
            return ""
