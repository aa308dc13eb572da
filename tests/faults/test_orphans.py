"""However a run ends, nothing of it is left, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import NotFound
from jobs.contracts.spec import DatasetVersion, InputSpec, RunHandle, RunState
from jobs.engines.local.engine import LocalEngine
from jobs.host.processes import Process, read_table
from jobs.runs.outcome import exit_code
from tests import seeds
from tests.busy import HANG_S, Bound, limit_s, wait_until
from tests.fakes.gangs import Gangs
from tests.fakes.hidden import (
    are_living,
    end_hidden,
    hidden,
    start_daemons,
    strangers,
    wait_until_all_gone,
)
from tests.fakes.local_server import name_server

GONE_WITHIN_S = 10.0


@pytest.fixture
def bystanders() -> Iterator[list[Process]]:
    """Processes of nobody's run; each test ends by seeing that they live."""
    with strangers() as processes:
        yield processes
        assert are_living(processes) == [True, True]


def supervisor_and_watcher(gangs: Gangs, handle: RunHandle) -> tuple[int, int]:
    table = read_table()
    pair = gangs.supervisors(handle)
    supervisor = next(pid for pid in pair if table[pid].parent in pair)
    return supervisor, table[supervisor].parent


def kill_at_once(pids: tuple[int, ...]) -> None:
    """Kill processes, none of which sees another's end."""
    for sign in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, sign)


def test_cancel_of_a_running_run_leaves_nothing(gangs: Gangs, bystanders: list[Process]) -> None:
    handle = start_daemons(gangs)
    bound = Bound(GONE_WITHIN_S)
    gangs.engine.cancel(handle)
    status = gangs.wait(handle)
    wait_until_all_gone(gangs, handle)
    bound.check(status)
    assert (status.state, status.exit_code) == (RunState.CANCELLED, 103)
    gangs.engine.cancel(handle)  # silent once it is over


