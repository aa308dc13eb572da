"""Brings a run's results to the store while the run is on; a process of its own on each node.

It never stands in the way of the training: it has its own interpreter, gives up a turn that fails,
and says so in the log. It ends when its input is closed, after a last turn in which all is brought.
Metrics, summary and outputs are whole blobs at any moment, replaced at once.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import select
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from jobs.rank.identity import STORAGE, Identity, NodeFailure
from jobs.rank.log import stamp
from jobs.rank.main import die_with_parent
from jobs.rank.places import HISTORY, PROGRESS
from jobs.rank.services import Answer, Container, Refused, block_id, unreachable
from jobs.rank.settings import UNREAD_METRICS, Settings

INTERVAL_S = 10.0
# A file is brought when nobody has written to it for so long.
STILL_S = 2.0
# How long the last turn is tried again: with a store that is away, and with one that refuses.
PATIENCE_S, REFUSED_PATIENCE_S = 120.0, 3.0
BLOCK_BYTES = 8 << 20
METRICS_BLOCK_BYTES = 1 << 20
NUM_THREADS = 4
# A blob's has at most 1,024, with what stands before an output's.
LONGEST_OUTPUT = 923


class State(NamedTuple):
    """A file as it is on the disk: another one where one of these is another."""

    inode: int
    changed_ns: int
    bytes: int

    @classmethod
    def of(cls, path: str) -> State:
        """Read the state of a file; raises OSError where there is none."""
        found = os.stat(path)
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)


class Sent(NamedTuple):
    """A file as it was brought, and the blob's mark."""

    state: State
    etag: str


class GrowingFile:
    """A file that grows by lines: of its blocks only the last one is brought again.

    Where the file `unread` is, what the blob holds is read first, and stays before what is brought.
    """

    def __init__(
        self, container: Container, path: str, blob: str, writer: str, *, unread: str = ""
    ) -> None:
        self._container, self._path, self._blob, self._writer = container, path, blob, writer
        self._unread, self._before = unread, b""
        self._begin_anew()
        self._sent: State | None = None

    def _begin_anew(self) -> None:
        self._full = 0  # blocks that cannot change any more
        self._md5 = hashlib.md5(usedforsecurity=False)

    def send(self) -> None:
        """Upload new bytes; raises NodeFailure, OSError."""
        try:
            state = State.of(self._path)
        except FileNotFoundError:
            return
        if state == self._sent:
            return
        if self._unread and os.path.exists(self._unread):
            self._before = self._read_before()
            self._unread = ""
        if self._sent and (state.inode != self._sent.inode or state.bytes < self._sent.bytes):
            self._begin_anew()
        blocks = [block_id(self._writer, index) for index in range(self._full)]
        md5 = self._md5
        # Not beyond what it was a moment ago: the next line may come while this is read.
        start, end = self._full * METRICS_BLOCK_BYTES, len(self._before) + state.bytes
        with open(self._path, "rb") as file:
            while content := self._read(file, start, min(METRICS_BLOCK_BYTES, end - start)):
                start += len(content)
                blocks.append(block_id(self._writer, len(blocks)))
                _require(self._blob, self._container.put_block(self._blob, blocks[-1], content))
                if len(content) == METRICS_BLOCK_BYTES:
                    self._full += 1
                    self._md5.update(content)
                else:
                    md5 = self._md5.copy()
                    md5.update(content)
        text = base64.b64encode(md5.digest()).decode()
        _require(self._blob, self._container.put_list(self._blob, blocks, text, {}))
        self._sent = state

    def _read_before(self) -> bytes:
        """Raises NodeFailure, and nothing is brought as long as it does."""
        try:
            content = self._container.get(self._blob)
        except KeyError:
            return b""
        return content if content.endswith(b"\n") else content + b"\n"

    def _read(self, file: Any, start: int, size: int) -> bytes:
        before = self._before[start : start + size]
        file.seek(max(start - len(self._before), 0))
        return before + bytes(file.read(size - len(before)))


