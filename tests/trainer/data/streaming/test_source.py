"""Pictures read from a store by ranges: equal content, each byte once, whatever goes wrong."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import seeds
from tests.busy import wait_until
from tests.fakes.packed_dataset import (
    source_file,
    stream_variables,
    write_packed,
    write_stream_input,
)
from tests.fakes.range_server import RangeServer
from tests.trainer.data.streaming.conftest import LARGE, Streaming, read_all
from trainer.common.errors import TrainingError
from trainer.data.disk.events import Events
from trainer.data.pack.program import pack
from trainer.data.pictures.splits import open_pictures
from trainer.data.streaming.blocks import BLOCK_BYTES
from trainer.data.streaming.cache import BlockCache
from trainer.data.streaming.source import StreamedPictures, find_source
from trainer.data.synthesize.stripes import make_pictures

# --- what it gives -------------------------------------------------------------------------------


def test_streamed_samples_are_those_of_the_shards_and_each_byte_is_fetched_once(streaming):
    pictures = streaming.open()
    assert pictures.classes == ("a", "b", "c")
    assert len(pictures.labels) == 40
    order = seeds.dice(1).sample(range(40), 40)
    assert read_all(pictures, order) == [streaming.samples[index] for index in order]
    assert read_all(pictures) == streaming.samples
    assert streaming.server.sent_bytes == streaming.train_bytes
    assert set(streaming.server.ranges.values()) == {1}
    assert pictures.name(21) == f"train/train-000001.tar@{pictures.places.offsets[21]}"


@pytest.mark.parametrize("encoding", ["tar", "tfrecord"])
def test_what_was_packed_is_streamed_as_it_is_read_from_the_disk(tmp_path, monkeypatch, encoding):
    make_pictures(tmp_path / "made", num_classes=2, num_train=6, num_val=2, size=32, seed=1)
    packed = tmp_path / "packed"
    events = Events(as_json=True)
    pack(tmp_path / "made", packed, encoding=encoding, shard_bytes=2000, events=events)
    server = RangeServer(packed)
    folder = write_stream_input(
        tmp_path / "input",
        packed,
        endpoint=server.endpoint,
        cache=tmp_path / "cache",
        cache_bytes=LARGE,
        sas=server.sas,
    )
    for name, value in stream_variables(folder).items():
        monkeypatch.setenv(name, value)
    for split, number in (("train", 6), ("val", 2)):
        local, streamed = open_pictures(packed, split), open_pictures(folder, split)
        assert isinstance(streamed, StreamedPictures)
        assert not isinstance(local, StreamedPictures)
        assert (list(streamed.labels), streamed.classes) == (list(local.labels), local.classes)
        assert list(streamed.shard_sizes) == list(local.shard_sizes)
        assert [streamed.read(index) for index in range(number)] == [
            local.read(index) for index in range(number)
        ]
    server.stop()


def test_a_later_run_takes_all_from_the_cache(streaming):
    read_all(streaming.open())
    num_requests = streaming.server.num_requests
    assert read_all(streaming.open()) == streaming.samples
    assert streaming.server.num_requests == num_requests


def test_announced_samples_are_there_when_they_are_read(streaming):
    pictures = streaming.open()
    pictures.announce(range(40))
    wait_until(lambda: streaming.server.sent_bytes == streaming.train_bytes)
    wait_until(lambda: len(streaming.blocks()) == len(streaming.server.ranges))
    num_requests = streaming.server.num_requests
    assert read_all(pictures) == streaming.samples
    assert streaming.server.num_requests == num_requests


def test_samples_that_are_read_while_they_are_fetched_ahead_are_fetched_once(streaming):
    streaming.server.delay_s = 0.02
    pictures = streaming.open()
    pictures.announce(range(40))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(pictures.read, range(40))) == streaming.samples
    assert set(streaming.server.ranges.values()) == {1}


def test_two_that_share_a_cache_fetch_each_block_once(streaming):
    streaming.server.delay_s = 0.01
    both = [streaming.open(), streaming.open()]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read_all, both)) == [streaming.samples] * 2
    assert set(streaming.server.ranges.values()) == {1}


def test_it_travels_to_another_process(streaming):
    pictures = streaming.open()
    pictures.read(3)
    again = pickle.loads(pickle.dumps(pictures))
    assert again.labels == pictures.labels
    assert read_all(again) == streaming.samples


def test_no_more_is_fetched_ahead_than_the_cache_has_room_for(streaming):
    pictures = streaming.open(cache_bytes=30 * BLOCK_BYTES)
    blocks = pictures._blocks
    assert blocks._max_ahead == 16
    blocks._max_ahead = 2
    order = list(range(40))
    pictures.announce(order)
    wait_until(lambda: streaming.server.num_requests == 2)
    # Once all that fetch ahead wait, nobody is left who could ask for more.
    wait_until(lambda: len(blocks._changed._waiters) == blocks._num_fetchers)
    assert streaming.server.num_requests == 2
    assert read_all(pictures, order) == streaming.samples
    assert set(streaming.server.ranges.values()) == {1}


def test_connections_stay_open(streaming):
    read_all(streaming.open())
    assert streaming.server.num_connections == 1


def test_an_empty_sample_asks_for_nothing(tmp_path):
    packed = tmp_path / "packed"
    write_packed(packed, largest=1)
    server = RangeServer(packed)
    assert streaming_of(tmp_path, packed, server).open(cache_bytes=0)._blocks.read(0, 5, 0) == b""
    assert server.num_requests == 0
    server.stop()


def streaming_of(folder: Path, packed: Path, server: RangeServer) -> Streaming:
    return Streaming(folder=folder, packed=packed, samples=[], server=server)


# --- the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [0, BLOCK_BYTES - 1])
def test_without_room_for_a_block_only_what_is_read_is_fetched(streaming, cache_bytes):
    pictures = streaming.open(cache_bytes=cache_bytes)
    pictures.announce(range(40))
    assert read_all(pictures) == streaming.samples
    assert streaming.server.sent_bytes == sum(map(len, streaming.samples))
    assert streaming.blocks() == []


def sizes(paths: Iterable[Path]) -> dict[Path, int]:
    """The bytes of those that are files, and are there."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.stat().st_size
    return found


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_a_small_cache_stays_within_its_bound_and_gives_all(streaming, num_blocks):
    bound = num_blocks * (BLOCK_BYTES + 100)
    pictures = [streaming.open(cache_bytes=bound) for _ in range(3)]
    looks, stop = [], threading.Event()

    def look() -> None:
        while not stop.wait(0.001):
            # Under the cache's own lock no block comes or goes; one may get its name meanwhile.
            with contextlib.suppress(FileNotFoundError), (streaming.cache / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                used = sum(sizes(sizes(streaming.cache.rglob("*-*"))).values())
                looks.append(used)

    looking = threading.Thread(target=look)
    looking.start()
    for each in pictures:
        each.announce(range(40))
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(read_all, pictures)) == [streaming.samples] * 3
    stop.set()
    looking.join()
    assert looks
    assert [used for used in looks if used > bound] == []
    assert len(streaming.blocks()) >= 1


