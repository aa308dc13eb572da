"""Runs one rank: says who it is, prepares its node's folder, runs the command, keeps its log.

    python -I -S rank.pyz RANK.json

It travels beside the code into any container, with the modules that it imports as one file
(program.py): standard library only, Python 3.9. On Azure azure_node.py comes along, which knows
what nobody prepares there. RANK.json holds what the ranks of a run share, and no secret: secrets are
in the environment, and their values are struck out of the log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jobs.rank.folder import copy_tree
from jobs.rank.log import Log
from jobs.rank.mask import SHORT, SHORTEST, Mask, passwords_of_proxies
from jobs.rank.world import map_world, rank_environment

CHUNK = 1 << 20
PREEMPTED_EXIT_CODE = 75
# How long a rank that ended with an error stays for the others, where its end is theirs.
LINGER_S = 2.5
LINGER_FOR_CHECKPOINT_S = 10.0
CANNOT_START = 127  # what a shell gives for a command that is not there

T = TypeVar("T")


class Ending(NamedTuple):
    """How a command ended; exactly one of the two is set."""

    exit_code: int | None
    signal: int | None


class Rank:
    """One rank from its start to its record in `ranks/`."""

    logs_to_file = True

    def __init__(self, job: dict[str, Any], environ: dict[str, str]) -> None:
        self.job = job
        self.world = map_world(environ, job.get("processes_per_node"))
        self.env = rank_environment(environ, self.world, job)
        secrets = {name: environ[name] for name in job.get("secrets", []) if environ.get(name)}
        path = f"{job['run_dir']}/logs/rank-{self.world.rank:05d}.log"
        mask = Mask([*secrets.values(), *passwords_of_proxies(environ)])
        self.log = Log(path if self.logs_to_file else None, mask)
        if not self.world.rank:
            self._warn_of_short(secrets)
        self.child = 0
        self._is_over = False
        self._num_told = 0
        self.record: dict[str, Any] = {
            "rank": self.world.rank,
            "node": self.world.node,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        self._oom_kills = oom_kills()
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forward)

    def _warn_of_short(self, secrets: dict[str, str]) -> None:
        short = ", ".join(f"`{name}`" for name, value in secrets.items() if len(value) < SHORT)
        if short:
            self.log.feed(
                f"warning: {short}: a secret of fewer than {SHORT} characters cannot be struck out of "
                f"this log in every form (one of fewer than {SHORTEST} in none)\n".encode()
            )

    def run(self) -> int:
        """Prepare the node, run the command, write the record; gives the exit code."""
        try:
            stage = "setup"
            ending = self._prepare_node()
            if ending is None:
                stage = "command"
                ending = self._execute(self._command(), is_last=True)
        except Stopped:
            stage, ending = "setup", Ending(None, signal.SIGTERM)
        self._close(stage, ending)
        code = ending.exit_code if ending.exit_code is not None else 128 + (ending.signal or 0)
        self._leave(code)
        return code

    def _leave(self, code: int) -> None:
        """See that the others can end as they should, too."""
        if code and self.job.get("leave_together"):
            self._linger(LINGER_FOR_CHECKPOINT_S if code == PREEMPTED_EXIT_CODE else LINGER_S)

    def _linger(self, timeout_s: float) -> None:
        """Stay until the other ranks have ended, too, or this one is told to go (once more).

        mpirun kills all others half a second after one has left with an error: the one that
        writes the checkpoint, or the guilty one that is slower to leave than those it left behind.
        """
        deadline, was_told = time.monotonic() + timeout_s, self._num_told
        while self._num_told == was_told and time.monotonic() < deadline:
            if self._are_others_over():
                return
            time.sleep(0.05)

    def _are_others_over(self) -> bool:
        return all(self._has_ended(rank) for rank in range(self.world.size))

    def _has_ended(self, rank: int) -> bool:
        try:
            with open(self._record_path(rank), encoding="utf-8") as file:
                return "ended_s" in json.load(file)
        except (OSError, ValueError):
            return False

    def _command(self) -> list[str]:
        command = list(self.job["command"])
        if command[0] == "python":
            command[0] = self.job.get("interpreter") or sys.executable
        return command

    def _prepare_node(self) -> Ending | None:
        """Make the node's folder and run `setup` in it, once per node; None when all is well."""
        folder = f"{self.job['run_dir']}/nodes/{self.world.node}"
        with open(os.open(f"{folder}.lock", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = f"{folder}.done"
            if os.path.exists(done):
                with open(done, encoding="utf-8") as file:
                    failed = file.read()
                os.chdir(folder)
                return Ending(int(failed), None) if failed else None
            ending = self._build_node(folder)
            with open(done, "w", encoding="utf-8") as file:
                if ending is not None:
                    file.write(str(ending.exit_code or 128 + (ending.signal or 0)))
            return ending

    def _build_node(self, folder: str) -> Ending | None:
        self._copy_code(folder)
        os.symlink(os.path.relpath(f"{self.job['run_dir']}/outputs", folder), f"{folder}/outputs")
        os.chdir(folder)
        for line in self.job.get("setup", []):
            ending = self._execute(["/bin/sh", "-c", line])
            if ending != (0, None):
                self.record["setup"] = line
                return ending
        return None

    def _copy_code(self, folder: str) -> None:
        copy_tree(f"{self.job['run_dir']}/code", folder)

    def _execute(self, command: list[str], *, is_last: bool = False) -> Ending:
        """Run one command, its output streams into the log; returns when the command is over."""
        output, inlet = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(inlet, 1031, CHUNK)  # F_SETPIPE_SZ: fewer switches under a flood of lines
        self.child = os.fork()
        if not self.child:
            self._become(command, inlet)
        with contextlib.suppress(OSError):
            os.setpgid(self.child, self.child)  # here, too: a signal may come before it did
        os.close(inlet)
        os.set_blocking(output, False)
        # Of this command, not of the setup before it.
        self.record.update(child=self.child, started_s=time.monotonic(), exited_s=None)
        self.record["output_closed_s"] = None
        self._save()
        self._pump(output)
        # First forgotten, then reaped: from then on its id may be another's.
        self._is_over = is_last
        child, self.child = self.child, 0
        _, status = os.waitpid(child, 0)
        os.close(output)
        self._try(self.log.flush)
        if os.WIFSIGNALED(status):
            return Ending(None, os.WTERMSIG(status))
        return Ending(os.WEXITSTATUS(status), None)

    def _become(self, command: list[str], inlet: int) -> None:
        """In the forked child: turn into the command. Does not return."""
        try:
            os.setpgid(0, 0)
            die_with_parent()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(inlet, 1)
            os.dup2(inlet, 2)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores these; programs expect them
            if self.job.get("cpus"):
                os.sched_setaffinity(0, self.job["cpus"][self.world.rank])
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
                file.write(b"500")  # where memory runs out, the program goes, not what watches it
            os.execvpe(command[0], command, self.env)
        except (OSError, ValueError) as error:  # a NUL, or what the system's encoding has not
            why = getattr(error, "strerror", None) or error
            os.write(2, f"cannot start `{command[0]}`: {why}\n".encode(errors="backslashreplace"))
        finally:
            os._exit(CANNOT_START)

    def _pump(self, output: int) -> None:
        """Move output into the log until the child is over; leaves it to be reaped."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(output, select.POLLIN)
        while True:
            for fd, _ in poller.poll(self.log.due_ms):
                data = _read(fd)
                if fd == self._wake:
                    continue
                if data:
                    self._try(self.log.feed, data)
                elif data == b"":
                    poller.unregister(output)
                    self.record["output_closed_s"] = time.monotonic()
                    self._save()
            self._try(self.log.show_progress)
            if os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                self.record["exited_s"] = time.monotonic()
                self._drain(output)
                return

    def _drain(self, output: int) -> None:
        """Read what the child left in the pipe, and no more: a grandchild may hold it open."""
        left = int.from_bytes(fcntl.ioctl(output, 0x541B, bytes(4)), sys.byteorder)  # FIONREAD
        while left > 0:
            data = _read(output)
            if not data:
                return
            self._try(self.log.feed, data)
            left -= len(data)

    def _try(self, step: Callable[..., T], *arguments: Any) -> T | None:
        """Do what only records: a fault of ours in it is noted, and costs the command nothing."""
        try:
            return step(*arguments)
        except Exception as error:  # noqa: BLE001 (whatever it is: the verdict is not to hang on it)
            self.log.error = f"log: {type(error).__name__}"
            return None

    def _forward(self, number: int, _frame: Any) -> None:
        self._num_told += 1
        self.record.setdefault("stopped_s", time.monotonic())
        if self.child > 1:  # groups 0 and 1 would be ourselves and everybody
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child, number)
        elif not self._is_over:
            raise Stopped

    def _close(self, stage: str, ending: Ending) -> None:
        now = time.monotonic()
        self.record.update(
            stage=stage, exit_code=ending.exit_code, signal=ending.signal, ended_s=now
        )
        if ending != (0, None):
            found = self._try(self.log.traceback)
            self.record["last_lines"] = self._try(self.log.last_lines, 20) or ""
            if found:
                self.record.update(traceback=found[0], traceback_s=found[1])
            killed = ending.signal == signal.SIGKILL
            self.record["out_of_memory"] = killed and oom_kills() > self._oom_kills
        self.record["log_error"] = self.log.error
        self._save()

    def _save(self) -> None:
        path = self._record_path(self.world.rank)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(self.record, file)
            os.replace(f"{path}.new", path)
        except OSError:
            # The disk is full. The file that is there has a block, and the main thing fits in it.
            with contextlib.suppress(OSError):
                os.unlink(f"{path}.new")
            shortened = {
                name: value[-1000:] if isinstance(value, str) else value
                for name, value in self.record.items()
            }
            with contextlib.suppress(OSError), open(path, "r+", encoding="utf-8") as file:
                json.dump(shortened, file)
                file.truncate()

    def _record_path(self, rank: int) -> str:
        return f"{self.job['run_dir']}/ranks/{rank:05d}.json"


def _ignore(_number: int, _frame: Any) -> None:
    """To be woken is all; SIG_IGN would not wake."""


class Stopped(Exception):
    """A signal asked to stop before the command began."""


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since it started; 0 where unknown."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def _read(fd: int) -> bytes | None:
    """What is there to read; b"" at the end of the stream, None when nothing is there now."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent is gone (second line: the watcher)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> int:
    """Run the rank that RANK.json and the environment describe."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    if job.get("die_with_parent"):
        die_with_parent()
    return Rank(job, dict(os.environ)).run()
