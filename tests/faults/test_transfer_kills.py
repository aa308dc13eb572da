"""Uploads and downloads that are killed: the same command finishes them, sending little again."""

from __future__ import annotations

import hashlib
import itertools
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from jobs.blobs.store import BLOCK_BYTES
from tests import seeds
from tests.busy import HANG_S, Bound
from tests.campaign import campaign
from tests.fakes.flaky_proxy import Seen
from tests.faults.transfer_campaign import FlakyStore

SEED = 5


@dataclass(kw_only=True)
class Killed:
    """What the store had seen of a command when it was killed."""

    done: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    was_killed: bool = False


def block_of(seen: Seen) -> str | None:
    """Name the piece of the large file that a request moves."""
    if seen.kind == "block":
        return seen.query["blockid"]
    if seen.kind == "get" and seen.name.endswith("/large"):
        return seen.headers.get("x-ms-range") or seen.headers.get("range")
    return None


def pieces(requests: list[Seen]) -> list[str]:
    return [piece for piece in map(block_of, requests) if piece is not None]


def run_and_kill_at(
    store: FlakyStore, arguments: list[str], kind: str, number: int, folder: Path
) -> Killed:
    """Run a command; SIGKILL when so many of its requests of that kind are over.

    They go by one at a time: what is over has reached the client, too, before it is killed, and of a
    pull is noted in `folder`.
    """
    state = Killed()
    order: list[Seen] = []
    lock = threading.Lock()
    processes: list[subprocess.Popen[str]] = []
    proxy = store.proxy

    def plan(seen: Seen) -> None:
        if seen.kind != kind or (kind != "commit" and block_of(seen) is None):
            return
        with lock:
            before = order[-1:]
            order.append(seen)
            position = len(order) - 1
        bound = Bound(30)
        while before and not (before[0].is_answered or state.was_killed):
            if bound.is_passed():
                return
            time.sleep(0.002)
        if position == number:
            while kind == "get" and num_noted(folder) < number:
                if bound.is_passed():
                    return
                time.sleep(0.002)
            note(state, proxy.seen, moved)
            processes[0].kill()

    proxy.clear(plan)
    processes.append(store.start(*arguments))
    processes[0].communicate(timeout=HANG_S)
    return state


def num_noted(folder: Path) -> int:
    """How many blocks a pull has noted as written (jobs/blobs/partial_file.py)."""
    return sum(each.read_bytes().count(b"\n") for each in folder.glob(".trainyard-*.ranges"))


def run_and_kill_after(store: FlakyStore, arguments: list[str], delay_s: float) -> Killed:
    """Run a command; SIGKILL after that time, if it still runs."""
    state = Killed()
    store.proxy.clear()
    process = store.start(*arguments)
    time.sleep(delay_s)
    if process.poll() is None:
        note(state, store.proxy.seen, arrived)
        process.kill()
    process.communicate(timeout=HANG_S)
    return state


def note(state: Killed, requests: list[Seen], is_done: Callable[[Seen], bool]) -> None:
    state.was_killed = True
    state.begun = set(pieces(requests))
    state.done = set(pieces([each for each in requests if is_done(each)]))


def moved(seen: Seen) -> bool:
    return seen.is_answered and seen.status in (200, 201, 206)


def arrived(seen: Seen) -> bool:
    """Whether it is over for the client, too: an answer may wait in its socket, unread."""
    return moved(seen) and (seen.kind == "block" or seen.is_read)


def write_large(path: Path, content: bytes, number: int) -> str:
    """Write the same content but for its first bytes; gives its SHA-256."""
    whole = number.to_bytes(8, "big") + content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole)
    return hashlib.sha256(whole).hexdigest()


def stored_sha256(store: FlakyStore, name: str) -> str:
    (blob,) = [each for each in store.open().list(f"{name}/") if each.name.endswith("/large")]
    digest = hashlib.sha256()
    for chunk in store.open().content(blob.name):
        digest.update(chunk)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


Way = Literal["up", "down"]


