"""The owner of a port is whoever gets connections to its address, not whoever has its number."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.data.streaming import loopback_owner

US, OTHER = os.geteuid(), os.geteuid() + 1
HOST, NEIGHBOUR, ANY = "0100007F", "0200007F", "00000000"
MAPPED, ANY_6 = "0000000000000000FFFF00000100007F", "0" * 32


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ([(HOST, US)], ""),
        ([(HOST, US), (NEIGHBOUR, OTHER)], ""),
        ([(ANY, US), (NEIGHBOUR, OTHER)], ""),
        ([(ANY_6, US)], ""),
        ([(ANY, US), (HOST, OTHER)], "is held by another user"),
        ([(ANY, US), (MAPPED, OTHER)], "is held by another user"),
        ([(HOST, US), (HOST, OTHER)], "is held by another user"),
        ([(ANY_6, OTHER)], "is held by another user"),
        ([(NEIGHBOUR, US)], "no process listens on port"),
        ([], "no process listens on port"),
    ],
)
def test_the_listener_of_the_address_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listeners: list[tuple[str, int]], said: str
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        port = server.getsockname()[1]
        rows = [
            f"{number}: {address}:{port:04X} 00000000:0000 0A 0:0 00:0 0 {uid} 0 1"
            for number, (address, uid) in enumerate(listeners)
        ]
        table = tmp_path / "tcp"
        table.write_text("\n".join(["  sl  local_address ...", *rows]))
        monkeypatch.setattr(loopback_owner, "TABLES", (table,))
        if not said:
            loopback_owner.check_own_server(connection)
            return
        with pytest.raises((TrainingError, ConnectionError), match=said):
            loopback_owner.check_own_server(connection)


def test_our_own_server_is_ours() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        loopback_owner.check_own_server(connection)
