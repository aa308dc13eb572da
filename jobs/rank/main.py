"""Runs one rank: prepares its node's folder, runs the command in it, keeps its log and its record.

    python -I -S rank.pyz RANK.json

It travels beside the code into any container, with the modules that it imports as one file
(program.py): standard library only, Python 3.9. Engines differ in the `Node` that a rank is given: on
Azure that of azure_node.py. RANK.json (world.RankJob) holds what the ranks of a run share, and no
secret: secrets are in the environment, and their values are struck out of the log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from jobs.rank.keras_home import KERAS_INPUT, lay_keras_home
from jobs.rank.layer import layer_command, layer_environment, layer_python
from jobs.rank.log import Log
from jobs.rank.mask import SHORT, SHORTEST, Mask, passwords_of_proxies
from jobs.rank.node import Node, Unprepared, unprepared
from jobs.rank.notebook import PROGRAM, notebook_command
from jobs.rank.placeholders import Placeholders
from jobs.rank.places import LOOK_EVERY_S, Places
from jobs.rank.record import Ending, Record
from jobs.rank.signals import pass_on
from jobs.rank.world import RankJob, World, map_world, rank_environment

CHUNK = 1 << 20
CANNOT_START = 127  # what a shell gives for a command that is not there

T = TypeVar("T")


class Rank:
    """One rank from its start to its record in `ranks/`."""

    def __init__(
        self, job: RankJob, world: World, environ: dict[str, str], node: Node, log: Log
    ) -> None:
        self._below = job.interpreter or sys.executable
        self._layer = f"{job.run_dir}/nodes/{world.node}.layer"
        self._has_layer = bool(job.requirements or job.setup)
        job = self._on_layer(job) if self._has_layer else job
        self._job, self._world = job, world
        self._node, self._log = node, log
        self._placeholders = Placeholders(job, world)
        filled = {
            name: self._placeholders.word(environ[name]) for name in job.filled if name in environ
        }
        self._env = rank_environment({**environ, **filled}, world, job)
        if self._has_layer:
            self._env = {**layer_environment(self._layer), **self._env}
            self._env["VIRTUAL_ENV"] = self._layer
        self._child = 0
        self._is_over = False
        self._places: Places | None = None
        self._num_told = 0
        self._record = Record(world)
        self._oom_kills = oom_kills()
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forward)

    def run(self) -> int:
        """Prepare the node, run the command, write the record; gives the exit code."""
        try:
            stage = "setup"
            ending = self._prepare_node()
            if ending is None:
                self._find_keras_home()
                stage = "command"
                ending = self._execute(self._command(), is_last=True)
        except Stopped:
            stage, ending = "setup", Ending(None, signal.SIGTERM)
        return self._leave(stage, ending)

    def give_up(self, stage: str, problem: str) -> int:
        """End before the command began; `problem` is what the log says of it."""
        self._log.feed(problem.encode())
        return self._leave(stage, Ending(1, None))

    def _leave(self, stage: str, ending: Ending) -> int:
        ending = self._node.judge(ending)
        self._close(stage, ending)
        was_told = self._num_told
        self._node.before_leaving(ending.code, lambda: self._num_told > was_told)
        return ending.code

    def _command(self) -> list[str]:
        command = self._placeholders.command(self._job.command)
        python = self._job.interpreter or sys.executable
        if command[0] == "python":
            command[0] = python
        return notebook_command(python, command[1:]) if command[0] == PROGRAM else command

    def _find_keras_home(self) -> None:
        """Set KERAS_HOME for a job with an input for Keras, unless the job sets it."""
        source = self._job.inputs.get(KERAS_INPUT)
        home = f"{self._job.run_dir}/nodes/{self._world.node}.keras/{self._world.rank}"
        if source is None or "KERAS_HOME" in self._env:
            return
        if self._try(lay_keras_home, source, home, self._world):
            self._env["KERAS_HOME"] = home

    def _prepare_node(self) -> Ending | None:
        """Make the node's folder and run `setup` in it, once per node; None when all is well."""
        folder = f"{self._job.run_dir}/nodes/{self._world.node}"
        with open(os.open(f"{folder}.lock", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = f"{folder}.done"
            if os.path.exists(done):
                with open(done, encoding="utf-8") as file:
                    failed = file.read()
                if failed:
                    return Ending(int(failed), None)
                os.chdir(folder)
                return None
            try:
                ending = self._build_node(folder)
                _note_done(done, ending)
            except (OSError, Unprepared) as error:
                ending = self._not_built(folder, error)
                with contextlib.suppress(OSError):  # then the node's next rank tries by itself
                    _note_done(done, ending)
            return ending

    def _not_built(self, folder: str, error: OSError | Unprepared) -> Ending:
        """Say why the node's folder cannot be made, once it is away: on a full disk it leaves no room."""
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        problem = unprepared(folder, error) if isinstance(error, OSError) else error
        self._log.feed(f"error: {problem}\n".encode(errors="backslashreplace"))
        return Ending(1, None)

    def _build_node(self, folder: str) -> Ending | None:
        self._node.prepare_folder(folder)
        os.symlink(os.path.relpath(f"{self._job.run_dir}/outputs", folder), f"{folder}/outputs")
        os.chdir(folder)
        if self._has_layer:
            ending = self._execute(self._making_layer())
            if ending != (0, None):
                file = self._job.requirements
                self._record.setup = f"pip install -r {file}" if file else "python -m venv"
                return ending
        for line in self._job.setup:
            ending = self._execute(["/bin/sh", "-c", self._placeholders.shell(line)])
            if ending != (0, None):
                self._record.setup = line
                return ending
        return None

    def _on_layer(self, job: RankJob) -> RankJob:
        """Give the job with the interpreter of a layer that the node makes for this run alone."""
        return job._replace(
            interpreter=layer_python(self._layer),
            path=[os.path.dirname(self._below), *job.path],
        )

    def _making_layer(self) -> list[str]:
        job = self._job
        return layer_command(self._below, self._layer, job.requirements or "", job.pip or "")

    def _execute(self, command: list[str], *, is_last: bool = False) -> Ending:
        """Run one command, its output streams into the log; returns when the command is over."""
        output, inlet = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(inlet, 1031, CHUNK)  # F_SETPIPE_SZ: fewer switches under a flood of lines
        parent = os.getpid()
        self._child = os.fork()
        if not self._child:
            self._become(command, inlet, parent)
        with contextlib.suppress(OSError):
            os.setpgid(self._child, self._child)  # here, too: a signal may come before it did
        os.close(inlet)
        os.set_blocking(output, False)
        # Of this command, not of the setup before it.
        self._record.child, self._record.started_s = self._child, time.monotonic()
        self._record.exited_s = self._record.output_closed_s = None
        self._save()
        if is_last and not self._world.rank:
            self._places = Places(self._job.run_dir)
        self._pump(output)
        # First forgotten, then reaped: from then on its id may be another's.
        self._is_over = is_last
        child, self._child = self._child, 0
        _, status = os.waitpid(child, 0)
        os.close(output)
        self._try(self._log.flush)
        if os.WIFSIGNALED(status):
            return Ending(None, os.WTERMSIG(status))
        return Ending(os.WEXITSTATUS(status), None)

    def _become(self, command: list[str], inlet: int, parent: int) -> None:
        """Execute the command in the forked child of `parent`. Does not return."""
        try:
            os.setpgid(0, 0)
            die_with_parent(parent)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(inlet, 1)
            os.dup2(inlet, 2)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores these; programs expect them
            if self._job.cpus:
                os.sched_setaffinity(0, self._job.cpus[self._world.rank])
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
                file.write(b"500")  # where memory runs out, the program goes, not what watches it
            os.execvpe(command[0], command, self._env)
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
            for fd, _ in poller.poll(self._due_ms()):
                data = _read(fd)
                if fd == self._wake:
                    continue
                if data:
                    self._try(self._log.feed, data)
                    self._node.note_output()
                elif data == b"":
                    poller.unregister(output)
                    self._record.output_closed_s = time.monotonic()
                    self._save()
            self._try(self._log.show_progress)
            is_over = os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if self._places is not None:
                self._try(self._places.look, is_last=bool(is_over))
            if is_over:
                self._record.exited_s = time.monotonic()
                self._drain(output)
                return

    def _drain(self, output: int) -> None:
        """Read the child's bytes in the pipe, and no more: a grandchild may hold it open."""
        left = int.from_bytes(fcntl.ioctl(output, 0x541B, bytes(4)), sys.byteorder)  # FIONREAD
        while left > 0:
            data = _read(output)
            if not data:
                return
            self._try(self._log.feed, data)
            left -= len(data)

    def _due_ms(self) -> int | None:
        """Milliseconds until the log or the program's progress is to be looked at; None for neither."""
        due_ms = self._log.due_ms
        if self._places is None:
            return due_ms
        look_ms = round(LOOK_EVERY_S * 1000)
        return look_ms if due_ms is None else min(due_ms, look_ms)

    def _try(self, step: Callable[..., T], *arguments: Any, **options: Any) -> T | None:
        """Run a step that must not end the command; what it raises becomes the record's `log_error`."""
        try:
            return step(*arguments, **options)
        except Exception as error:  # noqa: BLE001 (whatever it is: the verdict is not to hang on it)
            self._log.error = f"log: {type(error).__name__}"
            return None

    def _forward(self, number: int, _frame: Any) -> None:
        self._num_told += 1
        self._record.stopped_s = self._record.stopped_s or time.monotonic()
        if self._child > 1:  # groups 0 and 1 would be ourselves and everybody
            with contextlib.suppress(ProcessLookupError, PermissionError):
                pass_on(self._child, number)
        elif not self._is_over:
            raise Stopped

    def _close(self, stage: str, ending: Ending) -> None:
        self._is_over = True  # from here on a signal only shortens the wait for others
        record = self._record
        record.stage, record.exit_code, record.signal = stage, ending.exit_code, ending.signal
        record.ended_s = time.monotonic()
        if ending != (0, None):
            record.last_lines = self._try(self._log.last_lines, 20) or ""
            if found := self._try(self._log.traceback):
                record.traceback, record.traceback_s = found
            killed = ending.signal == signal.SIGKILL
            record.out_of_memory = killed and oom_kills() > self._oom_kills
        record.log_error = self._log.error
        self._save()

    def _save(self) -> None:
        self._node.save_record(self._record)


def _note_done(path: str, ending: Ending | None) -> None:
    """Tell the node's other ranks that its folder is made (an empty file), or the exit code."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        if ending is not None:
            file.write(str(ending.code))
    os.replace(f"{path}.new", path)  # half of it, on a full disk, would be empty


def _ignore(_number: int, _frame: Any) -> None:
    """Do nothing but wake up; SIG_IGN would not wake."""


class Stopped(Exception):
    """A signal asked to stop before the command began."""


def oom_kills() -> int:
    """Count the processes that the kernel has killed for memory since it started; 0 if unknown."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def _read(fd: int) -> bytes | None:
    """Read the available bytes; b"" at the end of the stream, None while there are none."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to end this process when its parent is gone (second line: the watcher).

    It tells of no end before it was asked: with `parent`, one that is gone already ends this process.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if parent is not None and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def open_log(
    job: RankJob, world: World, environ: dict[str, str], *, path: str | None = None
) -> Log:
    """Open a rank's log, without a path that of this process; secrets are struck out of it."""
    secrets = {name: environ[name] for name in job.secrets if environ.get(name)}
    log = Log(path, Mask([*secrets.values(), *passwords_of_proxies(environ)]))
    short = ", ".join(f"`{name}`" for name, value in secrets.items() if len(value) < SHORT)
    if short and not world.rank:
        log.feed(
            f"warning: {short}: a secret of fewer than {SHORT} characters cannot be struck out of "
            f"this log in every form (one of fewer than {SHORTEST} in none)\n".encode()
        )
    return log


def main() -> int:
    """Run the rank that RANK.json and the environment describe."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = RankJob(**json.load(file))
    if job.die_with_parent:
        die_with_parent(job.supervisor)
    environ = dict(os.environ)
    world = map_world(environ, job.processes_per_node)
    log = open_log(job, world, environ, path=f"{job.run_dir}/logs/rank-{world.rank:05d}.log")
    return Rank(job, world, environ, Node(job, world), log).run()