def test_the_block_that_was_wanted_longest_ago_gives_way(streaming):
    pictures = streaming.open(cache_bytes=3 * BLOCK_BYTES + BLOCK_BYTES // 2)
    blocks = pictures._blocks
    for number in (0, 1):
        blocks.read(0, number * BLOCK_BYTES, 1)
        os.utime(streaming.blocks()[number], (number, number))
    # There already, and wanted once more.
    first = streaming.blocks()[0]
    before = first.stat().st_mtime_ns
    blocks.begin([(0, 0, 1)])
    wait_until(lambda: first.stat().st_mtime_ns != before)
    for number in (0, 1):
        blocks.read(1, number * BLOCK_BYTES, 1)
    names = [file.name for file in streaming.blocks()]
    assert names == ["train-000000-000000", "train-000001-000000", "train-000001-000001"]


def test_room_is_made_for_a_share_of_the_cache_so_that_looks_at_all_blocks_are_rare(tmp_path):
    # Blocks with nothing in them take no room on the disk.
    name = f"{'0' * 32}-{64 << 20}"
    (tmp_path / name).mkdir()
    for number in range(256):
        with (tmp_path / name / f"train-000000-{number:06}").open("wb") as block:
            block.truncate(64 << 20)
        os.utime(block.name, (number, number))
    BlockCache(tmp_path, name, 256 * (64 << 20)).write("val-000000-000000", b"content")
    left = sorted(path.name for path in (tmp_path / name).iterdir())
    expected = [f"train-000000-{number:06}" for number in range(9, 256)]
    assert left == [*expected, "val-000000-000000"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "longer"])
def test_a_damaged_block_is_fetched_again(streaming, damage):
    read_all(streaming.open())
    block = streaming.blocks()[0]
    content = block.read_bytes()
    block.write_bytes(
        {
            "cut": content[:-1],
            "flip": content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
            "empty": b"",
            "longer": content + b"\0",
        }[damage]
    )
    num_requests = streaming.server.num_requests
    assert read_all(streaming.open()) == streaming.samples
    assert streaming.server.num_requests == num_requests + 1
    assert block.read_bytes() == content


def test_a_cache_that_is_taken_away_begins_anew(streaming):
    pictures = streaming.open()
    read_all(pictures)
    shutil.rmtree(streaming.cache)
    assert read_all(pictures) == streaming.samples
    assert read_all(pictures) == streaming.samples
    assert set(streaming.server.ranges.values()) == {2}
    assert len(streaming.blocks()) == len(streaming.server.ranges)


def test_a_cache_that_cannot_be_written_is_done_without(streaming):
    streaming.cache.write_text("not a folder")
    pictures = streaming.open()
    pictures.announce(range(40))
    assert read_all(pictures) == streaming.samples


def test_a_full_disk_is_done_without(streaming, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    pictures = streaming.open()
    assert read_all(pictures) == streaming.samples
    assert streaming.blocks() == []
    # One block to find out; then no more than is read.
    assert streaming.server.sent_bytes <= sum(map(len, streaming.samples)) + BLOCK_BYTES


def test_what_a_killed_process_left_half_written_is_cleared_away(streaming):
    pictures = streaming.open(cache_bytes=3 * (BLOCK_BYTES + 100))
    pictures.read(0)
    folder = streaming.blocks()[0].parent
    left = folder / "train-000000-000009.1-1.new"
    left.write_bytes(bytes(2 * BLOCK_BYTES))
    (streaming.cache / "used").unlink()
    assert read_all(pictures) == streaming.samples
    assert not left.exists()


# --- its folder ----------------------------------------------------------------------------------


def test_a_folder_without_a_source_is_none_and_a_broken_one_is_named(tmp_path):
    folder = tmp_path / "data"
    variables = stream_variables(folder)
    assert find_source(folder, {"TRAINYARD_INPUT_DATA": str(folder)}) is None
    assert find_source(tmp_path, variables) is None
    deep = "[" * 100_000
    for content in (None, "", "[]", '{"schema": 2}', json.dumps({"schema": 1, "md5": {}}), deep):
        if content is not None:
            source_file(folder).write_text(content)
        with pytest.raises(TrainingError, match=r"data\.stream\.json` cannot be used: "):
            find_source(folder, variables)


def test_a_split_that_is_not_there_is_named(streaming):
    with pytest.raises(TrainingError, match="has no packed split `test`"):
        streaming.open("test")
