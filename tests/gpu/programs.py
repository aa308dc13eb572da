"""Runs our training programs on the device, as `launch run` starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
PREEMPTED = 75
# Starts a program by the name of its module: what follows are the program's own arguments.
AS_LAUNCHED = ("-m",)
_LAST_CHARACTERS = 1500
# A training starts for seconds on a core or two, and small ones leave a GPU idle.
CORES_EACH = 2
_TAKING = Lock()
Given = TypeVar("Given")
Got = TypeVar("Got")


def at_once(function: Callable[[Given], Got], given: Iterable[Given]) -> list[Got]:
    """Call it for each, several at once where the machine has the cores; gives results in order."""
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // CORES_EACH)) as pool:
        return list(pool.map(function, given))


@dataclass(frozen=True, kw_only=True)
class Where:
    """What a check is tried on: the device, its number of GPUs, and a folder for what it makes.

    Those of speed take turns with their peers, in `rounds`.
    """

    device: str
    num_gpus: int
    folder: Path
    rounds: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of a check that needs several; one GPU is shared by two."""
        return max(2, self.num_gpus)

    @property
    def as_ranks(self) -> Sequence[str]:
        """What starts a program as one of them."""
        share = ("--share",) if self.num_gpus == 1 else ()
        return ("-m", "tests.gpu.ranks", *share)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A training that ended: each rank's exit code, and what rank 0 wrote."""

    folder: Path
    codes: Sequence[int]
    output: str

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, in order."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures of summary.json."""
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def losses(self) -> dict[int, float]:
        """The loss of each step that metrics tell of."""
        return {
            line["step"]: line["value"]
            for line in self.metrics
            if line["split"] == "train" and line["name"] == "loss"
        }

    def require(self, code: int = 0) -> Ended:
        """Give this; raises RuntimeError with the last words where a rank ended otherwise."""
        if set(self.codes) != {code}:
            message = f"ranks ended with {list(self.codes)}: {self.output[-_LAST_CHARACTERS:]}"
            raise RuntimeError(message)
        return self


def train(
    where: Where,
    name: str,
    *arguments: str,
    num_ranks: int = 1,
    start: Sequence[str] = AS_LAUNCHED,
    by_mpi: bool = False,
    stop_after_step: int | None = None,
    is_over_with_last: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """Train in `where.folder / name`, or go on there; `arguments` begin with the module's name.

    With `by_mpi` mpirun starts the ranks, and its exit code is the one that there is. With
    `stop_after_step` the last rank gets SIGTERM once metrics tell of that step, and with
    `is_over_with_last` the others are killed when it has ended.
    """
    folder = where.folder / name
    folder.mkdir(exist_ok=True)
    command = [sys.executable, *start, *arguments, "--device", where.device]
    if by_mpi:
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        command = [mpirun, "--allow-run-as-root", "-np", str(num_ranks), *command]
    with _TAKING:
        port = free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    place |= {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    folders = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(folders), "TRAINYARD_RUN_DIR": str(folder)}
    own |= {"TRAINYARD_CHECKPOINT_DIR": str(folder / "checkpoints"), **(environ or {})}
    log = folder / "log"
    with log.open("wb") as output:
        ranks = [
            subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **place, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for rank in range(1 if by_mpi else num_ranks)
        ]
        try:
            if stop_after_step is not None:
                _wait_for_step(folder, stop_after_step, ranks)
                ranks[-1].send_signal(signal.SIGTERM)
            if is_over_with_last:
                ranks[-1].wait(TIMEOUT_S)
                for rank in ranks[:-1]:
                    rank.kill()
            codes = [rank.wait(TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    return Ended(folder=folder, codes=codes, output=log.read_text(errors="replace"))


def _wait_for_step(folder: Path, step: int, ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return once metrics tell of the step, or a rank has ended."""
    until_s = time.monotonic() + TIMEOUT_S
    metrics = folder / "metrics.jsonl"
    while time.monotonic() < until_s and all(rank.poll() is None for rank in ranks):
        if metrics.exists() and f'"step": {step},' in metrics.read_text():
            return
        time.sleep(0.02)
