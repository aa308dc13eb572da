"""Takes jobs through their states, and lets happen to them what a test has scripted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.nodes import POLL_S, MissingInput, Nodes
from tests.fakes.azureml.records import Job, Records
from tests.fakes.azureml.shipping import Log, Shipper
from tests.fakes.azureml.specs import Process
from tests.fakes.azureml.troubles import JobTrouble, Troubles
from tests.fakes.azureml.words import Guessed, Quoted
from tests.fakes.deviations import Deviation

NEVER_S = 3600.0
MICROSOFTS = "mcr.microsoft.com/"
IN_LOGS = {"preempted", "preempted, restarted", "node failure", "log rotated", "log truncated"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How jobs run: see FakeAzure; `routing` is how a process of a job reaches the stand-in.

    `cluster_identity` and `sender_identity` are where a job asks for its tokens, by its identity.
    """

    runtimes: Mapping[str, Path]
    routing: Mapping[str, str]
    cluster_identity: Mapping[str, str]
    sender_identity: Mapping[str, str]
    flush_s: float
    stage_s: float
    grace_s: float
    log_digits: int


class Ended(Exception):
    """The job ends here; `state` is Canceled, or Failed with code and message."""

    def __init__(self, state: str, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.state, self.code, self.message = state, code, message


class Restarted(Exception):
    """Azure ML begins the job again, on other nodes."""


class Runner:
    """One thread a job."""

    def __init__(
        self, folder: Path, records: Records, blobs: Blobs, troubles: Troubles, settings: Settings
    ) -> None:
        self._folder, self._records, self._blobs = folder, records, blobs
        self._troubles, self._settings = troubles, settings
        self._threads: list[threading.Thread] = []
        self.defects: list[Exception] = []

    def start(self, job: Job) -> None:
        """Let a job live; returns at once."""
        thread = threading.Thread(target=self._live, args=(job,), name=job.name)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Cancel what is not over, and wait for it."""
        for job in list(self._records.jobs.values()):
            job.cancel.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _live(self, job: Job) -> None:
        troubles = self._troubles.of_job(job.name)
        life = _Life(self._folder, job, self._records, self._blobs, troubles, self._settings)
        end = Ended("Completed")
        try:
            life.live()
        except Ended as ended:
            end = ended
        except Exception as error:  # noqa: BLE001  a defect of the stand-in: told at its end
            self.defects.append(error)
            end = Ended("Failed", "StandInDefect", repr(error))
        with self._records.lock:
            cluster = self._records.clusters.get(job.spec.cluster)
            if cluster is not None:  # else it was deleted meanwhile, with its nodes
                cluster.give_back(job.name)
            if end.state == "Failed":
                job.fail(end.code, end.message)
            else:
                job.enter(end.state)


class _Life:
    """One job on its way."""

    def __init__(
        self,
        folder: Path,
        job: Job,
        records: Records,
        blobs: Blobs,
        troubles: list[JobTrouble],
        settings: Settings,
    ) -> None:
        self.job, self.spec, self.records, self.blobs = job, job.spec, records, blobs
        self.troubles, self.settings = troubles, settings
        self.deviations = records.deviations
        self._root, self.num_restarts = folder, 0
        self.folder = folder / job.name
        self._lay()
        self.cluster = records.clusters[self.spec.cluster]

    def _lay(self) -> None:
        """A folder and nodes for the next try."""
        tries = f"retry-{self.num_restarts}" if self.num_restarts else ""
        at_end = Deviation.LOGS_AT_END in self.deviations
        flush_s = NEVER_S if at_end else self.settings.flush_s
        self.shipper = Shipper(self.blobs, flush_s, self._look)
        self.nodes = Nodes(
            self.folder / tries,
            self.job,
            place=self.records.place,
            blobs=self.blobs,
            shipper=self.shipper,
            mounts=self._root / ".mounts",
            padding=self.settings.log_digits,
            deviations=self.deviations,
        )
        # With what a node that Azure takes away will end the try.
        self.doom: Ended | Restarted | None = None
        self.after_doom: Callable[[], object] = lambda: None
        self.is_lost = False
        self._read: dict[str, int] = {}

    def live(self) -> None:
        """From the queue to the end; raises Ended where that is not Completed."""
        self._stay("Starting")
        self._build_image()
        while True:
            try:
                self._try()
            except Restarted:
                self._restart()
            else:
                break
        self._stay("Finalizing")

    def _try(self) -> None:
        self._queue()
        interpreter = self._pull()
        self._start_ours()
        self._enter("Running")
        try:
            settings = self.settings
            is_user = self.nodes.spec.is_user
            tokens = settings.sender_identity if is_user else settings.cluster_identity
            self.nodes.start(interpreter, {**settings.routing, **tokens})
            self._watch()
        except MissingInput as missing:
            raise Ended("Failed", "UserError", Guessed.NO_DATA.format(uri=missing)) from None
        finally:
            self.shipper.end()

    def _restart(self) -> None:
        """Put the logs aside, and go back to the queue."""
        self.num_restarts += 1
        for log in self.shipper.logs:
            log.begin_anew(keep=self.num_restarts)
        with self.records.lock:
            self.cluster.give_back(self.job.name)
        self._lay()

    def _enter(self, state: str) -> None:
        with self.records.lock:
            if self.job.state != "CancelRequested":
                self.job.enter(state)

    def _stay(self, state: str) -> None:
        self._enter(state)
        if self.job.cancel.wait(self.settings.stage_s):
            raise Ended("Canceled")

    def _befallen_by(self, *what: str) -> str:
        return next((each.what for each in self.troubles if each.what in what), "")

    # --- Before the nodes ---------------------------------------------------------------------

    def _build_image(self) -> None:
        """Build what the environment describes as a folder with a Dockerfile."""
        if self.spec.build is None:
            return
        self._enter("Preparing")
        link, context = self.spec.build, self.folder / "context"
        files = self.blobs.download_tree(link.account, link.container, link.path, context)
        lines = ["Sending build context to Docker daemon", *(f"  {name}" for name in files)]
        fails = self._befallen_by("image build") or Deviation.BUILD_REFUSED in self.deviations
        if fails:
            lines.append("The command '/bin/sh -c pip install' returned a non-zero code: 1")
        else:
            lines += ["Successfully built 2f4a1c3e", "Successfully pushed the image"]
        self._write("azureml-logs/20_image_build_log.txt", lines)
        self._stay("Preparing")
        if fails:
            raise Ended("Failed", "ImageBuildFailure", Quoted.IMAGE_BUILD)

    def _queue(self) -> None:
        """Wait for nodes."""
        self._stay("Queued")
        waits = self._befallen_by("queued for ever", "quota")
        if waits == "quota":
            vcpus = self.cluster.size.num_vcpus * self.spec.num_nodes
            error = {"code": "ClusterCoreQuotaReached", "message": Quoted.QUOTA.format(vcpus=vcpus)}
            self.cluster.errors = [{"error": error}]
        while True:
            with self.records.lock:
                nodes = None if waits else self.cluster.take(self.spec.num_nodes, self.job.name)
            if nodes is not None:
                self.job.nodes = nodes
                return
            if self.job.cancel.wait(POLL_S):
                raise Ended("Canceled")

    def _pull(self) -> Path:
        """The interpreter that stands for the image."""
        self._write("system_logs/lifecycler/lifecycler.log", ["Job is being prepared on the node."])
        wanted = self.spec.image + (f" of {self.spec.build.uri}" if self.spec.build else "")
        found = [path for name, path in self.settings.runtimes.items() if name in wanted]
        if found and not self._befallen_by("image pull"):
            return found[0]
        if Deviation.WORDS in self.deviations:
            raise Ended("Failed", "UserError", Guessed.WITHOUT_PULL)
        lines = [f"Pulling {wanted}", "manifest unknown"]
        self._write("system_logs/cs_capability/cs-capability.log", lines)
        raise Ended("Failed", "UserError", Quoted.IMAGE_PULL.format(image=wanted))

    def _start_ours(self) -> None:
        """Let an image of ours, and none of Microsoft's, fail as the deviations have it."""
        if self.spec.image.startswith(MICROSOFTS):
            return
        if Deviation.FOLDER_READ_ONLY in self.deviations:
            raise Ended("Failed", "UserError", Guessed.READ_ONLY)
        is_wide = self.spec.launch.kind == "Mpi" and self.spec.num_nodes > 1
        if is_wide and Deviation.MPIRUN_FAILS in self.deviations:
            raise Ended("Failed", "UserError", Guessed.NO_SECOND_NODE)

    def _write(self, name: str, lines: list[str]) -> None:
        """A log of Azure ML's own."""
        path = self.folder / "written" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        account = self.records.place.workspace_account
        Log(self.blobs, account, self.job.prefix + name, path).ship()

    # --- On the nodes -------------------------------------------------------------------------

    def _watch(self) -> None:
        """Block until the job is over, one way or the other."""
        deadline = time.monotonic() + (self.spec.timeout_s or float("inf"))
        while self.nodes.is_running() and not self.is_lost:
            is_late = time.monotonic() > deadline
            if is_late:
                is_other = Deviation.WORDS in self.deviations
                told = Guessed.WITHOUT_LIMIT if is_other else Guessed.TIME_LIMIT
                self.job.warnings.append(told)
            if is_late or self.job.cancel.is_set():
                self.nodes.end(self.settings.grace_s)
                if Deviation.CANCEL_FAILS_RUN in self.deviations:
                    raise Ended("Failed", "UserError", Guessed.WITHOUT_CODE)
                raise Ended("Canceled")
            time.sleep(POLL_S)
        self.nodes.end(0.0)
        if self.doom is not None:
            self.after_doom()
            raise self.doom
        code, log, tail = self.nodes.failure()
        if code:
            message = Guessed.EXIT_CODE.format(code=code, log=log, tail=tail)
            if Deviation.WORDS in self.deviations:
                message = Guessed.WITHOUT_CODE
            raise Ended("Failed", "UserError", message)

    def _look(self) -> None:
        """See what the processes have written since, and let happen what waits for it."""
        waiting = [each for each in self.troubles if each.what in IN_LOGS]
        if not waiting:
            return
        lines = "".join(self._news(process) for process in self.nodes.processes)
        for trouble in waiting:
            if trouble.is_due(lines):
                self.troubles.remove(trouble)
                self._befall(trouble)

    def _news(self, process: Process) -> str:
        with self.nodes.log_path(process).open("rb") as file:
            file.seek(self._read.get(process.log, 0))
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read[process.log] = self._read.get(process.log, 0) + len(whole)
        return whole.decode(errors="replace")

    def _befall(self, trouble: JobTrouble) -> None:
        if trouble.what in {"log rotated", "log truncated"}:
            for log in self.shipper.logs:
                log.ship()
                log.begin_anew(keep=1 if trouble.what == "log rotated" else None)
            trouble.then()
            return
        node = self.job.nodes[trouble.node]
        if trouble.what in {"preempted", "preempted, restarted"}:
            fails = trouble.what == "preempted"
            self.doom = Ended("Failed", "UserError", Quoted.PREEMPTED) if fails else Restarted()
            if trouble.notice_s:
                self.nodes.signal(SIGTERM, node=trouble.node)
                time.sleep(trouble.notice_s)
        else:
            message = Guessed.NODE_LOST.format(node=f"tvmps_{node.number}_d")
            self.doom = Ended("Failed", "SystemError", message)
        with self.records.lock:
            self.cluster.lose(node)
        self.after_doom = trouble.then
        self.is_lost = True
