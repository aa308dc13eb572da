"""Starts PyTorch ranks within milliseconds: forks of one process that has imported PyTorch.

They are real processes with real collectives; what is left out is seconds of importing. Whoever
uses this plays the supervisor: ends the other ranks once one has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jobs.contracts.spec import Launcher
from jobs.engines.local.horovod_store import RendezvousServer
from jobs.engines.local.launchers import gang_request, rendezvous_environment
from tests.busy import HANG_S, Bound
from tests.fakes.gangs import make_cluster, make_spec
from tests.ports import free_port

REPO = Path(__file__).parents[2]
ZYGOTE = REPO / "tests" / "faults" / "programs" / "torch_zygote.py"
Strategy = Literal["ddp", "horovod", "single"]
# Beside other tests a program of seconds may take minutes.
ALONE_S = 420.0
LAUNCHERS: dict[Strategy, Launcher] = {"ddp": "torch", "horovod": "horovod", "single": "none"}


class Zygote:
    """The process that forks; it knows which of its ranks have ended, and how."""

    def __init__(self, python: Path, folder: Path, modules: Sequence[str] = ()) -> None:
        """Import `modules`, or what PyTorch's programs need, and wait until that is done.

        What ranks leave in the temporary folder when they are killed stays in `folder`.
        """
        self._folder = folder
        self._pids: list[int] = []
        self._codes: dict[int, int] = {}
        self._news = threading.Condition()
        self._is_ready = False
        given = {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        with (folder / "zygote.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), str(ZYGOTE), *modules],
                env={**os.environ, **given},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._wait(lambda: self._is_ready, HANG_S)

    def fork(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        errors: Path | None = None,
    ) -> int:
        """Start a rank; gives its pid."""
        order = {"argv": [*argv], "env": {**env}, "cwd": str(cwd), "log": str(log)}
        if errors is not None:
            order["errors"] = str(errors)
        number = len(self._pids)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        self._wait(lambda: len(self._pids) > number, HANG_S)
        return self._pids[number]

    def run(self, *argv: str, folder: Path, env: Mapping[str, str] | None = None) -> str:
        """Run `MODULE.main` alone in a folder to its good end; gives what it printed."""
        number = len(self._pids)
        log, errors = (self._folder / f"{name}-{number}.txt" for name in ("printed", "errors"))
        pid = self.fork(argv, env=env or {}, cwd=folder, log=log, errors=errors)
        bound = Bound(ALONE_S)
        while not self.wait([pid], 1):
            bound.check(log.read_text)
        assert self.code(pid) == 0, errors.read_text()
        return log.read_text()

    def code(self, pid: int) -> int | None:
        """The exit code of a rank, negative for a signal; None while it lives."""
        return self._codes.get(pid)

    def wait(self, pids: Sequence[int], timeout_s: float) -> bool:
        """Wait until all of them have ended; gives whether they have."""
        try:
            self._wait(lambda: all(pid in self._codes for pid in pids), timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End it, and the ranks that a test which failed has left."""
        for pid in self._pids:
            if self.code(pid) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(HANG_S)
        self._reader.join(HANG_S)
        self._process.stdout.close()

    def _wait(self, is_so: object, timeout_s: float) -> None:
        assert callable(is_so)
        with self._news:
            if not self._news.wait_for(
                lambda: is_so() or self._process.poll() is not None, timeout_s
            ):
                raise TimeoutError
        assert is_so(), (self._folder / "zygote.log").read_text()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            with self._news:
                if words == [b"ready"]:
                    self._is_ready = True
                elif len(words) == 1:
                    self._pids.append(int(words[0]))
                    # Of one that had the same id before.
                    self._codes.pop(int(words[0]), None)
                else:
                    self._codes[int(words[0])] = int(words[1])
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


@dataclass(frozen=True, kw_only=True)
class Gang:
    """The ranks of one attempt."""

    zygote: Zygote
    pids: list[int]
    logs: list[Path]
    place: Place

    def wait(self, timeout_s: float) -> list[int | None]:
        """Wait for the end of all; gives their exit codes, None for one that still runs."""
        bound = Bound(timeout_s)
        while not self.zygote.wait(self.pids, 1) and not bound.is_passed():
            continue
        return self.codes()

    def codes(self) -> list[int | None]:
        """Exit codes of those that have ended."""
        return [self.zygote.code(pid) for pid in self.pids]

    def send(self, rank: int, number: signal.Signals) -> None:
        """Send a rank a signal, unless it has ended."""
        if self.zygote.code(self.pids[rank]) is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pids[rank], number)

    def end(self) -> None:
        """Kill what is left of it, as a supervisor does."""
        for rank in range(len(self.pids)):
            self.send(rank, signal.SIGKILL)
        assert self.zygote.wait(self.pids, HANG_S)
        self.place.close()

    def texts(self) -> list[str]:
        """What each rank printed, in this attempt and those before."""
        return [log.read_text(errors="replace") for log in self.logs]


class Place:
    """Where ranks meet on this machine: what each needs in its environment and on its command line."""

    def __init__(self, strategy: Strategy, size: int) -> None:
        launcher = LAUNCHERS[strategy]
        spec = make_spec([], launcher=launcher, processes_per_node=size, hang_s=60)
        request = gang_request(spec, make_cluster())
        self._server = RendezvousServer() if strategy == "horovod" else None
        rendezvous = rendezvous_environment(launcher, self._server.port) if self._server else {}
        shared = {**request.env, **rendezvous, "TORCHELASTIC_USE_AGENT_STORE": ""}
        self.environments = [
            {**shared, "OMP_NUM_THREADS": "1", **each.env} for each in request.ranks
        ]
        self.arguments = ["--strategy", strategy]
        if strategy == "ddp":
            self.arguments += ["--dist-url", f"tcp://127.0.0.1:{free_port()}"]

    def close(self) -> None:
        """Nobody meets here any more."""
        if self._server is not None:
            self._server.close()


def mirrored_workers(size: int) -> list[dict[str, str]]:
    """The environments of MultiWorkerMirrored's workers on this machine, but for the launcher's own."""
    workers = [f"127.0.0.1:{free_port()}" for _ in range(size)]
    tasks = [{"type": "worker", "index": rank} for rank in range(size)]
    told = [json.dumps({"cluster": {"worker": workers}, "task": each}) for each in tasks]
    return [
        {"RANK": str(rank), "WORLD_SIZE": str(size), "TF_CONFIG": each}
        for rank, each in enumerate(told)
    ]


def start_gang(
    zygote: Zygote,
    argv: Sequence[str],
    *,
    strategy: Strategy,
    size: int,
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> Gang:
    """Start the ranks of an attempt in the run directory `folder`; checkpoints lie in it, too."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        "TRAINYARD_RUN_DIR": str(folder),
        "TRAINYARD_CHECKPOINT_DIR": str(folder / "checkpoints"),
        **(env or {}),
    }
    place = Place(strategy, size)
    logs = [folder / f"rank-{rank}.log" for rank in range(size)]
    pids = [
        zygote.fork([*argv, *place.arguments], env={**each, **own}, cwd=folder, log=log)
        for each, log in zip(place.environments, logs, strict=True)
    ]
    return Gang(zygote=zygote, pids=pids, logs=logs, place=place)
