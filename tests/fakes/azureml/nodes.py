"""The nodes of one job: folders with its code, what it reads and writes, its processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.records import Job, Place
from tests.fakes.azureml.shipping import ARTIFACTS, Log, Mirror, Shipper
from tests.fakes.azureml.specs import Link, Process, job_environment, processes_of
from tests.fakes.deviations import Deviation
from tests.ports import free_port

START = Path(__file__).with_name("start_process.py")
# All nodes are this machine: shared memory only, so that no rank listens on the network.
MPI_OPTIONS = "--allow-run-as-root --bind-to none --map-by :OVERSUBSCRIBE"
MPI_OPTIONS += " --mca btl self,sm --mca pml ob1 --mca mpi_yield_when_idle 1"
POLL_S = 0.02


class MissingInput(Exception):
    """An input names nothing; the text is its address."""


class Nodes:
    """A job's folder `folder`, with a folder and a process group for each process of each node.

    `mounts` is where all jobs' mounted folders are; `padding` is the least number of digits of a rank
    in its log's name.
    """

    def __init__(
        self,
        folder: Path,
        job: Job,
        *,
        place: Place,
        blobs: Blobs,
        shipper: Shipper,
        mounts: Path,
        padding: int,
        deviations: Collection[Deviation],
    ) -> None:
        self.folder, self.job, self.spec = folder, job, job.spec
        self.processes: list[Process] = []
        self._place, self._blobs, self._shipper = place, blobs, shipper
        self._mounts, self._padding, self._deviations = mounts, padding, deviations
        self._pids = folder / "pids"
        self._children: list[subprocess.Popen[bytes]] = []
        self._pids.mkdir(parents=True)

    def start(self, interpreter: Path, routing: Mapping[str, str]) -> None:
        """Lay everything and start all processes; raises MissingInput.

        `routing` is what a process needs to reach the stand-in by Azure's names.
        """
        places = {name: self._open(name, link) for name, link in self.spec.inputs.items()}
        results = {name: self._open_output(name, link) for name, link in self.spec.outputs.items()}
        for node in range(self.spec.num_nodes):
            self._lay(node)
        num_tasks = self.spec.launch.num_processes + self.spec.launch.num_servers
        port, *ports = (free_port() for _ in range(1 + num_tasks))
        self.processes = processes_of(
            self.spec, port=port, ports=ports, padding=self._padding, deviations=self._deviations
        )
        for process in self.processes:
            self._open_log(process)
        self._shipper.start()
        env = self._environment(interpreter, places, results)
        self._spawn(interpreter, self._write_plan(places, results), {**env, **routing})

    # --- While they run -----------------------------------------------------------------------

    def is_running(self) -> bool:
        """Whether the job goes on: until one process fails, or all that must end have ended."""
        codes = [child.poll() for child in self._children]
        if self.spec.launch.kind == "Mpi":
            return codes[0] is None
        return not any(codes) and None in self._of_those_that_end(codes)

    def failure(self) -> tuple[int, str, str]:
        """The first exit code that is not 0 (else 0), the log that tells most, its traceback."""
        codes = [child.returncode for child in self._children]
        if self.spec.launch.kind != "Mpi":
            codes = self._of_those_that_end(codes)
        tails = [(each.log, self._traceback(each)) for each in self.processes]
        log, tail = next((found for found in tails if found[1]), tails[0])
        return abs(next((code for code in codes if code), 0)), log, tail

    def log_path(self, process: Process) -> Path:
        return self.folder / process.log

    def signal(self, number: int, *, node: int | None = None) -> None:
        """Send a signal to the processes of a node, or to all."""
        _send(self._groups(node), number)

    def end(self, grace_s: float) -> None:
        """SIGTERM, a while, SIGKILL; then nothing of the job is left."""
        if grace_s:
            told: set[int] = set()
            until = time.monotonic() + grace_s
            while time.monotonic() < until and any(each.poll() is None for each in self._children):
                # Those, too, that mpirun has only begun to start.
                new = set(self._groups(None)) - told
                _send(new, signal.SIGTERM)
                told |= new
                time.sleep(POLL_S)
        self.signal(signal.SIGKILL)
        _send((child.pid for child in self._children), signal.SIGKILL)
        for child in self._children:
            child.wait()

    def _of_those_that_end(self, codes: list[int | None]) -> list[int | None]:
        return [code for code, each in zip(codes, self.processes, strict=True) if each.must_end]

    def _groups(self, node: int | None) -> list[int]:
        found = [
            path.read_text()
            for path in self._pids.iterdir()
            if node in {None, self.processes[int(path.name)].node}
        ]
        return [int(pid) for pid in found if pid]

    def _traceback(self, process: Process) -> str:
        text = self.log_path(process).read_text(errors="replace")[-4000:]
        return text[text.rfind("Traceback (most") :] if "Traceback (most" in text else ""

    # --- Before -------------------------------------------------------------------------------

    def _open(self, name: str, link: Link | str) -> str:
        """An input as the command sees it: a value, an address or a path."""
        if isinstance(link, str):
            return link
        if link.mode == "Direct":
            return link.uri
        writable = link.mode == "ReadWriteMount"
        folder = self._mount(link) if writable else self.folder / "inputs" / name
        found = self._blobs.download_tree(link.account, link.container, link.path, folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not found:
            raise MissingInput(link.uri)
        return str(folder / found[0]) if link.is_file else str(folder)

    def _open_output(self, name: str, link: Link) -> str:
        """A folder that reaches the storage while the job runs (mount) or at its end (upload)."""
        path = link.path.format(run=self.job.name) if "{run}" in link.path else link.path
        folder = self.folder / "outputs" / name
        if link.mode == "Direct":
            return link.uri
        if link.mode == "ReadWriteMount":
            # All jobs that mount a place see the same files.
            folder = self._mount(link, path)
            if not folder.exists():
                self._blobs.container(link.account, link.container)
                self._blobs.download_tree(link.account, link.container, path, folder)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = f"{path.rstrip('/')}/" if path else ""
        self._shipper.mirrors.append(
            Mirror(folder=folder, account=link.account, container=link.container, prefix=prefix)
        )
        return str(folder)

    def _mount(self, link: Link, path: str | None = None) -> Path:
        inner = (link.path if path is None else path).strip("/")
        return self._mounts / link.account / link.container / inner

    def _lay(self, node: int) -> None:
        """The code in the working folder, and the folders that Azure ML brings home by itself."""
        folder = self._wd(node)
        if self.spec.code is not None and node == 0:
            link = self.spec.code
            self._blobs.download_tree(link.account, link.container, link.path, folder)
        elif node:
            shutil.copytree(self._wd(0), folder)
        for name in ("outputs", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            self._shipper.mirrors.append(
                Mirror(
                    folder=folder / name,
                    account=self._place.workspace_account,
                    container=ARTIFACTS,
                    prefix=f"{self.job.prefix}{name}/",
                )
            )

    def _wd(self, node: int) -> Path:
        return self.folder / f"node-{node}" / "wd"

    def _open_log(self, process: Process) -> None:
        path = self.log_path(process)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        log = process.log
        if Deviation.LOG_NAMES in self._deviations:
            log = log.replace("std_log", "stdout_of")
        name = self.job.prefix + log
        self._shipper.logs.append(Log(self._blobs, self._place.workspace_account, name, path))

    def _environment(
        self, interpreter: Path, places: Mapping[str, str], results: Mapping[str, str]
    ) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir()
        job, spec = self.job, self.spec
        return {
            "PATH": f"{interpreter.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            **job_environment(self._place, spec, run=job.name, experiment=job.experiment),
            **{f"AZURE_ML_INPUT_{name}": value for name, value in places.items()},
            **{f"AZURE_ML_OUTPUT_{name}": value for name, value in results.items()},
            **spec.env,
        }

    def _write_plan(self, places: Mapping[str, str], results: Mapping[str, str]) -> Path:
        command = self.spec.command
        for kind, values in (("inputs", places), ("outputs", results)):
            for name, value in values.items():
                command = command.replace(f"${{{{{kind}.{name}}}}}", value)
        plan = {
            "command": command,
            "pids": str(self._pids),
            "processes": [
                {
                    "folder": str(self._wd(process.node)),
                    "log": str(self.log_path(process)),
                    "env": process.env,
                }
                for process in self.processes
            ],
        }
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        return path

    def _spawn(self, interpreter: Path, plan: Path, env: dict[str, str]) -> None:
        argv = [str(interpreter), str(START), str(plan)]
        if self.spec.launch.kind == "Mpi":
            mpirun = str(interpreter.with_name("mpirun"))
            log = self.folder / "user_logs" / "mpi_log.txt"
            commands = [[mpirun, "-np", str(len(self.processes)), *MPI_OPTIONS.split(), *argv]]
        else:
            log = self.folder / "start.log"
            commands = [[*argv, str(index)] for index in range(len(self.processes))]
        with log.open("ab") as file:
            for command in commands:
                self._children.append(
                    subprocess.Popen(
                        command,
                        env=env,
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,
                    )
                )


def _send(groups: Iterable[int], number: int) -> None:
    for pid in groups:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
