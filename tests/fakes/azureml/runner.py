"""Runs jobs for real: nodes are folders and process groups, images are local interpreters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.records import Job, Node, Records
from tests.fakes.azureml.shipping import ARTIFACTS, Log, Mirror, Shipper
from tests.fakes.azureml.specs import Link, Process, Spec, job_environment, processes_of
from tests.fakes.azureml.troubles import JobTrouble, Troubles

START = Path(__file__).with_name("start_process.py")
# All nodes are this machine: shared memory only, so that no rank listens on the network.
MPI_OPTIONS = "--allow-run-as-root --bind-to none --map-by :OVERSUBSCRIBE"
MPI_OPTIONS += " --mca btl self,sm --mca pml ob1"
POLL_S = 0.02
PREEMPTED = (
    "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if the "
    "run has failed or restarted. Reason: Received pre-emption warning signal"
)
NODE_LOST = (
    "AzureMLCompute job failed. JobNodeLost: Node {node} of this job became unusable: lost contact "
    "with the node agent."
)
IMAGE_PULL = (
    "AzureMLCompute job failed. FailedPullingImage: Unable to pull image {image}. Reason: manifest "
    "unknown"
)
IMAGE_BUILD = (
    "Image build failed. For more details check log file azureml-logs/20_image_build_log.txt."
)
QUOTA = (
    "Operation results in exceeding quota limits of Core. Maximum allowed: 0, Current in use: 0, "
    "Additional requested: {vcpus}."
)


class Ended(Exception):
    """The job ends here; `state` is Canceled, or Failed with code and message."""

    def __init__(self, state: str, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.state, self.code, self.message = state, code, message


class Runner:
    """One thread a job; `runtimes` maps a part of an image's name to its interpreter."""

    def __init__(
        self,
        folder: Path,
        records: Records,
        blobs: Blobs,
        troubles: Troubles,
        *,
        runtimes: Mapping[str, Path],
        routing: Mapping[str, str],
        flush_s: float,
        stage_s: float,
        grace_s: float,
        padding: int,
    ) -> None:
        self._folder, self._records, self._blobs = folder, records, blobs
        self._troubles, self._runtimes, self._routing = troubles, runtimes, routing
        self._flush_s, self._stage_s, self._grace_s = flush_s, stage_s, grace_s
        self._padding = padding
        self._threads: list[threading.Thread] = []

    def start(self, job: Job) -> None:
        thread = threading.Thread(target=self._life, args=(job,), name=job.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Cancel what runs and wait for it."""
        for job in self._records.jobs.values():
            job.cancel.set()
        for thread in self._threads:
            thread.join()

    # --- A job's life -------------------------------------------------------------------------

    def _life(self, job: Job) -> None:
        run = _Run(self, job)
        try:
            run.live()
            state, code, message = "Completed", "", ""
        except Ended as end:
            state, code, message = end.state, end.code, end.message
        finally:
            self._records.clusters[job.spec.cluster].give_back(job.name)
        with self._records.lock:
            if state == "Failed":
                job.fail(code, message)
            else:
                job.enter(state)


class _Run:
    """One job on its way."""

    def __init__(self, runner: Runner, job: Job) -> None:
        self.runner, self.job, self.spec = runner, job, job.spec
        self.blobs, self.place = runner._blobs, runner._records.place
        self.account = self.place.workspace_account
        self.folder = runner._folder / job.name
        self.pids = self.folder / "pids"
        self.troubles = runner._troubles.of_job(job.name)
        self.shipper = Shipper(self.blobs, runner._flush_s, self._look)
        self.processes: list[Process] = []
        self.children: list[subprocess.Popen[bytes]] = []
        self.doom: Ended | None = None  # what a node that Azure takes away will end it with
        self.is_lost = False
        self._read: dict[str, int] = {}

    def live(self) -> None:
        """From the queue to the end; raises Ended where that is not Completed."""
        job = self.job
        self.pids.mkdir(parents=True)
        self._stay("Starting")
        self._prepare_image()
        self._queue()
        try:
            interpreter = self._pull()
            self._enter("Running")
            self._run(interpreter)
        finally:
            self.shipper_end()
        self._stay("Finalizing")
        if job.cancel.is_set():
            raise Ended("Canceled")

    def shipper_end(self) -> None:
        with suppress(RuntimeError):  # not started yet
            self.shipper.end()

    def _enter(self, state: str) -> None:
        with self.runner._records.lock:
            if self.job.state != "CancelRequested":
                self.job.enter(state)

    def _stay(self, state: str) -> None:
        self._enter(state)
        if self.job.cancel.wait(self.runner._stage_s):
            raise Ended("Canceled")

    def _befell(self, *what: str) -> JobTrouble | None:
        return next((each for each in self.troubles if each.what in what), None)

    def _prepare_image(self) -> None:
        """Build what the environment describes as a folder with a Dockerfile."""
        if self.spec.build is None:
            return
        self._enter("Preparing")
        context = self.folder / "context"
        link: Link = self.spec.build
        files = self.blobs.download_tree(link.account, link.container, link.path, context)
        lines = ["Sending build context to Docker daemon", *(f"  {name}" for name in files)]
        if self._befell("image build"):
            lines.append("The command '/bin/sh -c pip install' returned a non-zero code: 1")
        else:
            lines += ["Successfully built 2f4a1c3e", "Successfully pushed the image"]
        self._write("azureml-logs/20_image_build_log.txt", lines)
        self._stay("Preparing")
        if self._befell("image build"):
            raise Ended("Failed", "ImageBuildFailure", IMAGE_BUILD)

    def _queue(self) -> None:
        """Wait for nodes."""
        self._enter("Queued")
        cluster = self.runner._records.clusters[self.spec.cluster]
        waits = self._befell("queued for ever", "quota")
        if waits and waits.what == "quota":
            vcpus = cluster.size.num_vcpus * self.spec.num_nodes
            error = {"code": "ClusterCoreQuotaReached", "message": QUOTA.format(vcpus=vcpus)}
            cluster.errors = [{"error": error}]
        while True:
            with self.runner._records.lock:
                nodes = None if waits else cluster.take(self.spec.num_nodes, self.job.name)
            if nodes is not None:
                self.job.nodes = nodes
                self.job.cancel.wait(self.runner._stage_s)
                return
            if self.job.cancel.wait(POLL_S):
                raise Ended("Canceled")

    def _pull(self) -> Path:
        """The interpreter that stands for the image."""
        self._write("system_logs/lifecycler/lifecycler.log", ["Job is being prepared on the node."])
        wanted = self.spec.image or self.spec.build.uri
        found = [path for name, path in self.runner._runtimes.items() if name in wanted]
        if self._befell("image pull") or not found:
            self._write(
                "system_logs/cs_capability/cs-capability.log", [f"Pulling {wanted}: not found."]
            )
            raise Ended("Failed", "UserError", IMAGE_PULL.format(image=wanted))
        return found[0]

    def _write(self, name: str, lines: list[str]) -> None:
        path = self.folder / "written" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        log = Log(self.blobs, self.account, self.job.prefix + name, path)
        log.ship()
        self.job.log_names.append(name)

    # --- On the nodes -------------------------------------------------------------------------

    def _run(self, interpreter: Path) -> None:
        places = {name: self._open(name, link) for name, link in self.spec.inputs.items()}
        results = {name: self._open_output(name, link) for name, link in self.spec.outputs.items()}
        for node in range(self.spec.num_nodes):
            self._lay_node(node)
        num_tasks = self.spec.launch.num_processes + self.spec.launch.num_servers
        port, *ports = _free_ports(1 + num_tasks)
        self.processes = processes_of(
            self.spec, port=port, ports=ports, padding=self.runner._padding
        )
        env = self._environment(interpreter, places, results)
        plan = self._write_plan(places, results, port)
        for process in self.processes:
            path = self._log_path(process)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            name = self.job.prefix + process.log
            self.shipper.logs[process.log] = Log(self.blobs, self.account, name, path)
            self.job.log_names.append(process.log)
        self.shipper.start()
        self._spawn(interpreter, plan, env)
        self._watch()

    def _lay_node(self, node: int) -> None:
        """The code in the working folder, and the folders that Azure ML brings home by itself."""
        folder = self._wd(node)
        if self.spec.code is not None and node == 0:
            link = self.spec.code
            self.blobs.download_tree(link.account, link.container, link.path, folder)
        elif node:
            shutil.copytree(self._wd(0), folder)
        for name in ("outputs", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            self.shipper.mirrors.append(
                Mirror(
                    folder=folder / name,
                    account=self.account,
                    container=ARTIFACTS,
                    prefix=f"{self.job.prefix}{name}/",
                )
            )

    def _wd(self, node: int) -> Path:
        return self.folder / f"node-{node}" / "wd"

    def _log_path(self, process: Process) -> Path:
        return self.folder / process.log

    def _open(self, name: str, link: Link | str) -> str:
        """An input as the command sees it: a value, an address or a path."""
        if isinstance(link, str):
            return link
        if link.mode == "Direct":
            return link.uri
        writable = link.mode == "ReadWriteMount"
        folder = self._mount(link) if writable else self.folder / "inputs" / name
        found = self.blobs.download_tree(link.account, link.container, link.path, folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not found:
            message = f"AzureMLCompute job failed. DataAccessError(NotFound): {link.uri}"
            raise Ended("Failed", "UserError", message)
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
                self.blobs.container(link.account, link.container)
                self.blobs.download_tree(link.account, link.container, path, folder)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = f"{path.rstrip('/')}/" if path else ""
        self.shipper.mirrors.append(
            Mirror(folder=folder, account=link.account, container=link.container, prefix=prefix)
        )
        return str(folder)

    def _mount(self, link: Link, path: str | None = None) -> Path:
        inner = (link.path if path is None else path).strip("/")
        return self.runner._folder / ".mounts" / link.account / link.container / inner

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
            **job_environment(self.place, spec, run=job.name, experiment=job.experiment),
            **{f"AZURE_ML_INPUT_{name}": value for name, value in places.items()},
            **{f"AZURE_ML_OUTPUT_{name}": value for name, value in results.items()},
            **self.runner._routing,
            **spec.env,
        }

    def _write_plan(self, places: Mapping[str, str], results: Mapping[str, str], port: int) -> Path:
        command = self.spec.command
        for kind, values in (("inputs", places), ("outputs", results)):
            for name, value in values.items():
                command = command.replace(f"${{{{{kind}.{name}}}}}", value)
        plan = {
            "command": command,
            "pids": str(self.pids),
            "processes": [
                {
                    "folder": str(self._wd(process.node)),
                    "log": str(self._log_path(process)),
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
                self.children.append(
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

    # --- Until it is over ---------------------------------------------------------------------

    def _watch(self) -> None:
        timeout_s = self.spec.timeout_s
        deadline = time.monotonic() + timeout_s if timeout_s else float("inf")
        while self._is_running():
            if time.monotonic() > deadline:
                self.job.warnings.append("The run exceeded its maximum duration.")
                self._end(self.runner._grace_s)
                raise Ended("Canceled")
            if self.job.cancel.is_set():
                self._end(self.runner._grace_s)
                raise Ended("Canceled")
            if self.is_lost:
                break
            time.sleep(POLL_S)
        self._end(0.0)
        if self.doom is not None:
            raise self.doom
        self._judge()

    def _is_running(self) -> bool:
        """Whether the job goes on: until one fails, or all that must end have ended."""
        codes = [child.poll() for child in self.children]
        if self.spec.launch.kind == "Mpi":
            return codes[0] is None
        if any(code for code in codes if code is not None):
            return False
        wanted = [code for code, each in zip(codes, self.processes, strict=True) if each.must_end]
        return None in wanted

    def _judge(self) -> None:
        codes = [child.returncode for child in self.children]
        if self.spec.launch.kind != "Mpi":
            codes = [c for c, each in zip(codes, self.processes, strict=True) if each.must_end]
        failed = next((code for code in codes if code), 0)
        if not failed:
            return
        log = next((each.log for each in self.processes if self._tail(each)), self.processes[0].log)
        tail = self._tail(next(each for each in self.processes if each.log == log))
        message = (
            f"Execution failed. User process 'bash' exited with status code {abs(failed)}. "
            f"Please check log file '{log}' for error details. Error: {tail}"
        )
        raise Ended("Failed", "UserError", message)

    def _tail(self, process: Process) -> str:
        """The traceback at the end of a log, if it ends with one."""
        text = self._log_path(process).read_text(errors="replace")[-4000:]
        return text[text.rfind("Traceback (most") :] if "Traceback (most" in text else ""

    def _groups(self, node: int | None = None) -> list[int]:
        """The process groups of a node, or of all."""
        found = []
        for path in self.pids.iterdir():
            if node in {None, self.processes[int(path.name)].node} and (pid := path.read_text()):
                found.append(int(pid))
        return found

    def _end(self, grace_s: float) -> None:
        """SIGTERM, a while, SIGKILL; then nothing of the job is left."""
        groups = self._groups()
        if grace_s:
            _signal(groups, signal.SIGTERM)
            until = time.monotonic() + grace_s
            while time.monotonic() < until and any(child.poll() is None for child in self.children):
                time.sleep(POLL_S)
        _signal({*groups, *self._groups()}, signal.SIGKILL)
        _signal([child.pid for child in self.children], signal.SIGKILL)
        for child in self.children:
            child.wait()

    # --- Troubles that wait for a line --------------------------------------------------------

    def _look(self) -> None:
        """See what the ranks have written since, and let happen what waits for it."""
        waiting = [
            each
            for each in self.troubles
            if each.what in {"preempted", "node failure", "log rotated", "log truncated"}
        ]
        if not waiting:
            return
        lines = "".join(self._news(process) for process in self.processes)
        for trouble in waiting:
            if trouble.is_due(lines):
                self.troubles.remove(trouble)
                self._befall(trouble)

    def _news(self, process: Process) -> str:
        path, at = self._log_path(process), self._read.get(process.log, 0)
        with path.open("rb") as file:
            file.seek(at)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read[process.log] = at + len(whole)
        return whole.decode(errors="replace")

    def _befall(self, trouble: JobTrouble) -> None:
        node = self.job.nodes[trouble.node]
        if trouble.what == "log rotated":
            for log in self.shipper.logs.values():
                log.ship()
                log.rotate(1)
        elif trouble.what == "log truncated":
            for log in self.shipper.logs.values():
                log.ship()
                log.truncate()
        elif trouble.what == "preempted":
            self.doom = Ended("Failed", "UserError", PREEMPTED)
            if trouble.notice_s:
                _signal(self._groups(trouble.node), signal.SIGTERM)
                time.sleep(trouble.notice_s)
            self._lose(node)
        else:
            message = NODE_LOST.format(node=f"tvmps_{node.number}_d")
            self.doom = Ended("Failed", "SystemError", message)
            self._lose(node)

    def _lose(self, node: Node) -> None:
        """Without its node nothing of the job goes on."""
        self.is_lost = True
        with self.runner._records.lock:
            self.runner._records.clusters[self.spec.cluster].lose(node)


def _signal(groups: object, number: int) -> None:
    for pid in list(groups):  # type: ignore[call-overload]
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
