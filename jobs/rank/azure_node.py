"""Manage code, results and records on a node of an Azure ML job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable

from jobs.rank.chief import served
from jobs.rank.code import SHAPE_FILE, copy_sent, read_sent
from jobs.rank.hang import read_hung
from jobs.rank.identity import Identity, NodeFailure
from jobs.rank.log import Log
from jobs.rank.node import Node, Unprepared, linger, wait_until
from jobs.rank.record import Ending, Record, is_running, record_path
from jobs.rank.services import Container
from jobs.rank.settings import UNREAD_METRICS, Settings
from jobs.rank.streams import Streams
from jobs.rank.world import RankJob, World

# What else this program is started as, beside the ranks.
UPLOADS, CHIEF, HANG = "--uploads", "--chief", "--hang"
HANG_EXIT_CODE = 124  # as of timeout(1), and on every engine
# How often output is noted, as a sign of life.
NOTED_S = 0.5
# How long a rank that has failed stays for the node's results, which are being brought.
LINGER_FOR_RESULTS_S = 10.0
# How long the ranks of a run that hung stay for those of other nodes, whose records are on their way: nodes look
# at the store's clock every few seconds, and the first rank that leaves ends all.
LINGER_FOR_NODES_S = 8.0
_BRINGING, _BROUGHT = "bringing", "brought"  # marks in the run directory


class AzureNode(Node):
    """A node without a supervisor: uploads results and records to the store."""

    def __init__(
        self,
        settings: Settings,
        job: RankJob,
        world: World,
        environ: dict[str, str],
        log: Log,
    ) -> None:
        super().__init__(job, world)
        self._settings, self._environ, self._log = settings, environ, log
        # Held open as long as this process lives.
        self._uploads: _Helper | None = None
        self._noted_s = 0.0
        if not world.local_rank:
            what = "main" if world.rank == 0 else "other"
            self._uploads = _Helper(UPLOADS, str(world.node), what)
        if not world.local_rank and settings.hang_s:
            is_alone = "alone" if world.size <= world.local_size else "with others"
            self._hang_watch = _Helper(HANG, job.checkpoints or "", is_alone)
        if settings.chief and world.rank:
            self._watcher = _Helper(CHIEF, str(world.rank))

    def prepare_folder(self, folder: str) -> None:
        """Fetch earlier metrics, lay the streams, copy the code; raises Unprepared or OSError."""
        if not self.world.node:
            self._fetch_metrics()
        if self._settings.streams:
            streams = Streams(self._settings, self.job.run_dir, Identity(self._environ))
            try:
                streams.lay(self._environ)
            except (NodeFailure, OSError) as error:
                hint = getattr(error, "hint", "the node's disk must hold the cache of a stream")
                message = f"{error} ({hint})"
                raise Unprepared(message) from None
        _copy_code(folder)

    def judge(self, ending: Ending) -> Ending:
        """Count a rank that served its chief as a success, and one that hung as that."""
        if ending != (0, None) and read_hung(self.job.run_dir):
            return Ending(HANG_EXIT_CODE, None)
        is_served = self._settings.chief and self._has_mark(served(self.world.rank))
        return Ending(0, None) if is_served else ending

    def note_output(self) -> None:
        """Touch the rank's record now and then, as a sign of life for hang.py."""
        if time.monotonic() - self._noted_s >= NOTED_S:
            self._noted_s = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(record_path(self.job.run_dir, self.world.rank))

    def save_record(self, record: Record) -> None:
        """Send the record of a rank that is over to the store, then write it for the node's ranks.

        In this order, as they stay no longer than that, and Azure ML ends all when the first has left.
        """
        if record.ended_s is not None:
            self._tell_of_hang(record)
            if self._uploads:
                self._mark(_BRINGING)
            if record.exit_code != 0 or not record.rank:
                self._send(record)
        super().save_record(record)

    def before_leaving(self, code: int, is_told: Callable[[], bool]) -> None:
        """Stay until the node's results are in the store; after an error for the others, too."""
        if self._uploads:
            while not code and not is_told() and self._do_others_run():
                time.sleep(0.1)
            if self._uploads.finish(is_told):
                self._mark(_BROUGHT)
        if code:
            linger(code, lambda: not self._do_others_run(), is_told)
            wait_until(self._are_results_brought, is_told, LINGER_FOR_RESULTS_S)
            if self.world.size > self.world.local_size and read_hung(self.job.run_dir):
                wait_until(lambda: False, is_told, LINGER_FOR_NODES_S)

    def _tell_of_hang(self, record: Record) -> None:
        hung = read_hung(self.job.run_dir) if record.exit_code else None
        # Who serves others stands still by nature.
        serves = record.rank >= self.world.size or (self._settings.chief and record.rank > 0)
        if hung is not None and (not serves or record.rank in hung.stopped):
            record.hang_seconds = hung.limit_s
            record.silent_seconds = hung.silent_s.get(str(record.rank), 0.0)
            record.was_stopped = record.rank in hung.stopped

    def _fetch_metrics(self) -> None:
        """Fetch the lines of earlier attempts, which the program goes on with.

        Also for a first one: after a node has failed Azure ML may start the same job anew.
        """
        settings = self._settings
        runs = Container(settings.store, settings.runs, Identity(self._environ))
        try:
            content = runs.get(f"{settings.run}/metrics.jsonl")
        except KeyError:
            return
        except NodeFailure as error:
            # Else what this attempt brings would be put in their place.
            self._mark(UNREAD_METRICS)
            self._log.feed(f"warning: earlier metrics cannot be read: {error}\n".encode())
            return
        with open(f"{self.job.run_dir}/metrics.jsonl", "wb") as file:
            file.write(content)

    def _send(self, record: Record) -> None:
        """Upload the record for the programs that judge the run, with times since the epoch."""
        ahead_s = time.time() - time.monotonic()
        told = {
            name: value + ahead_s if name.endswith("_s") and value is not None else value
            for name, value in vars(record).items()
        }
        settings, pauses_s = self._settings, (0.5,)
        identity = Identity(self._environ, pauses_s=pauses_s)
        runs = Container(settings.store, settings.runs, identity, pauses_s=pauses_s, timeout_s=3.0)
        blob = f"{settings.run}/ranks/{settings.attempt}/{record.rank:05d}.json"
        try:
            answer = runs.put(blob, json.dumps(told).encode(), {})
            why = "" if answer.status == 201 else answer.why
        except NodeFailure as error:
            why = str(error)
        if why:
            self._log.feed(
                f"warning: the record of this rank's end cannot be stored: {why}\n".encode()
            )

    def _do_others_run(self) -> bool:
        """Tell whether other ranks of this node are at work that end by themselves."""
        if self._settings.chief:
            return False
        found = {int(name[:5]) for name in os.listdir(f"{self.job.run_dir}/ranks")}
        others = (rank for rank in found - {self.world.rank} if rank < self.world.size)
        return any(is_running(self.job.run_dir, rank) for rank in others)

    def _are_results_brought(self) -> bool:
        return self._has_mark(_BROUGHT) or not self._has_mark(_BRINGING)

    def _mark(self, what: str) -> None:
        with open(f"{self.job.run_dir}/{what}", "w", encoding="utf-8"):
            pass

    def _has_mark(self, what: str) -> bool:
        return os.path.exists(f"{self.job.run_dir}/{what}")