class Tree:
    """The files of a folder, each under its name below a prefix.

    Where two nodes write one name, the node of the lower number has it. What was brought and is
    gone from the disk is taken away while the run is on; the whole folder goes only with its node.
    """

    def __init__(
        self,
        container: Container,
        folder: str,
        prefix: str,
        writer: str,
        *,
        attempt: int,
        node: int,
    ) -> None:
        self._container, self._folder, self._prefix = container, folder, prefix
        self._writer = writer
        self._attempt, self._node = attempt, node
        self._sent: dict[str, Sent] = {}
        self._left: dict[str, State] = {}  # another node's names
        self._told: set[str] = set()  # names that stay here
        self._pool = ThreadPoolExecutor(NUM_THREADS)

    def send(self, *, is_last: bool) -> None:
        """Upload new files that no longer change; at the end all files.

        Raises NodeFailure, OSError for one that failed, when the others are brought.
        """
        unusable: dict[str, str] = {}
        found = dict(_files(self._folder, unusable))
        for name in unusable.keys() - self._told:
            self._told.add(name)
            shown = os.fsencode(name).decode(errors="backslashreplace")
            say(f"outputs/{shown} stays on the node: {unusable[name]}")
        still_ns = time.time_ns() - int(STILL_S * 1e9)
        due = [
            (name, state)
            for name, state in found.items()
            if not self._has(name, state) and (is_last or state.changed_ns < still_ns)
        ]
        small = [each for each in due if each[1].bytes <= BLOCK_BYTES]
        # What is soon done first: there may be little time.
        failures = [each for each in self._pool.map(self._send, small) if each is not None]
        for each in due:
            if each[1].bytes > BLOCK_BYTES and (failed := self._send(each)) is not None:
                failures.append(failed)
                if isinstance(failed, NodeFailure):
                    break  # the store may be away, and each file has its tries
        of_store = [each for each in failures if isinstance(each, NodeFailure)]
        if not (of_store or is_last) and os.path.isdir(self._folder):
            self._delete_gone(found, tuple(f"{name}/" for name in unusable))
        for failed in of_store or failures:
            raise failed

    def _delete_gone(self, found: dict[str, State], unusable: tuple[str, ...]) -> None:
        """Delete blobs whose files are gone; of a folder that cannot be read nobody knows."""
        for name in self._sent.keys() - found.keys():
            if not f"{name}/".startswith(unusable):
                answer = self._container.delete(self._prefix + name, self._sent[name].etag)
                if answer.status in (202, 404, 412):
                    del self._sent[name]  # else at the next turn

    def _has(self, name: str, state: State) -> bool:
        sent = self._sent.get(name)
        return (sent is not None and sent.state == state) or name in self._left

    def _send(self, each: tuple[str, State]) -> Exception | None:
        name, state = each
        blob, path = self._prefix + name, f"{self._folder}/{name}"
        try:
            answer = self._write(blob, path, state, self._condition(name))
            if answer.status in (409, 412) and self._node:
                other = self._container.look(blob)
                if self._is_anothers(other):
                    self._left[name] = state
                    say(f"outputs/{name} stays on node {self._node}: another node has one, too")
                    return None
                condition = {"If-Match": other.headers["ETag"]} if other.status == 200 else {}
                answer = self._write(blob, path, state, condition)
            _require(blob, answer)
            self._sent[name] = Sent(state, answer.headers["ETag"])
        except FileNotFoundError:
            return None
        except (OSError, NodeFailure) as error:
            return error
        return None

    def _condition(self, name: str) -> dict[str, str]:
        if not self._node:
            return {}
        sent = self._sent.get(name)
        return {"If-Match": sent.etag} if sent else {"If-None-Match": "*"}

    def _is_anothers(self, other: Answer) -> bool:
        """Tell whether a node of a lower number has uploaded the blob in this attempt."""
        if other.status != 200:
            return False
        told = (other.headers.get(f"x-ms-meta-{name}", "") for name in ("attempt", "node"))
        attempt, node = (int(text) if text.isdecimal() else -1 for text in told)
        return attempt == self._attempt and 0 <= node < self._node

    def _write(self, blob: str, path: str, state: State, condition: dict[str, str]) -> Answer:
        mark = {"x-ms-meta-attempt": str(self._attempt), "x-ms-meta-node": str(self._node)}
        headers = {**mark, **condition}
        with open(path, "rb") as file:
            if state.bytes <= BLOCK_BYTES:
                return self._container.put(blob, file.read(), headers)
            return self._write_blocks(blob, file, headers)

    def _write_blocks(self, blob: str, file: Any, headers: dict[str, str]) -> Answer:
        md5 = hashlib.md5(usedforsecurity=False)
        blocks: list[str] = []
        waiting: list[Any] = []
        while content := file.read(BLOCK_BYTES):
            md5.update(content)
            blocks.append(block_id(self._writer, len(blocks)))
            waiting.append(self._pool.submit(self._container.put_block, blob, blocks[-1], content))
            if len(waiting) > NUM_THREADS:  # so many are in memory
                _require(blob, waiting.pop(0).result())
        for each in waiting:
            _require(blob, each.result())
        text = base64.b64encode(md5.digest()).decode()
        return self._container.put_list(blob, blocks, text, headers)


