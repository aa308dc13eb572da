"""Read the logs of all ranks of an Azure ML run: merged by time, by byte range, followed.

While a run is followed its logs are listed every PERIOD_S (one request for up to 2,000 ranks), and of
those that have grown only what is new is read, at most MOST_READ of them at a time. So a terminal
costs the storage account little more than a list a second and a read for each log that grows, whatever
the run's age; with more ranks than MOST_READ that all write all the time, their lines come in turns.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from re import Pattern
from typing import TYPE_CHECKING

from jobs.contracts.errors import Unreached
from jobs.contracts.spec import LogLine, RunHandle
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.log_files import LONGEST_RANGE, Reading, Readings, merged, parse_block
from jobs.engines.azure_ml.names import job_name
from jobs.engines.azure_ml.status import PATIENCE_S
from jobs.host import console
from jobs.host.units import now
from jobs.runs.logs import matching

if TYPE_CHECKING:
    from jobs.engines.azure_ml.runs import CloudRuns

# With the time that a list and a read take, a line is shown some 1.2 s after it was written.
PERIOD_S = 0.75
# Logs read in one period; the rest waits for the next one.
MOST_READ = 50
# So often the last bytes of an attempt are asked for that do not come; then it is ended without them.
MOST_VAIN = 5
# What is read at once of a log that is read from its end, and what of all together.
BLOCK = 256 << 10
_MEMORY = 128 << 20
_USER_LOGS = "user_logs/"
_by_time = attrgetter("ts", "rank")


def read_logs(
    runs: CloudRuns,
    handle: RunHandle,
    ranks: Sequence[int] | None,
    *,
    follow: bool,
    since: str | None = None,
    tail: int | None = None,
    grep: Pattern[str] | None = None,
) -> Iterator[LogLine]:
    """Yield the ranks' lines, of all attempts; see `Engine.logs`."""
    found = _attempts(runs, handle, ranks, since)
    yield from _backlog(found, since, tail, grep)
    if follow and found:
        yield from matching(found[-1].follow(), grep)


def watch_logs(
    runs: CloudRuns,
    handle: RunHandle,
    ranks: Sequence[int] | None,
    *,
    since: str | None = None,
    tail: int | None = None,
    grep: Pattern[str] | None = None,
) -> Iterator[Iterator[LogLine]]:
    """Yield looks at the ranks' lines, of all attempts; see `Engine.watch`."""
    found = _attempts(runs, handle, ranks, since)
    yield _backlog(found, since, tail, grep)
    over: set[int] = set()
    while True:
        known = {each.number for each in found}
        found += [
            each for each in _attempts(runs, handle, ranks, since) if each.number not in known
        ]
        yield matching(_news_of(found, over), grep)


def _attempts(
    runs: CloudRuns, handle: RunHandle, ranks: Sequence[int] | None, since: str | None
) -> list[AttemptLogs]:
    spec = runs.record(handle).plan.spec
    found: list[AttemptLogs] = []
    for attempt in runs.attempts(handle):
        if not attempt.status and attempt.standing.state.is_terminal():
            continue  # Azure ML has no such job
        # The end of an attempt is Azure's time, as are those of its lines.
        if since is None or attempt.ended is None or attempt.ended > since:
            readings = Readings(spec.world_size, ranks=ranks)
            found.append(AttemptLogs(runs, handle, attempt.number, readings))
    return found


def _backlog(
    found: Sequence[AttemptLogs],
    since: str | None,
    tail: int | None,
    grep: Pattern[str] | None,
) -> Iterator[LogLine]:
    for each in found:
        each.look()
    if tail is None:
        return matching(chain.from_iterable(each.lines(since) for each in found), grep)
    newest_first = chain.from_iterable(each.last_lines(since) for each in reversed(found))
    return reversed(list(islice(matching(newest_first, grep), tail)))


def _news_of(found: Sequence[AttemptLogs], over: set[int]) -> Iterator[LogLine]:
    """Yield what is new in the attempts that are not among those that are `over`, which grow."""
    for each in found:
        if each.number not in over:
            lines, is_over = each.news()
            yield from lines
            if is_over:
                over.add(each.number)


