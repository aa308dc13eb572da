"""Other people's scripts run unchanged under each launcher, and are out of strangers' reach."""

from __future__ import annotations

import os
import pickle
import socket
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from jobs.contracts.spec import RunHandle, RunState
from jobs.host.processes import read_table
from jobs.runs.run_folder import read_events
from tests.busy import HANG_S, Bound
from tests.fakes.gangs import Gangs
from tests.fakes.other_user import as_other_user, exchange, needs_root
from tests.fakes.sockets import Listener, listeners

PROGRAMS = Path(__file__).with_name("programs")
STOCK = {"torch": "stock_ddp.py", "horovod": "stock_hvd.py", "mpi": "stock_hvd.py"}
HELD = {"torch": "failing_ddp.py", "horovod": "failing_hvd.py", "mpi": "failing_hvd.py"}


@pytest.mark.parametrize(
    "launcher", ["torch", "horovod", pytest.param("mpi", marks=pytest.mark.faults)]
)
def test_stock_script_trains_and_what_it_writes_to_outputs_comes_back(
    torch_gangs: Gangs, tmp_path: Path, launcher: str
) -> None:
    gangs = torch_gangs
    handle = gangs.submit(
        ["python", STOCK[launcher]],
        launcher=launcher,
        code=str(PROGRAMS),
        code_only=(STOCK[launcher],),
    )
    status = gangs.wait(handle, 120)
    assert status.state is RunState.COMPLETED, status
    for rank in (0, 1):
        said = [text for text in gangs.texts(handle, rank) if text.startswith("rank ")]
        starts = [f"rank {rank} of 2 step {step} loss" for step in range(5)]
        assert [text.rpartition(" ")[0] for text in said] == starts
    fetched = gangs.engine.fetch(handle, tmp_path / "fetched")
    names = sorted(each.name for each in (fetched / "outputs").iterdir())
    assert names == ["weights-0.pt", "weights-1.pt"]
    # Both ranks trained one model: they saw different data, and hold the same weights.
    assert weights(fetched, 0) == weights(fetched, 1) != {}
    states = [event.state for event in read_events(Path(handle.run_dir))]
    assert states == ["queued", "preparing", "running", "completed"]


def weights(fetched: Path, rank: int) -> dict[str, bytes]:
    """The bytes of every tensor in a file of torch.save, which is a zip archive."""
    with zipfile.ZipFile(fetched / "outputs" / f"weights-{rank}.pt") as archive:
        inside = {name.partition("/")[2]: name for name in archive.namelist()}
        return {
            name: archive.read(path) for name, path in inside.items() if name.startswith("data/")
        }


class Canary:
    """Unpickled, it leaves a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.file}",)


def put(port: int, path: str, body: bytes) -> None:
    """An unauthenticated PUT to whatever listens there; how it answers does not matter."""
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client:
            client.settimeout(0.5)
            client.sendall(head + body)
            client.recv(1 << 12)
    except OSError:
        return


def run_s_processes(gangs: Gangs, handle: RunHandle) -> list[int]:
    table = read_table()
    return [pid for pid in gangs.processes(handle) + gangs.supervisors(handle) if pid in table]


def start_held(gangs: Gangs, launcher: str) -> RunHandle:
    """A gang in the middle of its training, where it stays until `hold` is removed."""
    setup = ("touch $TRAINYARD_RUN_DIR/hold",)
    handle = gangs.submit(
        ["python", HELD[launcher]], launcher=launcher, code=str(PROGRAMS), setup=setup
    )
    bound = Bound(120)
    while not all("step 3" in gangs.texts(handle, rank) for rank in (0, 1)):
        bound.check(gangs.engine.store.status(handle))
        assert not gangs.engine.store.status(handle).state.is_terminal(), gangs.engine.store.status(
            handle
        )
        time.sleep(0.05)
    return handle


@pytest.mark.parametrize("launcher", HELD)
def test_nothing_listens_beyond_loopback_and_no_pickle_is_ever_run(
    torch_gangs: Gangs, tmp_path: Path, launcher: str
) -> None:
    gangs = torch_gangs
    handle = start_held(gangs, launcher)
    open_ports = listeners(run_s_processes(gangs, handle))
    assert open_ports, "not even a meeting place?"
    beyond = [each for each in open_ports if not each.is_loopback]
    if launcher == "mpi":
        # mpirun's own port cannot be kept off the network (docs say so); its ranks open none.
        assert {each.program for each in open_ports} <= {"mpirun", "prterun", "prted"}
    else:
        assert beyond == []
    canary = tmp_path / "canary"
    attack(open_ports, pickle.dumps(Canary(canary)))
    Path(handle.run_dir, "hold").unlink()
    status = gangs.wait(handle, 60)
    assert status.state is RunState.COMPLETED, status
    assert gangs.texts(handle, 0)[-1] == "done"
    assert not canary.exists()


@needs_root
@pytest.mark.parametrize("launcher", ["torch", "horovod"])
def test_no_other_user_of_the_machine_is_answered(torch_gangs: Gangs, launcher: str) -> None:
    handle = start_held(torch_gangs, launcher)
    open_ports = listeners(run_s_processes(torch_gangs, handle))
    assert open_ports, "not even a meeting place?"
    assert answers_to_strangers(open_ports) == set()


def answers_to_strangers(open_ports: list[Listener]) -> set[tuple[str, str]]:
    """What another user of the machine is answered, or waits for in vain, and by which program."""
    answers = {
        (each.program, as_other_user(partial(exchange, ("127.0.0.1", each.port), b"")))
        for each in open_ports
    }
    return {(program, answer) for program, answer in answers if answer}


def attack(open_ports: list[Listener], body: bytes) -> None:
    """All at once: most ports never answer, and each is waited for."""
    paths = ("/global/0", "/rendezvous/0", "/worker_addresses/0", "/runfunc/func")
    asked = [(each.port, path) for each in open_ports for path in paths]
    with ThreadPoolExecutor(len(asked)) as pool:
        assert [*pool.map(lambda each: put(*each, body), asked)] == [None] * len(asked)