def _files(folder: str, unusable: dict[str, str]) -> Iterator[tuple[str, State]]:
    """List the files below a folder and links to files; links to folders are not followed.

    What cannot be read, and names that no blob can have, go into `unusable` with the reason. Raises
    OSError where the folder itself cannot be read.
    """
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = list(os.scandir(f"{folder}/{prefix}"))
        except FileNotFoundError:
            continue
        except OSError as error:
            if not prefix:
                raise
            unusable[prefix[:-1]] = str(error.strerror)
            continue
        for entry in entries:
            name = prefix + entry.name
            try:
                _require_name(name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
                elif entry.is_file():
                    yield name, State.of(entry.path)
            except FileNotFoundError:
                continue
            except OSError as error:  # a link that leads to itself
                unusable[name] = str(error.strerror)


def _require_name(name: str) -> None:
    """Raise OSError for a name that no blob can have."""
    if len(name) > LONGEST_OUTPUT:
        raise OSError(errno.ENAMETOOLONG, f"its name has more than {LONGEST_OUTPUT} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not UTF-8") from None


def _require(blob: str, answer: Answer) -> None:
    if answer.status != 201:
        raise unreachable(blob, answer)


class Uploads:
    """Uploads all results of one node; `is_main` if rank 0 is on it."""

    def __init__(
        self,
        run_dir: str,
        container: Container,
        identity: Identity,
        *,
        run: str,
        attempt: int,
        node: int,
        is_main: bool,
    ) -> None:
        self._identity, self._run_dir = identity, run_dir
        # A node that was given up may write on beside the one that took its place.
        writer = os.urandom(8).hex()
        outputs, prefix = f"{run_dir}/outputs", f"{run}/outputs/"
        self._outputs = Tree(container, outputs, prefix, writer, attempt=attempt, node=node)
        unread = f"{run_dir}/{UNREAD_METRICS}"
        marks = {"metrics.jsonl": unread, "summary.json": "", PROGRESS: "", HISTORY: ""}
        self._files = [
            GrowingFile(container, f"{run_dir}/{name}", f"{run}/{name}", writer, unread=mark)
            for name, mark in (marks.items() if is_main else ())
        ]
        self._why, self._is_refused = "", False

    def turn(self, *, is_last: bool) -> bool:
        """Upload all that is ready; False if a file failed."""
        try:
            self._renew_tokens()
            for file in self._files:
                file.send()
            self._outputs.send(is_last=is_last)
        except (NodeFailure, OSError) as error:
            self._is_refused = isinstance(error, Refused)
            hint = getattr(error, "hint", "trying again")
            if str(error) != self._why:
                self._why = str(error)
                say(f"results do not reach the store: {error} ({hint}); training goes on")
            return False
        if self._why:
            self._why = ""
            say("results reach the store again")
        return True

    def finish(self) -> None:
        """Bring all, or say that not all of it could be brought."""
        began_s, pause_s = time.monotonic(), 0.5
        while not self.turn(is_last=True):
            patience_s = REFUSED_PATIENCE_S if self._is_refused else PATIENCE_S
            if time.monotonic() - began_s > patience_s:
                say("not all results reached the store: the rest is lost with this node")
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, INTERVAL_S)

    def _renew_tokens(self) -> None:
        """Tokens of those who stream an input: readers look at the file when the store refuses."""
        folder = f"{self._run_dir}/inputs"
        for name in os.listdir(folder):
            if name.endswith(".token"):
                write_token(f"{folder}/{name}", self._identity.token(STORAGE))


def write_token(path: str, token: str) -> None:
    """Put a token where only its owner can read it; whole at any moment."""
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(token)
    os.replace(f"{path}.new", path)


def say(text: str) -> None:
    """Write a line to the log of the rank that started this process."""
    os.write(1, stamp() + f"warning: {text}\n".encode())


def upload_results(settings: Settings, run_dir: str, *, node: int, is_main: bool) -> None:
    """Upload results until the input is closed, then the rest."""
    die_with_parent()
    os.nice(10)
    identity = Identity(dict(os.environ))
    runs = Container(settings.store, settings.runs, identity)
    uploads = Uploads(
        run_dir,
        runs,
        identity,
        run=settings.run,
        attempt=settings.attempt,
        node=node,
        is_main=is_main,
    )
    while not select.select([0], [], [], INTERVAL_S)[0]:
        uploads.turn(is_last=False)
    uploads.finish()
