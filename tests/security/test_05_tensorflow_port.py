"""Finding 5: another user of the machine gives orders to a rank's server.

The attacker is any local user. TensorFlow's server runs graphs for whoever connects, and they read
and write files as the job's owner; loopback keeps nobody of the same machine out.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.busy import wait_until
from tests.fakes.other_user import as_other_user, exchange, needs_root

pytestmark = [
    needs_root,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
SERVE = """
import selectors, socket, sys
server = {server}
print(server.getsockname()[1], flush=True)
while True:
    try:
        client, _ = server.accept()
    except BlockingIOError:
        with selectors.DefaultSelector() as selector:
            selector.register(server, 1)
            selector.select()
        continue
    client.sendall(b"read: " + client.recv(100))
    client.close()
"""
CLOSE_WAIT = "08"
SERVERS = {
    "IPv4": "socket.create_server(('', 0))",
    "both families": "socket.create_server(('::', 0), family=10, dualstack_ipv6=True)",
    "IPv6": "socket.create_server(('::', 0), family=10)",
    "one that does not block": "socket.create_server(('', 0)); server.setblocking(False)",
    "an address of its own choice": "socket.create_server(('127.0.0.2', 0))",
}


@contextmanager
def serving(library: Path, server: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server under the preloaded library, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(server=server)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", SERVERS)
def test_only_our_own_processes_are_served(library: Path, kind: str) -> None:
    host = {"IPv6": "::1", "an address of its own choice": "127.0.0.2"}.get(kind, "127.0.0.1")
    with serving(library, SERVERS[kind]) as (_, port):
        answers = [
            exchange((host, port), b"mine"),
            as_other_user(lambda: exchange((host, port), b"theirs")),
            exchange((host, port), b"mine again"),
        ]
    assert answers == ["read: mine", "", "read: mine again"]


def test_refusal_is_told_once(library: Path) -> None:
    with serving(library, SERVERS["IPv4"]) as (process, port):
        for _ in range(3):
            as_other_user(lambda: exchange(("127.0.0.1", port), b"theirs"))
        exchange(("127.0.0.1", port), b"mine")
        process.kill()
        said = process.communicate()[1]
    assert said == (
        f"trainyard: refused a connection to port {port}: it is of uid 65534, not of uid 0\n"
    )


def is_hung_up(port: int) -> bool:
    """Whether a connection to this port of 127.0.0.1 has lost its other end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[1] == f"0100007F:{port:04X}" and row[3] == CLOSE_WAIT for row in rows)


def test_order_of_who_has_hung_up_already_is_not_taken(library: Path) -> None:
    """Nobody can say any more whose it was; older kernels call such a socket root's."""

    def order_and_leave() -> str:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"theirs")
        return ""

    with serving(library, SERVERS["IPv4"]) as (process, port):
        # Stopped, so that it looks at the connection when its other end is gone.
        process.send_signal(19)
        as_other_user(order_and_leave)
        wait_until(lambda: is_hung_up(port))
        process.send_signal(18)
        assert exchange(("127.0.0.1", port), b"mine") == "read: mine"
        process.kill()
        assert process.communicate()[1] == (
            f"trainyard: refused a connection to port {port}: its other end is closed already\n"
        )
