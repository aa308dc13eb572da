"""Where a gang's ranks find each other: open before the first of them starts, and given back after."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.contracts.spec import Launcher
from jobs.engines.local import rendezvous, torch_store
from jobs.engines.local.containers import Containers
from jobs.engines.local.launchers import GangRequest, gang_request
from jobs.engines.local.rendezvous import Rendezvous
from tests.busy import HANG_S
from tests.fakes.gangs import make_cluster, make_spec
from tests.fakes.sockets import Listener, listeners

# torch's store, as far as ranks see it: it answers on the socket that it was given.
TORCH = """
import json, os, socket

class TCPStore:
    def __init__(self, host, port, **options):
        self.listener = socket.socket(fileno=options["master_listen_fd"])
        client, _ = self.listener.accept()
        options.update(host=host, port=port, preload=os.environ.get("LD_PRELOAD"))
        client.sendall(json.dumps(options).encode())
        client.close()
"""


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is preloaded, unless a test says so."""
    monkeypatch.setattr(rendezvous, "rank_library", lambda *_: None)


def request(launcher: Launcher, **changes: Any) -> GangRequest:
    return gang_request(make_spec(["train"], launcher=launcher, **changes), make_cluster())


def is_free(port: int, *, is_shared: bool = False) -> bool:
    """Whether somebody else can have the port, or who shares it with others of our user."""
    with socket.socket() as other:
        if is_shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_launcher_without_a_rendezvous_names_a_port_that_rank_0_can_have() -> None:
    made = Rendezvous(request("none"), "python", {})
    port = made.environment["MASTER_PORT"]
    assert made.environment == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert (made.helper, dict(made.of_rank(0)), is_free(int(port))) == (None, {}, True)
    made.close()


def test_horovods_is_served_by_this_process_until_it_is_closed() -> None:
    made = Rendezvous(request("horovod"), "python", {})
    port = int(made.environment["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    assert made.environment["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    assert int(made.environment["MASTER_PORT"]) != port
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    client.request("GET", "/global/0")
    assert (made.helper, client.getresponse().status) == (None, 404)
    client.close()
    made.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """An image's interpreter, whose torch has nothing but a store."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "distributed.py").write_text(TORCH)
    made = tmp_path / "python"
    # -I is for the real one: it would not look into the folder here.
    made.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] && shift && PYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n'
    )
    made.chmod(0o700)
    return made


@pytest.fixture
def torch(interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rendezvous]:
    """torch's rendezvous, with a library that ld.so does not find; its helper ends with the test."""
    monkeypatch.setattr(rendezvous, "rank_library", lambda *_: Path("/c/loopback.so"))
    made = Rendezvous(request("torch"), str(interpreter), {"PATH": os.environ["PATH"]})
    yield made
    made.close()
    assert made.helper is not None
    os.kill(made.helper, signal.SIGKILL)
    os.waitpid(made.helper, 0)


def test_torchs_listens_before_its_store_is_loaded_and_survives_close(torch: Rendezvous) -> None:
    made, port = torch, int(torch.environment["MASTER_PORT"])
    # No waiting: the connection is taken by the queue of the socket, the answer by the store.
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as rank:
        made.close()
        with rank.makefile("rb") as answer:
            told = json.loads(answer.read())
    assert told == {
        "host": "127.0.0.1",
        "port": port,
        "is_master": True,
        "wait_for_workers": False,
        "multi_tenant": True,
        "master_listen_fd": 3,
        "preload": "/c/loopback.so",
    }
    assert made.helper is not None
    ((_, listened, is_loopback),) = listeners([made.helper])
    assert (listened, is_loopback) == (port, True)
    assert os.getsid(made.helper) == made.helper


def test_store_that_opens_its_socket_itself_shares_the_port_that_is_held_for_it() -> None:
    """What enters a container is a number, and no descriptor."""
    started: list[tuple[str, list[str], list[Path]]] = []

    class RecordingContainers:
        def start(
            self, name: str, argv: list[str], _env: Mapping[str, str], *, files: list[Path]
        ) -> int:
            started.append((name, argv, files))
            return 4711

    containers = cast(Containers, RecordingContainers())
    made = Rendezvous(request("torch"), "python3", {}, containers)
    port = int(made.environment["MASTER_PORT"])
    file = Path(torch_store.__file__)
    assert made.helper == 4711
    assert started == [("store", ["python3", "-I", str(file), "-", str(port)], [file])]
    assert not is_free(port)
    descriptor = torch_store.listen(port)
    (mine,) = [each for each in listeners([os.getpid()]) if each.port == port]
    assert mine == Listener(mine.program, port, is_loopback=True)
    os.close(descriptor)
    made.close()
    assert is_free(port)


def test_tensorflows_ports_are_held_for_the_ranks_that_share_them_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous, "rank_library", lambda *_: Path("/c/loopback.so"))
    made = Rendezvous(request("tensorflow", parameter_servers=1), "python", {"LD_PRELOAD": "/x.so"})
    assert made.environment["LD_PRELOAD"] == "/c/loopback.so:/x.so"
    ports = [int(made.of_rank(rank)["TRAINYARD_HELD_PORT"]) for rank in range(3)]
    assert len(set(ports)) == 3
    addresses = [f"127.0.0.1:{port}" for port in ports]
    assert [json.loads(made.of_rank(rank)["TF_CONFIG"]) for rank in (0, 2)] == [
        {
            "cluster": {"worker": addresses[:2], "ps": addresses[2:]},
            "task": {"type": kind, "index": 0},
        }
        for kind in ("worker", "ps")
    ]
    assert [is_free(port) for port in ports] == [False] * 3
    assert [is_free(port, is_shared=True) for port in ports] == [True] * 3
    made.close()
    assert [is_free(port) for port in ports] == [True] * 3


def test_without_the_library_tensorflow_finds_its_ports_free() -> None:
    """It shares a port with nobody, so nothing can hold one for it."""
    made = Rendezvous(request("tensorflow"), "python", {})
    ports = [int(made.of_rank(rank)["TRAINYARD_HELD_PORT"]) for rank in range(2)]
    assert [is_free(port) for port in ports] == [True, True]
    assert "LD_PRELOAD" not in made.environment
    made.close()


def test_library_of_this_machine_is_for_no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "rank_library", pytest.fail)
    made = Rendezvous(request("none"), "python3", {}, cast(Containers, object()))
    assert "LD_PRELOAD" not in made.environment
    made.close()
