"""TensorFlow's own scripts run unchanged under `launcher: tensorflow`, out of strangers' reach."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.spec import RunHandle, RunState
from jobs.host.processes import read_table
from jobs.runs.failure import RankReport
from jobs.runs.run_folder import read_events
from tests.busy import Bound
from tests.fakes.gangs import Gangs
from tests.fakes.sockets import Listener, listeners

PROGRAMS = Path(__file__).with_name("programs")
GONE_WITHIN_S = 10.0
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
# Plain gradient descent in float64: what both strategies have to come to.
LOSSES = [3.902544, 1.905003, 1.593589, 1.624816, 0.789962]
WEIGHTS = [0.646496, 0.648772, 0.635106, 0.698095]


def submit(gangs: Gangs, script: str, *arguments: str, **changes: Any) -> RunHandle:
    return gangs.submit(
        ["python", script, *arguments],
        launcher="tensorflow",
        code=str(PROGRAMS),
        # A rank that is killed leaves TensorFlow's generated files behind.
        env={**QUIET, "TMPDIR": str(gangs.workspace)},
        **{"code_only": (script,), **changes},
    )


def losses(gangs: Gangs, handle: RunHandle, rank: int) -> list[float]:
    texts = [text for text in gangs.texts(handle, rank) if " loss " in text]
    return [float(text.rpartition(" ")[2]) for text in texts]


def reports(handle: RunHandle) -> list[RankReport]:
    return [
        RankReport(
            **{
                key: value
                for key, value in json.loads(path.read_bytes()).items()
                if key in RankReport.__struct_fields__
            }
        )
        for path in sorted(Path(handle.run_dir, "ranks").glob("*.json"))
    ]


def test_two_mirrored_workers_train_one_model(tensorflow_gangs: Gangs) -> None:
    gangs = tensorflow_gangs
    handle = submit(gangs, "stock_mwms.py")
    status = gangs.wait(handle, 120)
    assert status.state is RunState.COMPLETED, status
    for rank in (0, 1):
        assert losses(gangs, handle, rank) == pytest.approx(LOSSES, abs=1e-5)
        written = Path(handle.run_dir, "outputs", f"weights-{rank}.json").read_text()
        assert json.loads(written) == pytest.approx(WEIGHTS, abs=1e-5)
    states = [event.state for event in read_events(Path(handle.run_dir))]
    assert states == ["queued", "preparing", "running", "completed"]


@pytest.mark.faults
def test_without_a_compiler_workers_train_and_the_run_says_what_is_open(
    tensorflow_gangs: Gangs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs = tensorflow_gangs
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    handle = submit(gangs, "stock_mwms.py")
    status = gangs.wait(handle, 120)
    assert status.state is RunState.COMPLETED, status
    assert losses(gangs, handle, 1) == pytest.approx(LOSSES, abs=1e-5)
    said = Path(handle.run_dir, "supervisor.log").read_text()
    assert "TensorFlow's ports are open on every network interface" in said
    assert "(apt-get install gcc libc6-dev)" in said


def test_chief_trains_on_workers_and_a_server_which_are_ended_with_it(
    tensorflow_gangs: Gangs,
) -> None:
    """All of them listen, on loopback alone."""
    gangs = tensorflow_gangs
    handle = submit(gangs, "stock_ps.py", processes_per_node=3, parameter_servers=1, chief=True)
    open_ports = listeners_until_the_end(gangs, handle)
    assert len({each.port for each in open_ports}) >= 4, "chief, workers and server listen"
    assert [each for each in open_ports if not each.is_loopback] == []
    status = gangs.wait(handle, 120)
    gangs.wait_until_gone(handle)
    assert (status.state, status.exit_code) == (RunState.COMPLETED, 0), status
    assert losses(gangs, handle, 0) == pytest.approx(LOSSES, abs=1e-5)
    written = Path(handle.run_dir, "outputs", "weights.json").read_text()
    assert json.loads(written) == pytest.approx(WEIGHTS, abs=1e-5)
    assert "weights on /job:ps/replica:0/task:0/device:CPU:0" in gangs.texts(handle, 0)
    for rank, serving in enumerate(["worker 0 serves", "worker 1 serves", "ps 0 serves"], start=1):
        assert serving in gangs.texts(handle, rank)
    ends = [(each.exit_code, each.signal, each.stopped_s is not None) for each in reports(handle)]
    assert ends == [(0, None, False), *[(None, 15, True)] * 3]
    assert not Path(handle.run_dir, "error.json").exists()


def listeners_until_the_end(gangs: Gangs, handle: RunHandle) -> set[Listener]:
    """Whatever of the run is seen to listen while it lasts."""
    bound, seen = Bound(120), set[Listener]()
    while not gangs.engine.store.status(handle).state.is_terminal():
        bound.check(gangs.texts(handle, 0))
        table = read_table()
        pids = [pid for pid in gangs.processes(handle) + gangs.supervisors(handle) if pid in table]
        # One may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            seen |= {*listeners(pids)}
        time.sleep(0.2)
    return seen


def wait_for_text(gangs: Gangs, handle: RunHandle, rank: int, start: str) -> None:
    bound = Bound(120)
    while not any(text.startswith(start) for text in gangs.texts(handle, rank)):
        status = gangs.engine.store.status(handle)
        bound.check(gangs.texts(handle, rank))
        assert not status.state.is_terminal(), status
        time.sleep(0.05)


@pytest.mark.faults
def test_death_of_a_server_is_the_run_s(tensorflow_gangs: Gangs) -> None:
    gangs = tensorflow_gangs
    handle = submit(gangs, "held_ps.py", processes_per_node=2, parameter_servers=1, chief=True)
    wait_for_text(gangs, handle, 0, "step 3")
    os.kill(reports(handle)[2].child, signal.SIGKILL)
    bound = Bound(GONE_WITHIN_S)
    status = gangs.wait(handle, 60)
    gangs.wait_until_gone(handle)
    bound.check(status)
    error = gangs.error(handle)
    assert (status.state, error.rank, error.cause) == (RunState.FAILED, 2, "killed by SIGKILL")


@pytest.mark.parametrize(
    ("way", "rank", "code", "cause"),
    [
        ("SIGKILL", 0, 137, "killed by SIGKILL"),
        pytest.param("exception", 1, 1, "uncaught exception", marks=pytest.mark.faults),
        pytest.param("exit 1", 1, 1, "exit code 1", marks=pytest.mark.faults),
        pytest.param("SIGKILL", 1, 137, "killed by SIGKILL", marks=pytest.mark.faults),
        pytest.param("exception", 0, 1, "uncaught exception", marks=pytest.mark.faults),
    ],
)
def test_death_of_a_worker_ends_the_gang_and_names_it(
    tensorflow_gangs: Gangs, way: str, rank: int, code: int, cause: str
) -> None:
    gangs = tensorflow_gangs
    handle = submit(
        gangs,
        "failing_mwms.py",
        way,
        str(rank),
        code_only=("failing_mwms.py", "failing.py"),
    )
    gangs.wait_for_file(handle, "failed", 120)
    bound = Bound(GONE_WITHIN_S)
    status = gangs.wait(handle, 60)
    gangs.wait_until_gone(handle)
    bound.check(status)
    error = gangs.error(handle)
    assert (status.state, error.rank, error.cause) == (RunState.FAILED, rank, cause), error
    assert error.exit_code == code
