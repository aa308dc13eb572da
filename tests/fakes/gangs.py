"""Makes environments, jobs and runs of the local engine for tests; real processes, stdlib ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.contracts.spec import (
    Cluster,
    Containers,
    Environment,
    JobRetry,
    JobSpec,
    Limits,
    RankError,
    RunHandle,
    RunStatus,
    Storage,
    Workspace,
)
from jobs.engines.local.engine import LocalEngine
from jobs.host.processes import of_run, read_table
from jobs.rank.main import oom_kills
from tests.busy import POLL_S, Bound, wait_until

PROGRAMS = Path(__file__).parents[1] / "faults" / "programs"
# A program that is at work until a file appears.
UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


def make_cluster(*, nodes: int = 1, processes: int = 4) -> Cluster:
    """A cluster of this machine."""
    return Cluster(
        compute="cpu-test",
        size="local",
        gpus_per_node=0,
        cpus_per_node=os.cpu_count() or 1,
        processes_per_node=processes,
        rdma=False,
        priority="dedicated",
        min_nodes=0,
        max_nodes=nodes,
        idle_s=0,
        price_per_node_hour=None,
        currency=None,
    )


def make_environment(workspace: Path, *, nodes: int = 1, processes: int = 4) -> Environment:
    """A local stack's output, with one cluster and no store behind it."""
    return Environment(
        schema=1,
        stack="local",
        engine="local",
        location="local",
        subscription_id=None,
        resource_group=None,
        workspace=Workspace(name="test", id="test", endpoint=f"file://{workspace}"),
        storage=Storage(
            account="test",
            blob_endpoint="http://127.0.0.1:1/test",
            containers=Containers(data="data", runs="runs"),
        ),
        registry=None,
        key_vault=None,
        clusters={"cpu": make_cluster(nodes=nodes, processes=processes)},
        images={},
    )


def make_spec(command: list[str], *, hang_s: float = 600.0, **changes: Any) -> JobSpec:
    """A job of one node and two processes, unless told otherwise."""
    fields: dict[str, Any] = {
        "name": "test",
        "stack": "local",
        "image": "test",
        "launcher": "none",
        "command": tuple(command),
        "code": None,
        "code_only": (),
        "cluster": "cpu",
        "compute": "cpu-test",
        "nodes": 1,
        "processes_per_node": 2,
        "parameter_servers": 0,
        "inputs": {},
        "outputs": (),
        "setup": (),
        "env": {},
        "secrets": {},
        "limits": Limits(wall_clock_s=None, hang_s=hang_s),
        "retry": JobRetry(),
        "shm_size": None,
        "priority": "normal",
        "experiment": None,
        "tags": {},
    }
    return JobSpec(**{**fields, **changes})


def reasons(way: str, text: str, *, killed_before: int) -> list[str]:
    """Give the words of a run on a rank that died in this way.

    A test beside this one may have had the kernel kill for memory, which it counts for the machine.
    """
    if way == "SIGKILL" and oom_kills() > killed_before:
        return [text, "out of memory: the kernel killed it (SIGKILL) because memory ran out"]
    return [text]


class Gangs:
    """A local engine on a workspace of its own; ranks run under `interpreter`."""

    def __init__(
        self,
        workspace: Path,
        *,
        nodes: int = 1,
        processes: int = 4,
        interpreter: Path = Path(sys.executable),
    ) -> None:
        self.workspace = workspace
        environment = make_environment(workspace, nodes=nodes, processes=processes)
        self._interpreter = interpreter
        self.engine = LocalEngine(environment, runtime=self.runtime)
        self.handles: list[RunHandle] = []

    def runtime(self, _image: str) -> Path:
        """What realises every image here."""
        return self._interpreter

    def submit(
        self, command: list[str], *, secrets: Mapping[str, str] | None = None, **changes: Any
    ) -> RunHandle:
        """Submit a job; see `make_spec`. `secrets` are values by variable."""
        changes.setdefault("secrets", dict.fromkeys(secrets or {}, "key"))
        plan = self.engine.plan(make_spec(command, **changes))
        handle = self.engine.submit(plan, secrets or {})
        self.handles.append(handle)
        return handle

    def python(self, program: str, *arguments: str, **changes: Any) -> RunHandle:
        """Submit a job whose ranks run this Python text."""
        return self.submit(["python", "-c", program, *arguments], **changes)

    def wait(self, handle: RunHandle, timeout_s: float = 60.0) -> RunStatus:
        """Wait until the run is over; a run that is not by then fails the test."""
        bound = Bound(timeout_s)
        while not (status := self.engine.store.status(handle)).state.is_terminal():
            bound.check(f"not over: {status}")
            time.sleep(POLL_S)
        return status

    def wait_for_file(
        self, handle: RunHandle, name: str, timeout_s: float = 60.0, *, holding: bytes = b""
    ) -> Path:
        """Wait until a file of the run's directory is there and holds these bytes."""
        path = Path(handle.run_dir) / name

        def status() -> RunStatus:
            return self.engine.store.status(handle)

        wait_until(
            lambda: path.exists() and holding in path.read_bytes(),
            timeout_s,
            lambda: f"no {name}{f' with {holding}' if holding else ''}: {status()}",
            over=lambda: status().state if status().state.is_terminal() else None,
        )
        return path

    def error(self, handle: RunHandle) -> RankError:
        """The run's error.json."""
        error = self.engine.store.error(handle)
        assert error is not None, "no error.json"
        return error

    def texts(self, handle: RunHandle, rank: int) -> list[str]:
        """The lines of one rank."""
        return [line.text for line in self.engine.logs(handle, [rank], follow=False)]

    def processes(self, handle: RunHandle) -> list[int]:
        """Living processes that bear the run's mark, wherever they are."""
        table = read_table()
        return [pid for pid in of_run(Path(handle.run_dir), table) if table[pid].state != "Z"]

    def supervisors(self, handle: RunHandle) -> list[int]:
        """The run's supervisor and its watcher, by their command lines."""
        found: list[int] = []
        for pid in read_table():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"jobs.engines.local.supervisor" in words and handle.run_dir.encode() in words:
                found.append(pid)
        return found

    def wait_until_gone(self, handle: RunHandle, timeout_s: float = 10.0) -> None:
        """Wait until no process of the run is left."""
        bound = Bound(timeout_s)
        while left := self.processes(handle) + self.supervisors(handle):
            bound.check(f"left: {left}")
            time.sleep(POLL_S)

    def end(self) -> None:
        """End what still runs."""
        for handle in self.handles:
            self.engine.cancel(handle)
        for handle in self.handles:
            self.wait_until_gone(handle, 20)
