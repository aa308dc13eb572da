"""Runs one rank: says who it is, prepares its node's folder, runs the command, keeps its log.

    python rank.py RANK.json

One file, standard library only, so that it can travel beside the code into any container; on Azure
rank_azure.py comes with it, which knows what nobody prepares there. It maps whatever started it (our
gang, torchrun, Open MPI, Intel MPI, Azure ML, Batch AI) to the variables of docs/run-directory.md.
RANK.json holds what the ranks of a run share, and no secret: secrets are in the environment, and
their values are struck out of the log.
"""

from __future__ import annotations

import binascii
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from typing import Any, NamedTuple

CHUNK = 1 << 20
LONGEST_LINE = 1 << 20
TAIL_BYTES = 64 << 10
PREEMPTED_EXIT_CODE = 75
# How long a rank that ended with an error stays for the others, where its end is theirs.
LINGER_S = 2.5
LINGER_FOR_CHECKPOINT_S = 10.0
CANNOT_START = 127  # what a shell gives for a command that is not there
DEFAULT_MASTER_PORT = "6105"  # the one that Azure ML's own guide uses
MARKERS = (b"Traceback (most recent call last):", b"Fatal Python error: ")
CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)


class World(NamedTuple):
    """Who a rank is among the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    master_addr: str
    master_port: str


def map_world(environ: dict[str, str], processes_per_node: int | None = None) -> World:
    """Read the world from the variables of whatever started this process.

    With `processes_per_node` ranks are dealt to nodes in that number, whatever the launcher
    believes: locally all "nodes" are one machine, and mpirun sees only that machine. A parameter
    server, numbered after the ranks, is where it was told to be.
    """
    rank, size, local_rank, local_size, node = _identity(environ)
    if processes_per_node and rank < size:
        local_size = processes_per_node
        node, local_rank = divmod(rank, processes_per_node)
    batch, _, _ = environ.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = environ.get("MASTER_ADDR") or batch or environ.get("AZ_BATCHAI_MPI_MASTER_NODE", "")
    port = environ.get("MASTER_PORT") or DEFAULT_MASTER_PORT
    return World(rank, size, local_rank, local_size, node, address or "127.0.0.1", port)


def _identity(environ: dict[str, str]) -> tuple[int, int, int, int, int]:
    families = (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    )
    for rank, size, local_rank, local_size in families:
        if rank in environ and size in environ:
            num_ranks = int(environ[size])
            num_nodes = int(environ.get("AZUREML_NODE_COUNT") or 1)
            per_node = int(environ.get(local_size) or max(1, num_ranks // num_nodes))
            mine = int(environ[rank])
            local = int(environ.get(local_rank) or mine % per_node)
            node = environ.get("NODE_RANK") or environ.get("GROUP_RANK") or mine // per_node
            return mine, num_ranks, local, per_node, int(node)
    if "TF_CONFIG" in environ:
        return _task(json.loads(environ["TF_CONFIG"]))
    return 0, 1, 0, 1, 0


def _task(config: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """The place of a task of TensorFlow's: the chief, then the workers, then the servers.

    Nodes are told by their addresses, in the order in which the tasks have them.
    """
    cluster, mine = config["cluster"], config["task"]
    order = ("chief", "worker", "ps")
    tasks = [
        (kind, index, address.rpartition(":")[0])
        for kind in order
        for index, address in enumerate(cluster.get(kind, ()))
    ]
    rank = [task[:2] for task in tasks].index((mine["type"], int(mine["index"])))
    hosts = [host for _, _, host in tasks]
    here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    size = len(tasks) - len(cluster.get("ps", ()))
    local_size = max(1, sum(number < size for number in here))
    return rank, size, here.index(rank), local_size, list(dict.fromkeys(hosts)).index(hosts[rank])


def rank_environment(environ: dict[str, str], world: World, job: dict[str, Any]) -> dict[str, str]:
    """The environment that the job's command sees: its own, plus who it is and where things are."""
    run_dir = job["run_dir"]
    env = dict(environ)
    env.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.local_size),
        NODE_RANK=str(world.node),
        MASTER_ADDR=world.master_addr,
        MASTER_PORT=world.master_port,
        TRAINYARD_RUN_DIR=run_dir,
        TRAINYARD_CHECKPOINT_DIR=job.get("checkpoints") or f"{run_dir}/checkpoints",
        PYTHONUNBUFFERED="1",
        PYTHONFAULTHANDLER="1",
    )
    for name, path in job.get("inputs", {}).items():
        env[f"TRAINYARD_INPUT_{name.upper()}"] = path
    for name in job.get("outputs", []):
        env[f"TRAINYARD_OUTPUT_{name.upper()}"] = f"{run_dir}/outputs/{name}"
    cpus = job.get("cpus")
    share = len(cpus[world.rank]) if cpus else (os.cpu_count() or 1) // world.local_size
    env.setdefault("OMP_NUM_THREADS", str(max(1, share)))
    if job.get("gpus") and "CUDA_VISIBLE_DEVICES" not in env:
        env["CUDA_VISIBLE_DEVICES"] = job["gpus"][world.node]
    if job.get("interpreter"):
        env["PATH"] = os.path.dirname(job["interpreter"]) + os.pathsep + env.get("PATH", "")
    return env


