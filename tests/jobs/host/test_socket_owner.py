"""Who holds the other end of a connection, by both ways in which a kernel tells it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from jobs.host import socket_owner
from jobs.host.socket_owner import is_own_peer, listener_owner
from tests.fakes.other_user import NOBODY, needs_root, squatting
from tests.ports import free_port


@pytest.fixture(autouse=True, params=["sock_diag", "tables of /proc"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "sock_diag":
        monkeypatch.setattr(socket_owner, "_SOCK_DIAG", 99)  # no kernel has such a protocol


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    is_dual = request.param == "::"
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family, dualstack_ipv6=is_dual) as made:
        yield made


def reached_at(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return ("::1" if host == "::1" else "127.0.0.1"), port


def test_listener_is_named_by_its_owner(listener: socket.socket) -> None:
    assert listener_owner(reached_at(listener)) == os.geteuid()


def test_peer_of_ours_is_known_until_it_has_hung_up(listener: socket.socket) -> None:
    client = socket.create_connection(reached_at(listener))
    with listener.accept()[0] as accepted:
        assert is_own_peer(accepted)
        client.close()
        assert not is_own_peer(accepted)


def test_port_without_a_listener_has_no_owner() -> None:
    assert listener_owner(("127.0.0.1", free_port())) is None


@needs_root
def test_port_of_another_user_is_his() -> None:
    with squatting() as squatter:
        assert listener_owner(("127.0.0.1", squatter.port)) == NOBODY


@needs_root
def test_peer_of_another_user_is_not_ours() -> None:
    with squatting() as squatter, socket.create_connection(("127.0.0.1", squatter.port)) as client:
        assert not is_own_peer(client)