def _copy_code(folder: str) -> None:
    """Copy the code from where Azure ML has laid it, and this process was started; raises Altered.

    What is in `folder` already was left by ranks that were killed before all had begun.
    """
    code = os.getcwd()
    shutil.rmtree(folder, ignore_errors=True)
    copy_sent(code, folder)
    content = read_sent(code, SHAPE_FILE)
    if content is None:  # there is nothing but plain files
        return
    shape = json.loads(content)
    for name in shape["folders"]:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    for name in shape["executable"]:
        os.chmod(f"{folder}/{name}", 0o700)
    for name, target in shape["links"].items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        os.symlink(target, f"{folder}/{name}")


class _Helper:
    """Runs this program once more, beside the rank; it ends when its input is closed."""

    def __init__(self, *arguments: str) -> None:
        outlet, self._inlet = os.pipe2(os.O_CLOEXEC)
        argv = [sys.executable, "-I", "-S", sys.argv[0], *arguments]
        actions = [(os.POSIX_SPAWN_DUP2, outlet, 0)]
        # What ends the ranks is not to end it, from its very start.
        masked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._child = os.posix_spawn(
            sys.executable, argv, os.environ, file_actions=actions, setsigmask=masked
        )
        os.close(outlet)

    def finish(self, is_told: Callable[[], bool]) -> bool:
        """Let it end, and wait for that; False when told to leave meanwhile."""
        os.close(self._inlet)
        while not os.waitpid(self._child, os.WNOHANG)[0]:
            if is_told():
                return False
            time.sleep(0.02)
        return True
