"""Decoding in other processes gives what decoding here gives, and ends as it should."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.busy import HANG_S, wait_until
from tests.fakes import decoding
from tests.seeds import content
from trainer.common.errors import TrainingError
from trainer.data.pictures import decoding_processes
from trainer.data.pictures.crops import center_crop
from trainer.data.pictures.decoding_parts import Encoded, decode_part
from trainer.data.pictures.decoding_processes import (
    MOST_OF_A_REQUEST,
    MOST_THREADS,
    DecodingProcesses,
    decoding_by,
)
from trainer.data.pictures.files import FileRange
from trainer.data.pictures.header import CorruptPicture
from trainer.data.pictures.put_crop import PutCrop

NUM_PROCESSES = 2
SIDE = 4_096

Decode = Callable[..., object]


MODULES = (decoding.__name__, "json")


@pytest.fixture
def processes() -> Iterator[DecodingProcesses]:
    made = DecodingProcesses(NUM_PROCESSES, MODULES)
    yield made
    made.end()


def pixels_of(decode: Decode, files: Sequence[Encoded]) -> tuple[np.ndarray, dict]:
    # Every second row of a larger batch, as a loader parts its batches.
    targets = np.zeros((2 * len(files), SIDE), np.uint8)
    told = decode(decoding.put_bytes, iter(files), targets[::2])
    assert not targets[1::2].any()
    found = {
        place: (type(error), error.picture, error.message, error.hint, str(error))
        for place, error in told.corrupt.items()
    }
    assert told.cpu_s > 0
    return targets[::2], found


def process_ids(processes: DecodingProcesses, number: int = NUM_PROCESSES) -> set[int]:
    """Ask for so many parts at a time; gives the processes that they went to."""
    targets = np.zeros((number, 8), np.uint8)
    file = Encoded(0, "any", b"")
    with ThreadPoolExecutor(number) as threads:
        parts = np.split(targets, number)
        list(threads.map(lambda part: processes.decode(decoding.put_process, [file], part), parts))
    return {int.from_bytes(row.tobytes(), "big") for row in targets}


def wait_for_the_end(ids: set[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in ids))


def test_a_process_decodes_as_this_one_does(tmp_path: Path) -> None:
    # One lane, so that its memory grows and is used again.
    processes = DecodingProcesses(1, MODULES, num_lanes=1)
    shard = tmp_path / "shard"
    shard.write_bytes(bytes(range(256)) * 40)
    whole = tmp_path / "whole.jpg"
    whole.write_bytes(b"a whole file")
    for length in (1, 3, 100_000, 5_000_000, 7):
        files = [
            Encoded(0, "given", content(length)),
            Encoded(1, "whole", FileRange(str(whole))),
            Encoded(2, "broken.jpg", b"corrupt"),
            Encoded(3, "part", FileRange(str(shard), 1_000, 2_000)),
            Encoded(4, "again", b"\0" * length),
        ]
        ours, our_corrupt = pixels_of(decode_part, files)
        theirs, their_corrupt = pixels_of(processes.decode, files)
        assert np.array_equal(ours, theirs)
        assert our_corrupt == their_corrupt
        assert list(our_corrupt) == [2]
        assert our_corrupt[2][:2] == (CorruptPicture, "broken.jpg")
    processes.end()


def test_parts_of_many_threads_are_not_mixed_up(processes: DecodingProcesses) -> None:
    parts = [
        [
            Encoded(number, "x", content(1 + 997 * number % 30_000))
            for number in range(first, first + 5)
        ]
        for first in range(0, 500, 5)
    ]
    with ThreadPoolExecutor(12) as threads:
        told = list(threads.map(lambda files: pixels_of(processes.decode, files)[0], parts))
    for files, pixels in zip(parts, told, strict=True):
        assert np.array_equal(pixels, pixels_of(decode_part, files)[0])


def test_few_workers_are_the_callers_threads_and_more_are_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding_processes, "MOST_PROCESSES", 6)
    for num_workers, num_lanes, num_threads in (
        (1, 2, 1),
        (4, 2, 4),
        (5, 1, 5),
        (5, 2, 10),
        (9, 2, 12),
    ):
        found = decoding_by(num_workers, MODULES, num_lanes=num_lanes)
        target = np.zeros((1, 8), np.uint8)
        found.decode(decoding.put_process, [Encoded(0, "any", b"")], target)
        is_here = int.from_bytes(target.tobytes(), "big") == os.getpid()
        assert (is_here, found.num_threads) == (num_workers <= MOST_THREADS, num_threads)
        if not is_here:
            owner = found.decode.__self__  # type: ignore[attr-defined]
            assert len(process_ids(owner, 6)) == min(num_workers, 6)
            owner.end()


def test_what_decodes_was_imported_before_the_processes_were_forked(tmp_path: Path) -> None:
    decoding_of = decoding_by(MOST_THREADS + 1, MODULES)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    put = PutCrop(decoder="library", crop_of=center_crop, by_library=decoding.put_and_tell_imports)
    for name in ("a.png", "a.jpg"):
        target = np.zeros((9, 9, 3), np.uint8)
        decoding_of.decode(put, [Encoded(0, name, FileRange(str(tmp_path / name)))], target[None])
        assert target.tobytes().rstrip(b"\0").decode().split() == []
    decoding_of.decode.__self__.end()  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_lanes", [1, 2])
def test_few_requests_go_to_all_processes(num_lanes: int) -> None:
    processes = DecodingProcesses(5, MODULES, num_lanes=num_lanes)
    ids = process_ids(processes, 5)
    assert len(ids) == 5
    assert os.getpid() not in ids


def test_a_large_part_is_asked_for_in_small_ones(processes: DecodingProcesses) -> None:
    number = 3 * MOST_OF_A_REQUEST + 2
    files = [
        Encoded(each, f"{each}", b"corrupt" if each % 19 == 0 else content(50))
        for each in range(number)
    ]
    ours, our_corrupt = pixels_of(decode_part, files)
    theirs, their_corrupt = pixels_of(processes.decode, files)
    assert our_corrupt == their_corrupt
    assert list(our_corrupt) == [0, 19, 38]
    # In the place of a corrupt picture is anything.
    assert np.array_equal(*(np.delete(each, [*our_corrupt], axis=0) for each in (ours, theirs)))


def test_a_part_of_nothing_is_asked_of_nobody(processes: DecodingProcesses) -> None:
    told = processes.decode(decoding.put_process, [], np.zeros((0, 8), np.uint8))
    assert (told.corrupt, told.cpu_s) == ({}, 0)


def test_a_file_that_is_not_there_is_named(processes: DecodingProcesses, tmp_path: Path) -> None:
    file = Encoded(0, "it", FileRange(str(tmp_path / "no.jpg")))
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
    with pytest.raises(TrainingError, match=r"was killed; it had `first\.jpg` and 1 more to do"):
        processes.decode(decoding.put_bytes, files, np.zeros((2, 8), np.uint8))
    num_good = 0
    # In turn to each process' first lane, then to each one's second.
    for _ in range(2 * NUM_PROCESSES):
        try:
            pixels_of(processes.decode, files[1:])
            num_good += 1
        except TrainingError as error:
            assert "it had `second.jpg` to do" in str(error)  # noqa: PT017
    assert num_good == 2 * (NUM_PROCESSES - 1)


def test_what_another_process_cannot_import_is_named_with_its_place(
    processes: DecodingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(target: np.ndarray, file: Encoded) -> None: ...

    put.__module__, put.__qualname__ = "made_up_here", "put"
    module = types.ModuleType("made_up_here")
    module.put = put  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_here", module)
    file = Encoded(0, "it", b"good")
    with pytest.raises(RuntimeError, match="No module named 'made_up_here'"):
        processes.decode(put, [file], np.zeros((1, 8), np.uint8))
    pixels_of(processes.decode, [file])


def test_processes_that_cannot_start_say_why(capfd: pytest.CaptureFixture[str]) -> None:
    processes = DecodingProcesses(NUM_PROCESSES, ("not_there_at_all",))
    with pytest.raises(TrainingError, match=r"ended with exit code 1 \(hint: their error stands"):
        pixels_of(processes.decode, [Encoded(0, "it", b"good")])
    assert "No module named 'not_there_at_all'" in capfd.readouterr().err


@pytest.mark.parametrize("notice", [signal.SIGINT, signal.SIGTERM])
def test_a_notice_to_all_processes_does_not_end_them(
    processes: DecodingProcesses, notice: signal.Signals
) -> None:
    ids = process_ids(processes)
    for each in {*ids, processes._process.pid}:
        os.kill(each, notice)
    assert process_ids(processes) == ids
    assert processes._process.poll() is None


def test_a_signal_to_the_ranks_group_is_the_ranks_alone() -> None:
    """A stop's notice while they start, and the abort of a hang, by which the rank writes its stacks."""
    code = """
import os, signal
from tests.trainer.data.pictures.test_decoding_processes import *
os.setpgid(0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
processes = DecodingProcesses(NUM_PROCESSES, MODULES)
os.killpg(0, signal.SIGTERM)
print(*process_ids(processes), flush=True)
os.killpg(0, signal.SIGABRT)
"""
    done = run_program(code, PYTHONFAULTHANDLER="1")
    ids = {int(each) for each in done.stdout.split()}
    assert len(ids) == NUM_PROCESSES
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.count("Fatal Python error: Aborted") == 1
    wait_for_the_end(ids)


def test_processes_end_with_their_owner_and_leave_nothing_open() -> None:
    gc.collect()
    before = num_open()
    processes = DecodingProcesses(NUM_PROCESSES, MODULES)
    pixels_of(processes.decode, [Encoded(0, "it", b"good")])
    ids = process_ids(processes)
    del processes
    gc.collect()
    wait_for_the_end(ids)
    assert num_open() == before


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit(0)"])
def test_processes_end_with_the_rank_however_it_ends(how: str) -> None:
    code = f"""
import os, sys
from tests.trainer.data.pictures.test_decoding_processes import *
processes = DecodingProcesses(NUM_PROCESSES, MODULES)
print(*process_ids(processes), flush=True)
{how}
"""
    ids = {int(each) for each in run_program(code).stdout.split()}
    assert len(ids) == NUM_PROCESSES
    wait_for_the_end(ids)


def run_program(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