class AttemptLogs:
    """The ranks' logs of one attempt."""

    def __init__(
        self, runs: CloudRuns, handle: RunHandle, attempt: int, readings: Readings
    ) -> None:
        self._runs, self._handle = runs, handle
        self.number = attempt
        self._job = job_name(handle.id, attempt)
        self._readings = readings

    def look(self) -> None:
        """List the logs with their lengths."""
        start = len(job_prefix(self._job))
        listed = self._runs.artifacts.list(self._job, _USER_LOGS)
        self._readings.see((blob.name[start:], blob.bytes) for blob in listed)

    def lines(self, since: str | None) -> Iterator[LogLine]:
        """Yield the lines of the last listing, by time."""
        files = self._readings.in_order()
        if since is not None:
            self._skip_to(since, files)
        by_rank: dict[int, list[Reading]] = {}
        for reading in files:
            by_rank.setdefault(reading.rank, []).append(reading)
        longest = _share(len(by_rank), LONGEST_RANGE)
        is_over = self._is_over()
        # The first ranges all at once: one after the other they take as long as there are ranks.
        firsts = [each[0] for each in by_rank.values()]
        begun = list(self._read(firsts, longest))
        streams = [
            chain(first, self._lines_of(each, longest, is_over=is_over))
            for first, each in zip(begun, by_rank.values(), strict=True)
        ]
        merged_lines = heapq.merge(*streams, key=_by_time)
        return (line for line in merged_lines if since is None or line.ts >= since)

    def last_lines(self, since: str | None) -> Iterator[LogLine]:
        """Yield the lines of the last listing, newest first; reading continues after them."""
        files = self._readings.in_order()
        block = _share(len(files), BLOCK)
        ends = [(each, max(each.size - block, 0), each.size) for each in files]
        blocks = self._runs.artifacts.read_parts(
            self._job, [(each.name, start, end) for each, start, end in ends]
        )
        streams: list[Iterator[LogLine]] = []
        for (reading, start, _), content in zip(ends, blocks, strict=True):
            reading.skip(start, content)
            streams.append(self._backwards(reading, start, content, block))
        for line in heapq.merge(*streams, key=_by_time, reverse=True):
            if since is not None and line.ts < since:
                return
            yield line

    def follow(self) -> Iterator[LogLine]:
        """Yield lines written after the last listing, until the attempt is over."""
        silent_since_s: float | None = None
        while True:
            began_s = time.monotonic()
            try:
                lines, is_over = self.news()
            except Unreached as error:
                silent_since_s = _wait_on(error, silent_since_s)
            else:
                silent_since_s = None
                yield from lines
                if is_over:
                    return
            time.sleep(max(began_s + PERIOD_S - time.monotonic(), 0.0))

    def news(self) -> tuple[list[LogLine], bool]:
        """List the logs and read what is new in them; tells whether the attempt is over, with all read."""
        # Looked at first: what is read after the end is all there will be.
        is_over = self._is_over()
        self.look()
        return (self._rest() if is_over else self._news()), is_over

    def _is_over(self) -> bool:
        attempts = self._runs.attempts(self._handle)
        return attempts[-1].number > self.number or attempts[-1].standing.state.is_terminal()

    def _news(self) -> list[LogLine]:
        due = self._readings.due(MOST_READ)
        return merged(chain.from_iterable(self._read(due, LONGEST_RANGE)))

    def _rest(self) -> list[LogLine]:
        """Read the rest of each log once the attempt is over."""
        lines: list[LogLine] = []
        num_vain = 0
        while num_vain < MOST_VAIN and (due := self._readings.due(MOST_READ)):
            before = [each.offset for each in due]
            lines += chain.from_iterable(self._read(due, LONGEST_RANGE))
            if [each.offset for each in due] == before:
                num_vain += 1
                time.sleep(PERIOD_S)
        for reading in self._readings.in_order():
            lines += reading.last_line(now())
        return merged(lines)

    def _read(self, readings: Sequence[Reading], longest: int) -> Iterator[list[LogLine]]:
        """Read one range of each, side by side."""
        prefix_ranges = [(each.name, *each.next_range(longest)) for each in readings]
        contents = self._runs.artifacts.read_parts(self._job, prefix_ranges)
        for reading, content in zip(readings, contents, strict=True):
            reading.read_at_s = time.monotonic()
            yield reading.take(content, now()) or []

    def _lines_of(
        self, files: Iterable[Reading], longest: int, *, is_over: bool
    ) -> Iterator[LogLine]:
        for reading in files:
            while reading.has_news:
                before = reading.offset
                for lines in self._read([reading], longest):
                    yield from lines
                if reading.offset <= before:
                    break  # it was cut off or begun anew meanwhile: that is for the next look
            if is_over:
                yield from reading.last_line(now())

    def _backwards(
        self, reading: Reading, start: int, content: bytes, block: int
    ) -> Iterator[LogLine]:
        """Lines before the end of `content`, which begins at `start`, newest first."""
        while True:
            rest, lines = parse_block(content, reading.rank, is_first=start == 0, now=now())
            yield from reversed(lines)
            if start == 0:
                return
            end, start = start, max(start - block, 0)
            (earlier,) = self._runs.artifacts.read_parts(self._job, [(reading.name, start, end)])
            if len(earlier) < end - start:
                return  # it was begun anew
            content = earlier + rest

    def _skip_to(self, since: str, files: Sequence[Reading]) -> None:
        """Have each read on from some place before the first line that is not older."""
        wanted = [(each, each.size) for each in files]
        span = _share(len(files), BLOCK)
        block = span
        while wanted:
            starts = [max(size - span, 0) for _, size in wanted]
            parts = [
                (each.name, start, min(start + block, each.size))
                for (each, _), start in zip(wanted, starts, strict=True)
            ]
            contents = self._runs.artifacts.read_parts(self._job, parts)
            left: list[tuple[Reading, int]] = []
            for (each, size), start, content in zip(wanted, starts, contents, strict=True):
                if not each.begin_before(since, start, content):
                    left.append((each, size))
            wanted, span = left, span * 4


def _share(num_files: int, most: int) -> int:
    """Share the memory for logs that are read from their end among the files."""
    return max(min(most, _MEMORY // max(num_files, 1)), 16 << 10)


def _wait_on(error: Unreached, silent_since_s: float | None) -> float:
    """Go on without logs for a while; since when that is."""
    now_s = time.monotonic()
    if silent_since_s is None:
        console.warn(
            f"{error.message}; trying again for {PATIENCE_S / 60:.0f} min; the run goes on"
        )
        return now_s
    if now_s - silent_since_s > PATIENCE_S:
        raise error
    return silent_since_s