@dataclass(kw_only=True)
class Campaign:
    """Kills commands that move one large file, resumes them, and counts."""

    store: FlakyStore
    folder: Path
    num_blocks: int
    tried: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.content = seeds.content((self.num_blocks - 1) * BLOCK_BYTES + BLOCK_BYTES // 3)
        self.numbers = itertools.count()
        write_large(self.folder / "model" / "large", self.content, 1 << 40)
        self.name = f"model-{self.folder.name}-{self.num_blocks}"
        started = time.monotonic()
        self.store.succeed("push", str(self.folder / "model"), self.name)
        self.typical_s = time.monotonic() - started

    def kill_at_every_block(self, way: Way) -> None:
        kind = "block" if way == "up" else "get"
        for number in range(self.num_blocks):
            self._once(way, kind, number)
        if way == "up":
            self._once(way, "commit", 0)

    def kill_at_random_times(self, way: Way, count: int, dice: random.Random) -> None:
        for _ in range(count):
            self._once(way, "time", dice.uniform(0, self.typical_s))

    def _once(self, way: Way, kind: str, when: float) -> None:
        number = next(self.numbers)
        folder = self.folder / str(number)
        if way == "up":
            sha256 = write_large(folder / "large", self.content, number)
            arguments = ["push", str(folder), f"{self.name}-{number}"]
        else:
            sha256 = file_sha256(self.folder / "model" / "large")
            arguments = ["pull", self.name, "--to", str(folder)]
        if kind == "time":
            killed = run_and_kill_after(self.store, arguments, when)
        else:
            killed = run_and_kill_at(self.store, arguments, kind, int(when), folder)
            assert killed.was_killed, f"{way}: no {kind} {when}"
            assert kind == "commit" or len(killed.done) == when
        self.store.proxy.clear()
        done = self.store.launch(*arguments)
        requests = self.store.proxy.clear()
        self.tried += 1
        what = f"{way}, killed at {kind} {when}"
        if done.returncode != 0:
            answers = [(each.kind, each.query, each.status) for each in requests]
            self.faults.append(f"{what}: not resumed: {done.stderr} after {answers}")
            return
        # Only what got through: under load a request may be tried twice.
        again = pieces([each for each in requests if moved(each)])
        in_flight = len(killed.begun - killed.done)
        repeated = killed.done & set(again)
        # What was sent to a client that is killed at any time may not have been read by it yet.
        allowed = in_flight + 1 if (way, kind) == ("down", "time") else 0
        twice = len(again) - len(set(again))
        if len(repeated) > allowed or twice:
            counts = f"{len(repeated)} blocks moved again, {twice} twice, {in_flight} in flight"
            self.faults.append(f"{what}: {counts}")
        result = (
            stored_sha256(self.store, f"{self.name}-{number}")
            if way == "up"
            else file_sha256(folder / "large")
        )
        left = sorted(path.name for path in folder.iterdir())
        if result != sha256 or left != ["large"]:
            self.faults.append(f"{what}: other content, or left behind: {left}")
        (folder / "large").unlink()


def run_campaign(
    store: FlakyStore, folder: Path, *, num_blocks: int, random_blocks: int, random_kills: int
) -> None:
    """Kill both ways: at each block of one file, and at random times of another."""
    dice = seeds.dice(SEED)
    at_blocks = Campaign(store=store, folder=folder / "blocks", num_blocks=num_blocks)
    at_times = Campaign(store=store, folder=folder / "times", num_blocks=random_blocks)
    for way in ("up", "down"):
        at_blocks.kill_at_every_block(way)
        at_times.kill_at_random_times(way, random_kills // 2, dice)
    for name, kills in (("every block", at_blocks), ("random times", at_times)):
        survived = kills.tried - len(kills.faults)
        campaign(f"transfers killed at {name}, resumed", tried=kills.tried, survived=survived)
    assert at_blocks.faults + at_times.faults == []


def test_killed_transfers_go_on_at_the_block(store: FlakyStore, tmp_path: Path) -> None:
    run_campaign(store, tmp_path, num_blocks=3, random_blocks=2, random_kills=2)


@pytest.mark.parametrize("way", ["up", "down"])
def test_interrupted_transfers_end_at_once_and_go_on_later(
    store: FlakyStore, tmp_path: Path, way: Way
) -> None:
    content = seeds.content(2 * BLOCK_BYTES)
    sha256 = write_large(tmp_path / "from" / "large", content, 0)
    arguments = ["push", str(tmp_path / "from"), f"interrupted-{way}"]
    if way == "down":
        store.succeed(*arguments)
        arguments = ["pull", f"interrupted-{way}", "--to", str(tmp_path / "to")]
    kind = "block" if way == "up" else "get"
    moment, is_over = threading.Event(), threading.Event()

    def hold(seen: Seen) -> None:
        if seen.kind == kind and block_of(seen) is not None:
            moment.set()
            is_over.wait()

    store.proxy.clear(hold)
    with store.start(*arguments) as process:
        try:
            assert moment.wait(HANG_S)
            process.send_signal(signal.SIGINT)
            # Nothing is answered until it has ended: it did not wait for what was under way.
            out, err = process.communicate(timeout=HANG_S)
        finally:
            is_over.set()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    store.proxy.clear()
    assert not (tmp_path / "to" / "large").exists()
    store.succeed(*arguments)
    if way == "down":
        assert file_sha256(tmp_path / "to" / "large") == sha256
    else:
        assert stored_sha256(store, f"interrupted-{way}") == sha256


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_killed_transfers_go_on_at_the_block_long(store: FlakyStore, tmp_path: Path) -> None:
    run_campaign(store, tmp_path, num_blocks=12, random_blocks=3, random_kills=100)
