"""`launch data push` against azcopy and the SDK, to a sink on a core of its own (U1-U5, growth)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tests.bench.azcopy import CONCURRENCY, Azcopy, installed_azcopy
from tests.bench.pairs import Command, Timing, median_wall_s, time_once
from tests.bench.sink import CLIENT_CORE, Sink, running_sink
from tests.bench.table import Row
from tests.bench.workspace import launch_program

PICTURE_BYTES = 110_000
SHARD_BYTES = 128 << 20
PIECE_BYTES = 8 << 20
LARGE_BYTES = 2 << 30
DELAY_MS = 20
NUM_FEW, NUM_MANY = 2_000, 10_000
GROWTH_COUNTS = (1_000, 10_000, 100_000)
GROWTH_BYTES = 4_000
# With it the store keeps each file's MD5, as it does with ours.
MD5 = "--put-md5"
# A process counts the memory of the one that it was forked from as its own: so a small one, in
# between, notes the peak of the command that it starts.
NOTE_PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "a") as file:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10, file=file)
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True)
class Push:
    """One way to send a folder, and to do it `again` when nothing has changed.

    With `has_warm_up` it runs once before the first round, uncounted.
    """

    name: str
    has_warm_up: bool = False
    command: Callable[[Sink], Command]
    again: Callable[[Sink], Command] | None = None


def push_rows(project: Path, rounds: int) -> list[Row]:
    """Generate files, push them in turn with the peers, and compare."""
    azcopy = installed_azcopy(project)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        many = _make_files(scratch / "many", NUM_MANY, PICTURE_BYTES)
        few = _make_files(scratch / "few", NUM_FEW, PICTURE_BYTES)
        shards = _make_shards(scratch / "shards")
        rows += _delayed_rows(project, rounds, few, many, shards)
        rows += _small_file_rows(project, rounds, many, azcopy)
        rows += _large_file_rows(project, rounds, scratch / "large", azcopy)
    rows += _growth_rows(project, rounds)
    return rows


# --- The rows -------------------------------------------------------------------------------


def _delayed_rows(project: Path, rounds: int, few: Path, many: Path, shards: Path) -> list[Row]:
    ours = _launch(project, few, "U1")
    serial = _sdk(project, "serial", few)
    packed = _launch(project, shards, "U4 shards")
    single = _launch(project, many, "U4 files")
    timings = _in_turn(project, [ours, packed, single], rounds=rounds, delay_ms=DELAY_MS)
    # Once: the delay decides it, and it takes a minute.
    timings |= _in_turn(project, [serial], rounds=1, delay_ms=DELAY_MS)
    our_s, serial_s, packed_s, single_s = (
        median_wall_s(timings[each.name]) for each in (ours, serial, packed, single)
    )
    serial_rate, packed_rate = NUM_FEW / serial_s, NUM_MANY / packed_s
    packed_text = f"{packed_s:.2f} s ({packed_rate:,.0f} pictures/s)"
    return [
        Row(
            goal=f"U1: push of {NUM_FEW:,} files of 110 kB, {DELAY_MS} ms away: rate",
            ours=f"{our_s:.2f} s",
            peer=f"serial loop over the SDK {serial_s:.1f} s",
            ratio=serial_s / our_s,
            at_least=12.0,
        ),
        Row(
            goal=f"U4: {NUM_MANY:,} pictures, {DELAY_MS} ms away, as shards of 128 MiB: rate",
            ours=packed_text,
            peer=f"U1's serial loop {serial_rate:,.0f} pictures/s",
            ratio=packed_rate / serial_rate,
            at_least=10.0,
        ),
        Row(
            goal="U4: the same against our own push of them as files: rate",
            ours=packed_text,
            peer=f"{single_s:.2f} s ({NUM_MANY / single_s:,.0f} pictures/s)",
            ratio=single_s / packed_s,
            at_least=10.0,
        ),
    ]


def _small_file_rows(project: Path, rounds: int, many: Path, azcopy: Azcopy) -> list[Row]:
    ours = _launch(project, many, "U2", twice=True)
    known = _launch(project, many, "U2 scanned before", is_scanned=True)
    peer = _azcopy(azcopy, many, "azcopy")
    checked = _azcopy(azcopy, many, f"azcopy {MD5}", MD5, sync=True)
    pool = _sdk(project, "pool", many)
    timings = _in_turn(project, [ours, known, peer, checked], rounds=rounds)
    timings |= _in_turn(project, [pool], rounds=1)
    both = _in_turn(project, [ours, peer], rounds=rounds, is_pinned=False)
    our_both_s, peer_both_s = (median_wall_s(both[each.name]) for each in (ours, peer))
    first_s, again_s = (median_wall_s(timings[name]) for name in (ours.name, f"{ours.name} again"))
    known_s, peer_s = median_wall_s(timings[known.name]), median_wall_s(timings[peer.name])
    checked_s, pool_s = median_wall_s(timings[checked.name]), median_wall_s(timings[pool.name])
    sync_s = median_wall_s(timings[f"{checked.name} again"])
    limit = _raw_rate(project, many, rounds)
    ours_text = (
        f"{first_s:.2f} s ({NUM_MANY / first_s:,.0f} files/s; {known_s:.2f} s where the files' "
        f"hashes are known; bare sockets {limit:,.0f} files/s)"
    )
    return [
        Row(
            goal=f"U2: push of {NUM_MANY:,} files of 110 kB on one core: rate",
            ours=ours_text,
            peer=f"azcopy, concurrency {CONCURRENCY}, {peer_s:.2f} s ({checked_s:.2f} s with {MD5})",
            ratio=peer_s / first_s,
            at_least=0.5,
        ),
        Row(
            goal="U2: the same where two cores are free, one the sink's too: rate",
            ours=f"{our_both_s:.2f} s",
            peer=f"azcopy {peer_both_s:.2f} s",
            ratio=peer_both_s / our_both_s,
            at_least=0.8,
        ),
        Row(
            goal="U2: the same: rate",
            ours=f"{first_s:.2f} s",
            peer=f"32 threads over the SDK {pool_s:.2f} s",
            ratio=pool_s / first_s,
            at_least=1.5,
        ),
        Row(
            goal="U5: the same again, nothing changed",
            ours=f"{again_s:.2f} s (azcopy sync {sync_s:.2f} s)",
            peer=f"first push {first_s:.2f} s",
            ratio=again_s / first_s,
            at_most=0.05,
        ),
    ]


def _large_file_rows(project: Path, rounds: int, folder: Path, azcopy: Azcopy) -> list[Row]:
    _make_files(folder, 1, LARGE_BYTES)
    ours = _launch(project, folder, "U3")
    known = _launch(project, folder, "U3 scanned before", is_scanned=True)
    plain = _azcopy(azcopy, folder, "azcopy, 2 GiB")
    checked = _azcopy(azcopy, folder, f"azcopy {MD5}, 2 GiB", MD5)
    sdk = _sdk(project, "serial", folder)
    timings = _in_turn(project, [ours, known, plain, checked, sdk], rounds=rounds, is_pinned=False)
    our_s, known_s, plain_s, checked_s, sdk_s = (
        median_wall_s(timings[each.name]) for each in (ours, known, plain, checked, sdk)
    )
    return [
        Row(
            goal="U3: push of one file of 2 GiB: rate",
            ours=f"{our_s:.2f} s ({known_s:.2f} s where its hashes are known)",
            peer=f"azcopy {MD5} {checked_s:.2f} s ({plain_s:.2f} s without)",
            ratio=checked_s / our_s,
            at_least=0.9,
        ),
        Row(
            goal="U3: the same: rate",
            ours=f"{our_s:.2f} s",
            peer=f"`upload_blob(max_concurrency=1)` {sdk_s:.2f} s",
            ratio=sdk_s / our_s,
            at_least=1.0,
        ),
    ]


def _growth_rows(project: Path, rounds: int) -> list[Row]:
    per_file_s: dict[int, float] = {}
    peaks: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        start_s, _ = _growth(project, scratch, 1, rounds)
        for count in GROWTH_COUNTS:
            times = rounds if count < max(GROWTH_COUNTS) else 1
            wall_s, peaks[count] = _growth(project, scratch, count, times)
            per_file_s[count] = (wall_s - start_s) / count
    least, most = min(GROWTH_COUNTS), max(GROWTH_COUNTS)
    goal = f"Growth: push of {most:,} files against {least:,}"
    return [
        Row(
            goal=f"{goal}: time of a file, start taken off",
            ours=f"{1e3 * per_file_s[most]:.3f} ms",
            peer=", ".join(f"{n:,} files {1e3 * s:.3f} ms" for n, s in per_file_s.items()),
            ratio=per_file_s[most] / per_file_s[least],
            at_most=1.2,
        ),
        Row(
            goal=f"{goal}: peak memory",
            ours=f"{peaks[most] / 2**20:.0f} MiB",
            peer=", ".join(f"{n:,} files {peak / 2**20:.0f} MiB" for n, peak in peaks.items()),
            ratio=peaks[most] / peaks[least],
            at_most=1.2,
        ),
    ]


def _growth(project: Path, scratch: Path, count: int, rounds: int) -> tuple[float, float]:
    """Push so many files; gives the wall seconds and the peak memory."""
    folder = _make_files(scratch / str(count), count, GROWTH_BYTES)
    notes = scratch / f"{count}.peaks"
    push = _launch(project, folder, f"growth {count:,}")

    def noted(sink: Sink) -> Command:
        command = push.command(sink)
        noting = [sys.executable, "-S", "-c", NOTE_PEAK, str(notes)]
        return replace(command, argv=[*noting, *command.argv])

    timings = _in_turn(project, [replace(push, command=noted)], rounds=rounds)[push.name]
    return median_wall_s(timings), median(int(peak) for peak in notes.read_text().split())


# --- The ways to send -----------------------------------------------------------------------


def _launch(
    project: Path, folder: Path, name: str, *, twice: bool = False, is_scanned: bool = False
) -> Push:
    """Ours, typed for the first time; `is_scanned`: with the hashes of an earlier push at hand."""

    def command(sink: Sink) -> Command:
        # Hashes that were found before are kept below XDG_CACHE_HOME: gone with each sink.
        cache = folder.with_name(f"{folder.name}.cache") if is_scanned else sink.environment.parent
        argv = [str(launch_program(project)), "data", "push", str(folder), "bench"]
        return Command(
            name=name,
            argv=[*argv, "--env", str(sink.environment)],
            env={"XDG_CACHE_HOME": str(cache)},
        )

    again = command if twice else None
    return Push(name=name, command=command, again=again, has_warm_up=is_scanned)


def _azcopy(azcopy: Azcopy, folder: Path, name: str, *options: str, sync: bool = False) -> Push:
    """Azcopy as its guide tells for small files: no look at the length of what arrived."""

    def copy(sink: Sink) -> Command:
        url = sink.sas_url("bench")
        quick = ["--recursive", "--check-length=false", *options]
        return azcopy.upload(name, "copy", folder, url, *quick)

    def again(sink: Sink) -> Command:
        url = sink.sas_url(f"bench/{folder.name}")
        return azcopy.upload(name, "sync", folder, url, "--recursive", *options)

    return Push(name=name, command=copy, again=again if sync else None)


def _sdk(project: Path, way: str, folder: Path) -> Push:
    def command(sink: Sink) -> Command:
        python = project / ".venv" / "bin" / "python"
        argv = [str(python), "-m", "tests.bench.sdk_pushes", way, sink.container_url, str(folder)]
        return Command(name=way, argv=argv, cwd=project)

    return Push(name=way, command=command)


# --- Measuring ------------------------------------------------------------------------------


def _in_turn(
    project: Path,
    pushes: Sequence[Push],
    *,
    rounds: int,
    delay_ms: int = 0,
    is_pinned: bool = True,
) -> dict[str, list[Timing]]:
    """Time each push once a round, to an empty sink; a second run of it is named `... again`."""
    timings: dict[str, list[Timing]] = {}
    for number in range(-1, rounds):
        for push in pushes:
            if number < 0 and not push.has_warm_up:
                continue
            with running_sink(project, delay_ms=delay_ms) as sink:
                runs = {push.name: push.command}
                if push.again is not None:
                    runs[f"{push.name} again"] = push.again
                for name, command in runs.items():
                    timing = time_once(_pinned(command(sink)) if is_pinned else command(sink))
                    if number < 0:
                        continue
                    timings.setdefault(name, []).append(timing)
                    print(
                        f"  round {number + 1}/{rounds} {name}: {timing.wall_s:.2f} s wall, "
                        f"{timing.cpu_s:.2f} s cpu",
                        file=sys.stderr,
                    )
    return timings


def _pinned(command: Command) -> Command:
    return replace(command, argv=["taskset", "-c", str(CLIENT_CORE), *command.argv])


def _raw_rate(project: Path, folder: Path, rounds: int) -> float:
    rates: list[float] = []
    for _ in range(rounds):
        with running_sink(project) as sink:
            python = str(project / ".venv" / "bin" / "python")
            argv = [python, "-m", "tests.bench.raw_puts", sink.endpoint, str(folder)]
            pinned = ["taskset", "-c", str(CLIENT_CORE), *argv]
            done = subprocess.run(pinned, cwd=project, check=True, capture_output=True, text=True)
            rates.append(float(done.stdout))
    return median(rates)


def _make_files(folder: Path, count: int, size: int) -> Path:
    """Random bytes in folders of 1,000 files."""
    for number in range(count):
        part = folder / f"{number // 1000:04}"
        if number % 1000 == 0:
            part.mkdir(parents=True)
        with (part / f"{number:08}").open("wb") as file:
            for start in range(0, size, PIECE_BYTES):
                file.write(os.urandom(min(PIECE_BYTES, size - start)))
    return folder


def _make_shards(folder: Path) -> Path:
    """As many bytes as NUM_MANY pictures, in files of 128 MiB and one with the rest."""
    total = NUM_MANY * PICTURE_BYTES
    _make_files(folder, total // SHARD_BYTES, SHARD_BYTES)
    (folder / "rest").write_bytes(os.urandom(total % SHARD_BYTES))
    return folder