def test_ordinary_end_leaves_no_daemon_behind(gangs: Gangs, bystanders: list[Process]) -> None:
    program = """
import os, sys
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    os._exit(0)
os.wait()
"""
    unlike_any_other_s = str(100_000 + os.getpid())
    handle = gangs.python(program, unlike_any_other_s)
    assert gangs.wait(handle).state is RunState.COMPLETED
    wait_until_all_gone(gangs, handle)
    command = f"sleep\0{unlike_any_other_s}\0".encode()
    assert [pid for pid in read_table() if _command_of(pid) == command] == []


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_supervisor_killed_leaves_nothing_and_the_run_is_lost(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    handle = start_daemons(gangs)
    supervisor, _ = supervisor_and_watcher(gangs, handle)
    bound = Bound(GONE_WITHIN_S)
    os.kill(supervisor, signal.SIGKILL)
    status = gangs.wait(handle)
    wait_until_all_gone(gangs, handle)
    bound.check(status)
    assert (status.state, status.reason) == (
        RunState.LOST,
        "its supervisor was killed by SIGKILL",
    )


def test_watcher_killed_ends_the_run_and_leaves_nothing(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    handle = start_daemons(gangs)
    _, watcher = supervisor_and_watcher(gangs, handle)
    bound = Bound(GONE_WITHIN_S)
    os.kill(watcher, signal.SIGKILL)
    status = gangs.wait(handle)
    wait_until_all_gone(gangs, handle)
    bound.check(status)
    assert (status.state, status.reason, exit_code(status)) == (
        RunState.LOST,
        "its watcher was killed",
        100,
    )


def test_both_killed_is_lost_and_cancel_sweeps_what_bears_the_mark(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    handle = start_daemons(gangs, "child", "deaf", "daemon", "stopped")
    kill_at_once(supervisor_and_watcher(gangs, handle))
    status = gangs.wait(handle)
    assert (status.state, status.reason) == (RunState.LOST, "its supervisor is gone")
    assert hidden(handle)  # nobody is left to end the daemons, until somebody cancels
    gangs.engine.cancel(handle)
    wait_until_all_gone(gangs, handle)
    gangs.engine.cancel(handle)


def test_rank_that_begins_after_both_were_killed_ends(tmp_path: Path) -> None:
    """Once it lived on: the kernel tells of no end before a process has asked for it."""
    go, interpreter = tmp_path / "go", tmp_path / "python"
    interpreter.write_text(
        f'#!/bin/sh\nwhile [ ! -e "{go}" ]; do sleep 0.01; done\nexec "{sys.executable}" "$@"\n'
    )
    interpreter.chmod(0o755)
    gangs = Gangs(tmp_path / "workspace", interpreter=interpreter)
    handle = gangs.python("import time; time.sleep(3600)")
    wait_until(lambda: len(gangs.processes(handle)) >= 2)
    kill_at_once(supervisor_and_watcher(gangs, handle))
    assert gangs.processes(handle)
    go.touch()
    gangs.wait_until_gone(handle)
    gangs.end()


@pytest.mark.parametrize("stage", ["running", "queued", "both killed"])
def test_run_whose_folder_is_gone_can_be_cancelled(
    gangs: Gangs, bystanders: list[Process], stage: str
) -> None:
    # A daemon does not end with its parent.
    first = handle = start_daemons(gangs, "daemon")
    if stage == "queued":
        handle = gangs.python("import time; time.sleep(3600)")
        # A supervisor that has not come so far finds nothing to supervise.
        queued = handle
        wait_until(lambda: gangs.engine.store.status(queued).reason is not None, 60)
    before = gangs.supervisors(handle)
    shutil.rmtree(handle.run_dir)
    if stage == "both killed":
        for pid in before:
            os.kill(pid, signal.SIGKILL)
    assert gangs.engine.store.find(handle.id) == handle
    assert gangs.engine.store.status(handle).state is RunState.RUNNING
    gangs.engine.cancel(handle)
    status = gangs.wait(handle, GONE_WITHIN_S)
    assert (status.state, status.reason) == (RunState.LOST, "its folder was deleted")
    wait_until_all_gone(gangs, handle)
    assert not Path(handle.run_dir).exists()
    with pytest.raises(NotFound):
        gangs.engine.store.find(handle.id)
    if stage == "queued":
        assert gangs.engine.store.status(first).state is RunState.RUNNING
    else:
        # Its nodes are free again.
        assert gangs.wait(gangs.submit(["true"])).state is RunState.COMPLETED


def test_run_whose_record_is_damaged_can_be_cancelled(gangs: Gangs) -> None:
    handle = gangs.python("import time; time.sleep(3600)")
    gangs.wait_for_file(handle, "ranks/00001.json")
    Path(handle.run_dir, "run.json").write_bytes(b"{")
    gangs.engine.cancel(handle)
    wait_until_all_gone(gangs, handle)
    # Its nodes are free again.
    assert gangs.wait(gangs.submit(["true"])).state is RunState.COMPLETED


def test_cancel_of_a_lost_run_without_processes_touches_nothing(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    """Once it looked for leftovers below process 0: the whole machine."""
    handle = gangs.python("import time; time.sleep(3600)")
    gangs.wait_for_file(handle, "ranks/00001.json")
    for pid in supervisor_and_watcher(gangs, handle):
        os.kill(pid, signal.SIGKILL)
    gangs.wait_until_gone(handle, timeout_s=60)
    before = {pid: each.start for pid, each in read_table().items() if each.parent in (0, 1)}
    gangs.engine.cancel(handle)
    after = {pid: each.start for pid, each in read_table().items()}
    assert gangs.engine.store.status(handle).state is RunState.LOST
    assert before[1] == after[1]


@pytest.mark.faults
def test_record_that_names_another_process_signals_nobody(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    """A job's program may write into `ranks/`; a hang then must not reach whom it names."""
    program = """
import json, os, pathlib, sys, time
path = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], "ranks", "%05d.json" % int(os.environ["RANK"]))
while not path.exists():
    time.sleep(0.01)
record = json.loads(path.read_text())
record.update(child=int(sys.argv[1 + int(os.environ["RANK"])]), pid=1)
path.write_text(json.dumps(record))
time.sleep(3600)
"""
    stranger = str(bystanders[1].pid)
    handle = gangs.python(program, "1", stranger, hang_s=limit_s(2.0))
    status = gangs.wait(handle)
    wait_until_all_gone(gangs, handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 124)


def test_cancel_while_queued_starts_nothing(gangs: Gangs, bystanders: list[Process]) -> None:
    first = gangs.python("import time; time.sleep(3600)")
    gangs.wait_for_file(first, "ranks/00001.json")
    second = gangs.python("raise SystemExit(9)")
    gangs.engine.cancel(second)
    status = gangs.wait(second)
    gangs.wait_until_gone(second)
    assert (status.state, status.started) == (RunState.CANCELLED, None)
    assert not Path(second.run_dir, "rank.json").exists()
    assert gangs.engine.store.status(first).state is RunState.RUNNING


@pytest.fixture
def silent_store() -> Iterator[socket.socket]:
    """A store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server


def submit_preparing(gangs: Gangs, store: socket.socket) -> RunHandle:
    """A run that is fetching its input from a store that never answers."""
    environment = gangs.engine.environment
    folder = gangs.workspace / "storage"
    folder.mkdir()
    (folder / "account.key").write_text("a2V5")
    name_server(folder)
    endpoint = f"http://127.0.0.1:{store.getsockname()[1]}/test"
    storage = msgspec.structs.replace(
        environment.storage, blob_endpoint=endpoint, folder=str(folder)
    )
    environment = msgspec.structs.replace(environment, storage=storage)
    gangs.engine = LocalEngine(environment, runtime=gangs.runtime)
    dataset = DatasetVersion(name="digits", version=1, digest="0" * 64, files=1, bytes=1)
    handle = gangs.python("", inputs={"digits": InputSpec(dataset=dataset, mode="download")})
    wait_until(lambda: gangs.engine.store.status(handle).state is RunState.PREPARING, 60)
    return handle


@pytest.mark.parametrize("victim", ["cancel", "supervisor", "both"])
def test_end_while_the_inputs_are_fetched_leaves_nothing(
    gangs: Gangs, bystanders: list[Process], silent_store: socket.socket, victim: str
) -> None:
    handle = submit_preparing(gangs, silent_store)
    silent_store.settimeout(HANG_S)
    asking, _ = silent_store.accept()
    bound = Bound(GONE_WITHIN_S)
    if victim == "cancel":
        gangs.engine.cancel(handle)
    else:
        supervisor, watcher = supervisor_and_watcher(gangs, handle)
        for pid in (supervisor, watcher)[: 2 if victim == "both" else 1]:
            os.kill(pid, signal.SIGKILL)
    status = gangs.wait(handle)
    wait_until_all_gone(gangs, handle)
    bound.check(status)
    assert status.state is (RunState.CANCELLED if victim == "cancel" else RunState.LOST)
    asking.close()


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_hundred_kills_at_random_moments_leave_nothing(
    gangs: Gangs, bystanders: list[Process]
) -> None:
    chance = seeds.dice("orphans")
    for number in range(100):
        case = f"kill {number}"
        handle = gangs.submit(["python", str(Path(__file__).with_name("programs") / "daemons.py")])
        time.sleep(chance.uniform(0, 1.2))
        pids = gangs.supervisors(handle)
        victims = chance.choice(["one", "other", "cancel"])
        if victims == "cancel":
            gangs.engine.cancel(handle)
        else:
            for pid in pids[:1] if victims == "one" else pids[-1:]:
                os.kill(pid, signal.SIGKILL)
        status = gangs.wait(handle)
        assert status.state in (RunState.LOST, RunState.CANCELLED), (case, status)
        wait_until_all_gone(gangs, handle)
        end_hidden(handle)
        assert are_living(bystanders) == [True, True], case


def test_submit_interrupted_after_the_start_leaves_the_folder_to_the_supervisor(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = os.posix_spawn

    def start_and_be_interrupted(*arguments: Any, **options: Any) -> int:
        start(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.engines.local.submission.os.posix_spawn", start_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        gangs.python("import time; time.sleep(60)")
    (status,) = gangs.engine.store.list()
    handle = gangs.engine.store.handle(status.id)
    assert gangs.wait(handle).state is RunState.CANCELLED
    gangs.wait_until_gone(handle)
