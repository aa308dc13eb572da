"""A watcher outlives its supervisor: it ends what is left, and says so where the run's end is not told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.contracts.spec import RunState
from jobs.engines.local.queue import Slots
from jobs.host.processes import MARK, read_process
from jobs.runs import supervision
from jobs.runs.run_folder import RunEvent, append_event, read_events
from tests.busy import HANG_S, wait_until

# A supervisor that does nothing but what the test says, and its watcher.
START = """
import os, signal, sys, time
from pathlib import Path
from jobs.engines.local.watcher import become_subreaper, watch

run_dir = Path(sys.argv[1])
become_subreaper()
supervisor = os.fork()
if not supervisor:
    exec(sys.argv[2])
    os._exit(0)
sys.exit(watch(run_dir, supervisor, "cpu"))
"""
BEGAN = RunEvent(ts="2026-11-23T15:00:00.000000Z", state=RunState.RUNNING)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that has begun and holds a node."""
    made = tmp_path / "runs" / "a"
    made.mkdir(parents=True)
    append_event(made, BEGAN)
    lock = supervision.take_lock(made)
    slots = Slots(tmp_path, "cpu")
    slots.enqueue(made, 1, "normal")
    assert slots.claim(made, 1) == (0,)
    os.close(lock)
    return made


def start(run_dir: Path, program: str) -> subprocess.Popen[str]:
    """Start a watcher over a supervisor of this program."""
    return subprocess.Popen(
        [sys.executable, "-c", START, str(run_dir), program],
        env={**os.environ, MARK: str(run_dir)},
        stdout=subprocess.PIPE,
        text=True,
    )


def watch(run_dir: Path, program: str) -> str:
    """Watch over a supervisor of this program; gives what they wrote."""
    with start(run_dir, program) as watcher:
        told, _ = watcher.communicate(timeout=HANG_S)
    assert watcher.returncode == 0
    assert Slots(run_dir.parent.parent, "cpu").holders() == []
    return told


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "its supervisor was killed by SIGKILL"),
        ("os.kill(os.getpid(), 40)", "its supervisor was killed by signal 40"),
        ("os._exit(3)", "its supervisor ended unexpectedly with exit code 3 (see supervisor.log)"),
        ("", "its supervisor ended unexpectedly with exit code 0 (see supervisor.log)"),
    ],
)
def test_run_whose_supervisor_did_not_tell_its_end_is_lost(
    run_dir: Path, program: str, reason: str
) -> None:
    watch(run_dir, program)
    first, last = read_events(run_dir)
    assert (first, last.state, last.reason) == (BEGAN, RunState.LOST, reason)


def test_end_that_the_supervisor_told_stands(run_dir: Path) -> None:
    ended = RunEvent(ts="2026-11-23T15:01:00.000000Z", state=RunState.COMPLETED, exit_code=0)
    append_event(run_dir, ended)
    watch(run_dir, "os.kill(os.getpid(), 9)")
    assert read_events(run_dir) == [BEGAN, ended]


def test_signatures_of_a_run_that_is_over_are_taken_away(run_dir: Path) -> None:
    (run_dir / "inputs").mkdir()
    (run_dir / "inputs" / "digits.sas").write_text("sig=...")
    watch(run_dir, "")
    assert list((run_dir / "inputs").iterdir()) == []


def test_run_whose_folder_was_deleted_gives_its_nodes_back(run_dir: Path) -> None:
    watch(run_dir, "import shutil; shutil.rmtree(run_dir)")
    assert not run_dir.exists()


# It leaves its session and its parent, and says who it is.
DAEMON = """
if not os.fork():
    os.setsid()
    daemon = os.fork()
    if daemon:
        print(daemon, flush=True)
        os._exit(0)
    os.execve("/bin/sleep", ["sleep", {seconds!r}], {{}})
os.wait()
"""


def test_daemon_without_a_mark_ends_with_the_supervisor(run_dir: Path) -> None:
    daemon = int(watch(run_dir, DAEMON.format(seconds="3600") + "os.kill(os.getpid(), 9)"))
    left = read_process(daemon)
    assert left is None or left.state == "Z"  # of whom the machine's first process has to know


def test_orphan_that_ends_before_the_supervisor_does_is_reaped(run_dir: Path) -> None:
    """The supervisor ends when its daemon is not even a zombie any more."""
    waits = DAEMON.format(seconds="0").replace("print(daemon, flush=True)", "inform(daemon)")
    told = """
outlet, inlet = os.pipe()
def inform(daemon):
    os.write(inlet, b"%d" % daemon)
"""
    until_reaped = """
daemon = int(os.read(outlet, 20))
while os.path.exists(f"/proc/{daemon}"):
    time.sleep(0.001)
print("reaped", flush=True)
"""
    assert watch(run_dir, told + waits + until_reaped) == "reaped\n"


def test_request_to_end_is_passed_on_and_a_hang_up_is_not(run_dir: Path) -> None:
    program = """
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), os._exit(0)))
signal.signal(signal.SIGHUP, lambda *_: print("hung up", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""
    with start(run_dir, program) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "ready\n"
        # By its own handlers, which it has by the time that it waits.
        _wait_until_ignored(watcher.pid, signal.SIGHUP)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(watcher.pid, number)
        assert watcher.communicate(timeout=HANG_S)[0] == "told\n"
    assert watcher.returncode == 0


def _wait_until_ignored(pid: int, number: signal.Signals) -> None:
    caught_by = {"SigCgt": signal.SIGTERM, "SigIgn": number}

    def is_ignored() -> bool:
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return all(int(status[mask], 16) >> (each - 1) & 1 for mask, each in caught_by.items())

    wait_until(is_ignored, what=lambda: "its handlers are not in place")


def test_supervisor_whose_watcher_is_gone_already_ends() -> None:
    program = "from jobs.engines.local.watcher import end_with_parent; end_with_parent(1)"
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGTERM
