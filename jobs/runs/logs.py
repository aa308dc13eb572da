"""Reading the logs of all ranks of a run directory: merged by time, by byte range, followed.

A line is `<ISO time, UTC, microseconds> <text>`; each rank's file is in order of time, so merging
is a merge of sorted streams, `since` a binary search, and `tail` a read from the end.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import LogLine
from jobs.host.units import parse_duration, utc_text

BLOCK = 1 << 18
# While something happens, and shortly after, the end of a run must be seen at once.
POLL_S = 0.02
IDLE_POLL_S = 0.2
IDLE_AFTER_S = 20.0

_NAME = re.compile(r"rank-(\d+)\.log")
_by_time = attrgetter("ts", "rank")


def read_logs(
    run_dir: Path,
    ranks: Sequence[int] | None = None,
    *,
    since: str | None = None,
    tail: int | None = None,
    grep: re.Pattern[str] | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Iterator[LogLine]:
    """Yield log lines merged by time; of all ranks when `ranks` is None.

    `since` is an ISO time as the lines carry it (see `since_time`), `tail` keeps the last lines
    that match, of all ranks together. With `is_over` the reading goes on as lines are written,
    until `is_over()` is true and the last bytes were read.
    """
    files = _Files(run_dir / "logs", ranks)
    yield from _backlog(files, since, tail, grep)
    if is_over is not None:
        yield from matching(_follow(files, is_over), grep)


def watch_logs(
    run_dir: Path,
    ranks: Sequence[int] | None = None,
    *,
    since: str | None = None,
    tail: int | None = None,
    grep: re.Pattern[str] | None = None,
) -> Iterator[Iterator[LogLine]]:
    """Yield looks without end: first the lines that `read_logs` yields, then what is new in each.

    A look is to be taken to its end before the next one.
    """
    files = _Files(run_dir / "logs", ranks)
    yield _backlog(files, since, tail, grep)
    while True:
        yield matching(files.forwards(), grep)


def _backlog(
    files: _Files, since: str | None, tail: int | None, grep: re.Pattern[str] | None
) -> Iterator[LogLine]:
    backlog = files.backwards(since) if tail is not None else files.forwards(since)
    lines = matching(backlog, grep)
    return lines if tail is None else reversed(list(islice(lines, tail)))


def since_time(text: str, now_s: float) -> str:
    """Convert `--since`: a duration before now (`90s`, `10m`, `2h`, `1d`) or an ISO time.

    Raises LaunchError for anything else.
    """
    ago_s = parse_duration(text)
    try:
        if ago_s is not None:
            return utc_text(datetime.fromtimestamp(now_s - ago_s, UTC))
        return utc_text(datetime.fromisoformat(text))  # without a zone: local time
    except (ValueError, OverflowError, OSError):
        message = f"`{text}` is neither a duration nor a time"
        raise LaunchError(message, hint="--since 10m, or --since 2026-11-21T12:00:00Z") from None


def matching(lines: Iterable[LogLine], grep: re.Pattern[str] | None) -> Iterator[LogLine]:
    """Yield the lines that `grep` finds something in; every line where it is None."""
    return (line for line in lines if grep is None or grep.search(line.text))


def _follow(files: _Files, is_over: Callable[[], bool]) -> Iterator[LogLine]:
    active_s = time.monotonic()
    while True:
        # Looked at first: what is read after the end is all there will be.
        over = is_over()
        new = list(files.forwards())
        yield from new
        if over:
            return
        now_s = time.monotonic()
        if new:
            active_s = now_s
        time.sleep(POLL_S if now_s - active_s < IDLE_AFTER_S else IDLE_POLL_S)


class _Files:
    """The log files of the ranks asked for, each with how far it was read."""

    def __init__(self, folder: Path, ranks: Sequence[int] | None) -> None:
        self._folder = folder
        self._ranks = None if ranks is None else set(ranks)
        self._read: dict[int, int] = {}

    def forwards(self, since: str | None = None) -> Iterator[LogLine]:
        """Yield the whole lines not read yet, oldest first."""
        streams = (
            _lines(path, rank, _first_since(path, start, end, since) if since else start, end)
            for rank, path, start, end in self._advance()
        )
        return heapq.merge(*streams, key=_by_time)

    def backwards(self, since: str | None = None) -> Iterator[LogLine]:
        """Yield the whole lines not read yet, newest first."""
        streams = (
            _lines_backwards(path, rank, start, end, since)
            for rank, path, start, end in self._advance()
        )
        return heapq.merge(*streams, key=_by_time, reverse=True)

    def _advance(self) -> list[tuple[int, Path, int, int]]:
        """Give the byte range of each file that is new, up to its last whole line."""
        found: list[tuple[int, Path, int, int]] = []
        for rank, path in self._paths():
            start = self._read.get(rank, 0)
            try:
                size = path.stat().st_size
                end = _end_of_last_line(path, start, size) if size > start else start
            except FileNotFoundError:
                continue
            self._read[rank] = end
            if end > start:
                found.append((rank, path, start, end))
        return found

    def _paths(self) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 (every 20 ms)
        except FileNotFoundError:
            return []
        matches = ((_NAME.fullmatch(name), name) for name in names)
        numbered = [(int(match[1]), self._folder / name) for match, name in matches if match]
        return [each for each in numbered if self._ranks is None or each[0] in self._ranks]


def _lines(path: Path, rank: int, start: int, end: int) -> Iterator[LogLine]:
    rest = b""
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            block = file.read(min(BLOCK, end - start))
            if not block:
                return
            start += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield _parse(line, rank)


def _lines_backwards(
    path: Path, rank: int, start: int, end: int, since: str | None
) -> Iterator[LogLine]:
    rest = b""
    with path.open("rb") as file:
        while end > start:
            size = min(BLOCK, end - start)
            end -= size
            file.seek(end)
            first, *lines = (file.read(size) + rest).split(b"\n")
            rest = first + b"\n" if end > start else b""
            if end == start:
                lines = [first, *lines]
            for line in reversed(lines):
                if not line:
                    continue
                parsed = _parse(line, rank)
                if since and parsed.ts < since:
                    return
                yield parsed


def _parse(line: bytes, rank: int) -> LogLine:
    ts, _, text = line.decode(errors="replace").partition(" ")
    return LogLine(ts=ts, rank=rank, text=text)


def _end_of_last_line(path: Path, start: int, size: int) -> int:
    """Find the end of the last whole line before `size`; `start` where there is none."""
    with path.open("rb") as file:
        while size > start:
            low = max(start, size - BLOCK)
            file.seek(low)
            at = file.read(size - low).rfind(b"\n")
            if at >= 0:
                return low + at + 1
            size = low
    return start


def _first_since(path: Path, start: int, end: int, since: str) -> int:
    """Find the first line that is not older than `since` (binary search)."""
    wanted = since.encode()
    with path.open("rb") as file:
        low, high = start, end  # the line that begins at low, or after it, is the answer
        while low < high:
            middle = (low + high) // 2
            file.seek(middle)
            begin = middle
            if middle > start:
                file.seek(middle - 1)
                begin = middle - 1 + len(file.readline())
            if begin >= high:
                high = middle
                continue
            file.seek(begin)
            line = file.readline()
            if line[: len(wanted)] < wanted:
                low = begin + len(line)
            else:
                high = middle
        file.seek(low)
        return low


def parse_ranks(text: str, num_logs: int) -> list[int]:
    """Parse the ranks that `0,3`, `0-7` or a mixture names, in order.

    Raises LaunchError for an invalid rank, or a rank that the run does not have.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part)
        if match is None:
            message = f"`--rank {text}`: `{part}` is not a rank"
            raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= num_logs:
            message = f"`--rank {text}`: the run has the ranks 0 to {num_logs - 1}"
            raise LaunchError(message, hint=f"--rank {num_logs - 1}")
        ranks.update(range(first, last + 1))
    if not ranks:
        message = f"`--rank {text}` names no rank"
        raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
    return sorted(ranks)


def parse_pattern(text: str | None) -> re.Pattern[str] | None:
    """Compile the value of `--grep`; raises LaunchError for an invalid one."""
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        message = f"`--grep {text}` is not a regular expression: {error}"
        raise LaunchError(
            message, hint="a plain word needs no quoting; put \\ before ( [ * + ?"
        ) from None
