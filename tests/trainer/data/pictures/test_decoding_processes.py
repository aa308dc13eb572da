"""Decoding in other processes gives what decoding here gives, and ends as it should."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.fakes import decoding
from trainer.common.errors import TrainingError
from trainer.data.pictures.decoding_parts import Encoded, decode_part
from trainer.data.pictures.decoding_processes import DecodingProcesses
from trainer.data.pictures.files import FilePart
from trainer.data.pictures.header import CorruptPicture

NUM_PROCESSES = 2
SIDE = 4_096
WAIT_S = 20

Decode = Callable[..., object]


@pytest.fixture
def processes() -> Iterator[DecodingProcesses]:
    yield DecodingProcesses(NUM_PROCESSES, decoding.__name__)
    gc.collect()


def pixels_of(decode: Decode, files: Sequence[Encoded]) -> tuple[np.ndarray, dict]:
    # Every second row of a larger batch, as a loader parts its batches.
    targets = np.zeros((2 * len(files), SIDE), np.uint8)
    told = decode(decoding.put_bytes, iter(files), targets[::2])
    assert not targets[1::2].any()
    found = {
        place: (type(error), error.picture, error.message, error.hint, str(error))
        for place, error in told.corrupt.items()
    }
    assert told.core_s > 0
    return targets[::2], found


def process_ids(processes: DecodingProcesses) -> set[int]:
    targets = np.zeros((4 * processes.num_lanes, 8), np.uint8)
    file = Encoded(0, "any", b"")
    with ThreadPoolExecutor(processes.num_lanes) as threads:
        parts = np.split(targets, len(targets))
        list(threads.map(lambda part: processes.decode(decoding.put_process, [file], part), parts))
    return {int.from_bytes(row.tobytes(), "big") for row in targets}


def are_gone(ids: set[int]) -> bool:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if not any(Path(f"/proc/{each}").exists() for each in ids):
            return True
        time.sleep(0.02)
    return False


def test_they_decode_as_this_process_does(processes: DecodingProcesses, tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(bytes(range(256)) * 40)
    whole = tmp_path / "whole.jpg"
    whole.write_bytes(b"a whole file")
    # Larger ones later, so that the memory grows, and then small ones again.
    for length in (1, 3, 100_000, 5_000_000, 7):
        files = [
            Encoded(0, "given", os.urandom(length)),
            Encoded(1, "whole", FilePart(str(whole))),
            Encoded(2, "broken.jpg", b"corrupt"),
            Encoded(3, "part", FilePart(str(shard), 1_000, 2_000)),
            Encoded(4, "again", b"\0" * length),
        ]
        ours, our_corrupt = pixels_of(decode_part, files)
        theirs, their_corrupt = pixels_of(processes.decode, files)
        assert np.array_equal(ours, theirs)
        assert our_corrupt == their_corrupt
        assert list(our_corrupt) == [2]
        assert our_corrupt[2][:2] == (CorruptPicture, "broken.jpg")


def test_parts_of_many_threads_are_not_mixed_up(processes: DecodingProcesses) -> None:
    parts = [
        [
            Encoded(number, "x", os.urandom(1 + 997 * number % 30_000))
            for number in range(first, first + 5)
        ]
        for first in range(0, 500, 5)
    ]
    with ThreadPoolExecutor(3 * processes.num_lanes) as threads:
        told = list(threads.map(lambda files: pixels_of(processes.decode, files)[0], parts))
    for files, pixels in zip(parts, told, strict=True):
        assert np.array_equal(pixels, pixels_of(decode_part, files)[0])


def test_each_process_is_its_own(processes: DecodingProcesses) -> None:
    ids = process_ids(processes)
    assert len(ids) == NUM_PROCESSES
    assert os.getpid() not in ids


def test_a_file_that_is_not_there_is_named(processes: DecodingProcesses, tmp_path: Path) -> None:
    file = Encoded(0, "it", FilePart(str(tmp_path / "no.jpg")))
    with pytest.raises(TrainingError, match=r"no\.jpg` cannot be read: No such file") as told:
        processes.decode(decoding.put_bytes, [file], np.zeros((1, 8), np.uint8))
    assert told.value.hint == "get the file again"


def test_a_mistake_comes_with_its_place(processes: DecodingProcesses) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)in put_bytes.*ZeroDivisionError: a mistake"):
        processes.decode(
            decoding.put_bytes, [Encoded(0, "it", b"mistake")], np.zeros((1, 8), np.uint8)
        )


def test_a_killed_process_is_told_of_while_others_go_on(processes: DecodingProcesses) -> None:
    files = [Encoded(0, "first.jpg", b"killed"), Encoded(1, "second.jpg", b"good")]
    with pytest.raises(TrainingError, match=r"was killed; it had `first\.jpg` and 1 more"):
        processes.decode(decoding.put_bytes, files, np.zeros((2, 8), np.uint8))
    good: list[object] = []
    for _ in range(processes.num_lanes):
        try:
            good.append(pixels_of(processes.decode, files[1:]))
        except TrainingError as error:
            assert "it had `second.jpg`" in str(error)  # noqa: PT017
    assert len(good) == processes.num_lanes - processes.num_lanes // NUM_PROCESSES


@pytest.mark.parametrize("notice", [signal.SIGINT, signal.SIGTERM])
def test_a_notice_to_the_group_does_not_end_them(
    processes: DecodingProcesses, notice: signal.Signals
) -> None:
    ids = process_ids(processes)
    for each in ids:
        os.kill(each, notice)
    assert process_ids(processes) == ids


def test_they_end_with_their_owner() -> None:
    processes = DecodingProcesses(NUM_PROCESSES, decoding.__name__)
    ids = process_ids(processes)
    del processes
    gc.collect()
    assert are_gone(ids)


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit(0)"])
def test_they_end_with_their_process_however_it_ends(how: str) -> None:
    code = f"""
import os, sys
from tests.trainer.data.pictures.test_decoding_processes import *
processes = DecodingProcesses(NUM_PROCESSES, decoding.__name__)
print(*process_ids(processes), flush=True)
{how}
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    ids = {int(each) for each in done.stdout.split()}
    assert len(ids) == NUM_PROCESSES
    assert are_gone(ids)