# --- The log ---------------------------------------------------------------------------------


def struck_out(secrets: list[str]) -> list[bytes]:
    """The byte strings that must not reach a log: secrets by line, and their usual disguises."""
    found: set[bytes] = set()
    for secret in secrets:
        for line in (secret, *secret.splitlines()):
            raw = line.strip().encode()
            encoded = binascii.b2a_base64(raw, newline=False).rstrip(b"=")
            url = _url_quoted(raw)
            urls = (url, url.replace(b"%2F", b"/"), url.replace(b"%20", b"+"))
            texts = (json.dumps(line)[1:-1].encode(), repr(line)[1:-1].encode())
            found.update(each for each in (raw, *texts, *urls, encoded) if len(each) >= 4)
    return sorted(found, key=len, reverse=True)


def _url_quoted(raw: bytes) -> bytes:
    return b"".join(
        bytes([b]) if (b < 128 and chr(b).isalnum()) or b in b"-._~" else b"%%%02X" % b for b in raw
    )


def stamp() -> bytes:
    """What a line of a log begins with."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanoseconds // 1000:06d}Z ".encode()


class Log:
    """One rank's log: whole lines only, each with the time at which it was read.

    Goes to a file, or without a path to where this process's own output goes.
    """

    def __init__(self, path: str | None, secrets: list[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = 1 if path is None else os.open(path, flags, 0o644)
        self._has_file = path is not None
        self._secrets = secrets
        self._rest = b""
        self._tail = b""
        self._tail_end = 0
        self._marks: deque[tuple[int, float]] = deque(maxlen=64)
        self._is_torn = False
        self.error: str | None = None

    @property
    def has_rest(self) -> bool:
        """Whether the program wrote the beginning of a line."""
        return bool(self._rest)

    def feed(self, data: bytes) -> None:
        """Take what the program wrote; its last, unfinished line waits for its end."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            if len(self._rest) > LONGEST_LINE:
                self._break_line()
            return
        whole, self._rest = self._rest + data[:end], data[end:]
        self._write(whole)

    def flush(self) -> None:
        """Write the unfinished line as a line of its own."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write(rest + b"\n")

    def _break_line(self) -> None:
        """Write a line that is too long to wait for, but for what may begin a secret."""
        rest = self._strike_out(self._rest)
        cut = len(rest) - max(map(len, self._secrets), default=0)
        while cut > 0 and rest[cut : cut + 1] and rest[cut] & 0xC0 == 0x80:  # inside a character
            cut -= 1
        if cut > 0:
            self._rest = rest[cut:]
            self._write(rest[:cut] + b"\n")

    def flush_progress(self) -> None:
        """Write what a progress bar shows now (it ends its updates with a carriage return)."""
        end = self._rest.rfind(b"\r") + 1
        if end:
            shown, self._rest = self._rest[:end].strip(b"\r"), self._rest[end:]
            self._write(shown.rpartition(b"\r")[2] + b"\n")
        elif self._has_file:
            # An unfinished line is a sign of life, too: the gang looks at the file's time.
            os.utime(self._fd)

    def traceback(self) -> tuple[str, float] | None:
        """The traceback that ends the log, chained ones included, and when its first line came."""
        start = self._tail_end - len(self._tail)
        marks = [(offset - start, when) for offset, when in self._marks if offset >= start]
        if not marks:
            return None
        chosen = len(marks) - 1
        while chosen and any(
            c in self._tail[marks[chosen - 1][0] : marks[chosen][0]] for c in CHAINED
        ):
            chosen -= 1
        first, when = marks[chosen]
        return _block(self._tail, first, marks[-1][0]), when

    def last_lines(self, count: int) -> str:
        """The last lines, for a failure that left no traceback."""
        return b"\n".join(self._tail.splitlines()[-count:]).decode(errors="replace")

    def _strike_out(self, text: bytes) -> bytes:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, b"***")
        return text

    def _write(self, lines: bytes) -> None:
        lines = self._strike_out(lines)
        self._remember(lines)
        prefix = stamp()
        lines = lines.replace(b"\r\n", b"\n")
        # Where the disk was full and is no more, the log goes on with a line of its own.
        gap = b"\n" if self._is_torn else b""
        stamped = gap + prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
        written = 0
        try:
            while written < len(stamped):
                try:
                    written += os.write(self._fd, memoryview(stamped)[written:])
                except BlockingIOError:  # who started us reads it, and is behind
                    select.select([], [self._fd], [])
        except OSError as error:  # a full disk must not end the training by itself
            self.error = f"log: {error.strerror}"
        if written:
            self._is_torn = stamped[written - 1 : written] != b"\n"

    def _remember(self, lines: bytes) -> None:
        for marker in MARKERS:
            at = lines.find(marker)
            while at >= 0:
                begin = lines.rfind(b"\n", 0, at) + 1
                self._marks.append((self._tail_end + begin, time.monotonic()))
                at = lines.find(marker, at + 1)
        self._tail_end += len(lines)
        self._tail = (self._tail + lines)[-TAIL_BYTES:]


def _block(tail: bytes, first: int, last: int) -> str:
    """The traceback from `first` to the exception line of the one that begins at `last`."""
    lines = tail[last:].splitlines()
    marker = next(each for each in MARKERS if each in lines[0])
    prefix = lines[0][: lines[0].index(marker)]  # torch puts "[rank0]: " before each line
    end = len(lines)
    if marker == MARKERS[0]:
        for at, line in enumerate(lines[1:], start=1):
            text = line.removeprefix(prefix)
            if text and not text[:1].isspace():
                end = at + 1
                break
    block = tail[first:last].splitlines() + lines[:end]
    return b"\n".join(line.removeprefix(prefix) for line in block[-400:]).decode(errors="replace")


# --- The command -----------------------------------------------------------------------------


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
        secrets = [environ[name] for name in job.get("secrets", []) if environ.get(name)]
        path = f"{job['run_dir']}/logs/rank-{self.world.rank:05d}.log"
        self.log = Log(path if self.logs_to_file else None, struck_out(secrets))
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
        with open(f"{folder}.lock", "ab") as lock:
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
        self.log.flush()
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
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("500")  # where memory runs out, the program goes, not what watches it
            os.execvpe(command[0], command, self.env)
        except OSError as error:
            os.write(2, f"cannot start `{command[0]}`: {error.strerror}\n".encode())
        finally:
            os._exit(CANNOT_START)

    def _pump(self, output: int) -> None:
        """Move output into the log until the child is over; leaves it to be reaped."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(output, select.POLLIN)
        while True:
            events = poller.poll(1000 if self.log.has_rest else None)
            if not events:
                self.log.flush_progress()
            for fd, _ in events:
                data = _read(fd)
                if fd == self._wake:
                    continue
                if data:
                    self.log.feed(data)
                elif data == b"":
                    poller.unregister(output)
                    self.record["output_closed_s"] = time.monotonic()
                    self._save()
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
            self.log.feed(data)
            left -= len(data)

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
            stage=stage,
            exit_code=ending.exit_code,
            signal=ending.signal,
            ended_s=now,
            log_error=self.log.error,
        )
        if ending != (0, None):
            found = self.log.traceback()
            self.record["last_lines"] = self.log.last_lines(20)
            if found:
                self.record.update(traceback=found[0], traceback_s=found[1])
            killed = ending.signal == signal.SIGKILL
            self.record["out_of_memory"] = killed and oom_kills() > self._oom_kills
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


def copy_tree(source: str, target: str, *, leave_out: tuple[str, ...] = ("outputs",)) -> None:
    """Copy a folder; links stay links, and of its top the names of `leave_out` stay behind.

    `outputs` does so since a link takes its place.
    """
    os.makedirs(target)
    folders = [""]
    while folders:
        prefix = folders.pop()
        for entry in os.scandir(f"{source}/{prefix}"):
            name = prefix + entry.name
            if name in leave_out:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), f"{target}/{name}")
            elif entry.is_dir():
                os.mkdir(f"{target}/{name}")
                folders.append(f"{name}/")
            else:
                _copy_file(entry.path, f"{target}/{name}")


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as read:
        mode = os.fstat(read.fileno()).st_mode & 0o777
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o200), "wb"
        ) as write:
            while chunk := read.read(CHUNK):
                write.write(chunk)


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


if __name__ == "__main__":
    sys.exit(main())
