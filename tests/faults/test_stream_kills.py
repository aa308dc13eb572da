"""Readers that are killed while they stream: what they leave in the cache never harms the next."""

from __future__ import annotations

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import seeds
from tests.busy import HANG_S
from tests.campaign import campaign
from tests.fakes.packed_dataset import stream_variables, write_packed, write_stream_input
from tests.fakes.range_server import RangeServer, Trouble

PROJECT = Path(__file__).parents[2]
SEED = 7
BOUND = 5 * (1 << 20)
# Reads every sample, in an order of its own; prints one digest of all of them in the usual order.
READER = """
import hashlib, random, sys
from pathlib import Path
from trainer.data.pictures.splits import open_pictures
pictures = open_pictures(Path(sys.argv[1]), "train")
order = list(range(len(pictures.labels)))
random.Random(int(sys.argv[2])).shuffle(order)
pictures.announce(order)
print("begun", flush=True)
found = {index: hashlib.sha256(pictures.read(index)).digest() for index in order}
print(hashlib.sha256(b"".join(found[index] for index in sorted(found))).hexdigest())
"""


@dataclass
class Streaming:
    """A store, an input that streams from it, and what a whole reading gives."""

    folder: Path
    server: RangeServer
    input: Path
    digest: str

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def start(self, seed: int) -> subprocess.Popen[str]:
        """Start a reader; it has opened the input when this returns."""
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(self.input), str(seed)],
            env={"PYTHONPATH": str(PROJECT), **stream_variables(self.input)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == "begun\n"
        return reader

    def is_read_whole(self, seed: int) -> bool:
        """Whether a reader that nobody disturbs gets every sample as it was packed."""
        out, errors = self.start(seed).communicate(timeout=HANG_S)
        return (out, errors) == (f"{self.digest}\n", "")

    def used_bytes(self) -> int:
        """Bytes of all that is in the cache, half-written blocks as well."""
        used = 0
        for file in self.cache.glob("*/*"):
            try:
                used += file.stat().st_size
            except FileNotFoundError:
                continue
        return used


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[Streaming]:
    samples = write_packed(tmp_path / "packed", num_shards=3, samples_each=30, largest=200_000)
    server = RangeServer(tmp_path / "packed", delay_s=0.005)
    folder = write_stream_input(
        tmp_path / "input",
        tmp_path / "packed",
        endpoint=server.endpoint,
        cache=tmp_path / "cache",
        cache_bytes=BOUND,
        sas=server.sas,
    )
    parts = b"".join(hashlib.sha256(sample).digest() for sample in samples)
    yield Streaming(tmp_path, server, folder, hashlib.sha256(parts).hexdigest())
    server.stop()


def kill_some(streaming: Streaming, *, num_kills: int) -> tuple[int, int]:
    """Kill one of two readers that share a cache, again and again; gives (harmless, over the bound)."""
    source = seeds.dice(SEED)
    harmless = over = 0
    for number in range(num_kills):
        victim, other = streaming.start(2 * number), streaming.start(2 * number + 1)
        time.sleep(source.uniform(0, 0.3))
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        over += streaming.used_bytes() > BOUND
        out, errors = other.communicate(timeout=HANG_S)
        harmless += (out, errors) == (f"{streaming.digest}\n", "")
        over += streaming.used_bytes() > BOUND
    return harmless, over


def test_a_killed_reader_harms_no_other_and_the_bound_holds(streaming):
    assert kill_some(streaming, num_kills=1) == (1, 0)
    assert streaming.is_read_whole(99)
    assert list(streaming.cache.glob("*/*.new")) == []


@pytest.mark.faults
def test_a_hundred_killed_readers_harm_no_other(streaming):
    harmless, over = kill_some(streaming, num_kills=100)
    campaign("readers of a stream killed beside another one", tried=100, survived=harmless)
    assert (harmless, over) == (100, 0)


@pytest.mark.faults
def test_a_stream_bears_all_troubles_at_once(streaming):
    """A store with all its faults, a cache that is damaged, cut short or taken away while read."""
    source = seeds.dice(SEED)
    troubles = [Trouble(status=500), Trouble(status=503), Trouble(cut=True), Trouble(flip=True)]
    streaming.server.trouble = lambda _: source.choice(troubles) if source.random() < 0.3 else None
    wrong: list[object] = []
    for number in range(50):
        readers = [streaming.start(2 * number), streaming.start(2 * number + 1)]
        time.sleep(source.uniform(0, 0.2))
        blocks = [file for file in streaming.cache.glob("*/*") if file.suffix != ".new"]
        if number % 3 == 0:
            shutil.rmtree(streaming.cache, ignore_errors=True)
        elif blocks:
            damage(source.choice(blocks), source)
        answers = [reader.communicate(timeout=HANG_S) for reader in readers]
        # Some in a row of a store's faults last long enough to be told of.
        told = [line for _, errors in answers for line in errors.splitlines()]
        is_calm = all(line.startswith("warning: waiting for the store ") for line in told)
        if [out for out, _ in answers] != [f"{streaming.digest}\n"] * 2 or not is_calm:
            wrong.append(answers)
    campaign("streams with faults of store and cache", tried=50, survived=50 - len(wrong))
    assert wrong == []


def damage(block: Path, source: random.Random) -> None:
    """Put another file in a block's place, as a disk that forgot would: torn, or with a bit turned."""
    try:
        content = bytearray(block.read_bytes())
        if source.random() < 0.5:
            content = content[: source.randrange(len(content))]
        else:
            content[source.randrange(len(content))] ^= 1 << source.randrange(8)
        other = block.with_name(f"{block.name}.damaged")
        other.write_bytes(content)
        other.replace(block)
    except FileNotFoundError:
        pass  # it gave way meanwhile
