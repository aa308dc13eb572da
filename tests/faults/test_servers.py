"""TensorFlow's clusters with ranks of the standard library: servers serve, end and die."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import JobRetry, RunHandle, RunState
from jobs.runs.run_folder import read_events
from tests.busy import limit_s
from tests.fakes.gangs import Gangs
from tests.fakes.sockets import listeners

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

# Each serves its own address of TF_CONFIG as TensorFlow does: on every interface.
PROGRAM = """
import json, os, pathlib, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
rank, run_dir = int(os.environ["RANK"]), pathlib.Path(os.environ["TRAINYARD_RUN_DIR"])
port = int(config["cluster"][kind][index].rpartition(":")[2])
server = socket.create_server(("", port))
print("serves", kind, index, rank, os.environ["WORLD_SIZE"], flush=True)
for ways in sys.argv[1:]:
    who, _, way = ways.partition("=")
    if who == f"{kind}{index}":
        while len(list(run_dir.glob("ready-*"))) < sum(map(len, config["cluster"].values())) - 1:
            time.sleep(0.01)
        time.sleep(0.1)
        if way == "sleep":
            time.sleep(3600)
        sys.exit(int(way))
(run_dir / f"ready-{rank}").touch()
for hosts in config["cluster"].values():
    for host in hosts:
        address = host.rpartition(":")
        while True:
            try:
                socket.create_connection((address[0], int(address[2]))).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
(run_dir / f"met-{rank}").touch()
if kind == "ps" or (kind == "worker" and "chief" in config["cluster"]):
    server.accept()
    time.sleep(3600)
# Who has ended is met by nobody: a late one would ask for it for ever.
while len(list(run_dir.glob("met-*"))) < sum(map(len, config["cluster"].values())):
    time.sleep(0.01)
while (run_dir / "hold").exists():
    time.sleep(0.01)
"""


def submit(gangs: Gangs, *ways: str, **changes: object) -> RunHandle:
    settings = {"launcher": "tensorflow", "parameter_servers": 1, **changes}
    return gangs.python(PROGRAM, *ways, **settings)


def ends(handle: RunHandle) -> list[tuple[int | None, int | None]]:
    found = [json.loads(path.read_text()) for path in sorted(Path(handle.run_dir).glob("ranks/*"))]
    return [(each["exit_code"], each["signal"]) for each in found]


def test_servers_are_ended_with_the_workers_and_that_is_no_failure(gangs: Gangs) -> None:
    handle = submit(gangs, parameter_servers=2)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    assert (status.state, status.exit_code, status.reason) == (RunState.COMPLETED, 0, None)
    assert [gangs.texts(handle, rank) for rank in range(4)] == [
        ["serves worker 0 0 2"],
        ["serves worker 1 1 2"],
        ["serves ps 0 2 2"],
        ["serves ps 1 3 2"],
    ]
    assert ends(handle) == [(0, None), (0, None), (None, 15), (None, 15)]
    assert not Path(handle.run_dir, "error.json").exists()


@pytest.mark.faults
def test_with_a_chief_the_run_is_over_when_it_is(gangs: Gangs) -> None:
    handle = submit(gangs, chief=True, processes_per_node=3)
    assert gangs.wait(handle).state is RunState.COMPLETED
    assert ends(handle) == [(0, None), (None, 15), (None, 15), (None, 15)]


@pytest.mark.parametrize(
    ("who", "rank", "changes"),
    [
        ("ps0", 2, {}),
        *(
            pytest.param(*each, marks=pytest.mark.faults)
            for each in [
                ("worker1", 1, {}),
                ("worker0", 1, {"chief": True}),
                ("chief0", 0, {"chief": True}),
            ]
        ),
    ],
)
def test_whoever_dies_is_named(gangs: Gangs, who: str, rank: int, changes: dict[str, bool]) -> None:
    handle = submit(gangs, f"{who}=3", setup=("touch $TRAINYARD_RUN_DIR/hold",), **changes)
    status = gangs.wait(handle)
    gangs.wait_until_gone(handle)
    error = gangs.error(handle)
    assert (status.state, error.rank, error.exit_code) == (RunState.FAILED, rank, 3), error


@pytest.mark.faults
def test_idle_server_is_not_taken_for_the_one_that_hangs(gangs: Gangs) -> None:
    handle = submit(
        gangs, "worker1=sleep", setup=("touch $TRAINYARD_RUN_DIR/hold",), hang_s=limit_s(2.0)
    )
    gangs.wait(handle)
    error = gangs.error(handle)
    assert (error.cause, error.rank) == ("hang", 1), error


def test_all_ports_are_on_loopback_and_nobody_else_is_given_them(gangs: Gangs) -> None:
    handle = submit(gangs, setup=("touch $TRAINYARD_RUN_DIR/hold",))
    for rank in range(3):
        gangs.wait_for_file(handle, f"ready-{rank}")
    open_ports = listeners(gangs.processes(handle) + gangs.supervisors(handle))
    # The meeting port of MASTER_PORT is nobody's here.
    assert len(open_ports) == 3
    assert all(each.is_loopback for each in open_ports)
    for each in open_ports:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", each.port))
    Path(handle.run_dir, "hold").unlink()
    assert gangs.wait(handle).state is RunState.COMPLETED


def test_preempted_cluster_is_started_again_as_a_whole(gangs: Gangs) -> None:
    program = """
import os, pathlib, sys, time
marker = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], os.environ["RANK"])
if '"type": "ps"' in os.environ["TF_CONFIG"]:
    time.sleep(3600)
if not marker.exists():
    marker.touch(); sys.exit(75)
"""
    handle = gangs.python(
        program, launcher="tensorflow", parameter_servers=1, retry=JobRetry(max=1)
    )
    assert gangs.wait(handle).state is RunState.COMPLETED
    attempts = [event.attempt for event in read_events(Path(handle.run_dir)) if event.attempt]
    assert attempts == [f"{handle.id}.1", f"{handle.id}.1", f"{handle.id}.2"]


def test_machine_whose_library_does_not_do_its_work_refuses_before_anything_starts(
    gangs: Gangs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nwhile [ $1 != -o ]; do shift; done; echo x > $2\n")
    compiler.chmod(0o700)
    with pytest.raises(EnvironmentFailure, match=r"trying loopback\.so"):
        submit(gangs)
    assert not os.path.lexists(tmp_path / "runs")
