"""The provider's decisions: what is checked, what is a change, what refuses. No server runs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest

from infra.local import azurite_server
from infra.local.azurite import AzuriteProvider
from infra.local.azurite_server import Server
from infra.local.process_identity import identify, is_alive
from infra.local.running import find_running
from infra.local.storage_folder import AzuriteError


@pytest.fixture
def props(tmp_path):
    return {
        "account": "trainyard",
        "folder": str(tmp_path / "storage"),
        "port": 10100,
        "workspace": str(tmp_path / "workspace"),
        "containers": ["data", "runs"],
        "node": "/node",
        "azurite": "/main.js",
    }


@pytest.fixture
def stranger():
    """Another living process, which nothing here may touch."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def change(props, **changes):
    result = AzuriteProvider().diff("id", props, props | changes)
    return result.changes, result.replaces


def test_diff_compares_what_is_declared_and_nothing_else(props):
    assert change(props) == (False, [])
    assert change(props, pid=3, __provider="x") == (False, [])
    assert change(props, port=10101) == (True, [])
    assert change(props, workspace="/other", node="/n", azurite="/a") == (True, [])
    assert change(props, folder="/other", port=10101) == (True, ["folder"])


def test_check_refuses_a_relative_folder_and_a_busy_port_to_move_to(props):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        moved = AzuriteProvider().check(props, props | {"port": port, "folder": "here"}).failures
        stayed = AzuriteProvider().check(props | {"port": port}, props | {"port": port}).failures
    assert [failure.property for failure in moved] == ["folder", "port"]
    assert f"port {port} of 127.0.0.1 is in use" in moved[1].reason
    assert stayed == []


def test_read_finds_nothing_where_no_server_lives(props, tmp_path):
    assert AzuriteProvider().read("id", props).id == ""
    folder = tmp_path / "storage"
    folder.mkdir()
    record = Server(account="trainyard", port=1, node="/n", azurite="/a", containers=("data",))
    azurite_server._write_server(folder, record)
    assert AzuriteProvider().read("id", props).id == ""


def test_delete_is_silent_when_the_server_was_never_started(props, capsys):
    AzuriteProvider().delete("id", props)
    assert capsys.readouterr().out == (
        f"kept: datasets in {props['folder']}, runs in {props['workspace']}\n"
    )


def test_delete_refuses_while_a_run_is_on(props, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    runs = tmp_path / "workspace" / "runs"
    for name in ("a", "b", "c"):
        (runs / name).mkdir(parents=True)
    (runs / "a" / "supervisor.lock").touch()
    with (runs / "b" / "supervisor.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert find_running(tmp_path / "workspace") == ["b"]
        with pytest.raises(AzuriteError, match="while a run is on: b; `launch wait b`"):
            AzuriteProvider().delete("id", props)
    assert find_running(tmp_path / "workspace") == []
    AzuriteProvider().delete("id", props)


def test_a_process_is_known_by_its_start_and_not_by_its_pid_alone(stranger):
    identity = identify(stranger.pid)
    assert identity is not None
    assert is_alive(stranger.pid, identity)
    assert not is_alive(stranger.pid, identity + "0")
    assert not is_alive(os.getpid(), identity)
    stranger.kill()
    os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(stranger.pid, identity), "a zombie is dead"
    stranger.communicate()
    assert not is_alive(stranger.pid, identity)
    assert not is_alive(None, None)


def test_a_process_that_was_given_the_servers_pid_is_left_alone(tmp_path, stranger):
    record = Server(
        account="trainyard",
        port=10100,
        node="/node",
        azurite="/a",
        containers=(),
        pid=stranger.pid,
        identity="another boot/1",
    )
    azurite_server._write_server(tmp_path, record)
    assert azurite_server.stop(tmp_path) is False
    assert stranger.poll() is None


def test_a_damaged_record_and_a_folder_never_used_are_explained(tmp_path):
    with pytest.raises(AzuriteError, match="no server was ever started in"):
        azurite_server.start(tmp_path)
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(AzuriteError, match=r"server\.json is damaged"):
        azurite_server.start(tmp_path)


def test_a_file_in_the_way_is_explained(tmp_path):
    (tmp_path / "file").touch()
    wanted = Server(account="a", port=10100, node="/n", azurite="/a", containers=())
    with pytest.raises(AzuriteError, match="file: File exists"):
        azurite_server.start(tmp_path / "file", wanted)


@pytest.mark.parametrize(
    ("verb", "code", "said"),
    [("status", 3, "not running"), ("stop", 0, "was not running"), ("start", 1, "")],
)
def test_the_program_ends_with_the_documented_codes(tmp_path, verb, code, said):
    program = [sys.executable, "-m", "infra.local.azurite_server", verb, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, said)
    assert ("no server was ever started" in done.stderr) == (code == 1)


def test_files_are_written_whole_and_for_their_owner_only(tmp_path):
    record = Server(account="a", port=1, node="/n", azurite="/a", containers=("data", "runs"))
    azurite_server._write_server(tmp_path, record)
    file = tmp_path / "server.json"
    assert azurite_server.read_server(tmp_path) == record
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["containers"] == ["data", "runs"]
    assert list(tmp_path.iterdir()) == [file]
