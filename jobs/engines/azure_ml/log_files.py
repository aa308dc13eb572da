"""Azure ML's log files: whose each is, how far each was read, what has to be read next (pure).

A log only grows, but for two cases: it is begun anew (a restart), and what there was goes on under
another name (`retry_NNN/`) or is gone. So every range that is read begins with the last bytes of
the one before; where they differ, the file is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.contracts.spec import LogLine

# Enough to tell two logs apart: their lines begin with times in microseconds.
OVERLAP = 96
# What one request brings at most, so that one long log does not hold up the others.
LONGEST_RANGE = 4 << 20
# Ranks break longer lines (jobs/rank/log.py); a node may write what it likes.
LONGEST_LINE = 2 << 20
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")
_STAMPS = re.compile(rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ", re.MULTILINE)
_USER = "user_logs/"
# No run has a million ranks; a name may have a thousand digits.
_PROCESS = re.compile(r"std_log(?:_process_([0-9]{1,6}))?\.txt")
_TASK = re.compile(r"std_log_node_([0-9]{1,6})_(chief|worker|ps)\.txt")
_RETRY = re.compile(r"retry_([0-9]{1,6})")


@dataclass(frozen=True, kw_only=True)
class LogName:
    """A rank's log; `retry` counts the restarts before which it was written, 0 for the current."""

    rank: int
    retry: int = 0


def parse_name(name: str, num_ranks: int) -> LogName | None:
    """Read the rank from a log's name below `user_logs/`; None for other logs.

    Parameter servers are numbered after all ranks, as launchers do it.
    """
    if not name.startswith(_USER):
        return None
    folder, _, file = name.removeprefix(_USER).rpartition("/")
    retried = _RETRY.fullmatch(folder)
    if folder and retried is None:
        return None
    retry = int(retried[1]) if retried else 0
    if process := _PROCESS.fullmatch(file):
        return LogName(rank=int(process[1] or 0), retry=retry)
    if task := _TASK.fullmatch(file):
        first = num_ranks if task[2] == "ps" else 0
        return LogName(rank=first + int(task[1]), retry=retry)
    return None


@dataclass(kw_only=True)
class Reading:
    """One log file while it is read: its size as last listed, and how far it was read."""

    name: str
    rank: int
    retry: int = 0
    size: int = 0
    offset: int = 0
    tail: bytes = b""  # of what was read
    rest: bytes = b""  # the last line, while it has no end
    ts: str = ""  # of the last line that had one
    read_at_s: float = 0.0  # when a range of it was last asked for
    former: tuple[int, bytes, bytes, str] | None = None  # where it was when it was begun anew

    @property
    def has_news(self) -> bool:
        """Tell if there is something to read."""
        return self.size != self.offset

    @property
    def place(self) -> tuple[int, bytes, bytes, str]:
        """How far it was read: offset, last bytes, unfinished line, its time."""
        return self.offset, self.tail, self.rest, self.ts

    def next_range(self, longest: int = LONGEST_RANGE) -> tuple[int, int]:
        """Give the range to ask for next: from, up to but without."""
        if self.size < self.offset:
            self.begin_anew()
        return self.offset - len(self.tail), min(self.size, self.offset + longest)

    def begin_anew(self) -> None:
        """Start at offset 0: another file has the same name now."""
        self.former = self.place
        self.offset, self.tail, self.rest = 0, b"", b""

    def go_on(self, offset: int, tail: bytes, rest: bytes, ts: str) -> None:
        """Go on from where another reader was."""
        self.offset, self.tail, self.rest, self.ts = offset, tail, rest, ts

    def take(self, content: bytes, now: str) -> list[LogLine] | None:
        """Decode the whole lines of what `next_range` brought; None if it is another file now.

        It then has been begun anew. `now` stands in for the time of a first line without one.
        """
        overlap = len(self.tail)
        if content[:overlap] != self.tail:
            self.begin_anew()
            return None
        fresh = content[overlap:]
        self.offset += len(fresh)
        self.tail = (self.tail + fresh)[-OVERLAP:]
        if not self.ts:
            # What comes before the first time is not later than it.
            first = _STAMPS.search(self.rest + fresh)
            now = first[1].decode("ascii") if first else now
        *lines, self.rest = (self.rest + fresh).split(b"\n")
        if len(self.rest) > LONGEST_LINE:
            lines.append(self.rest)
            self.rest = b""
        return [self._parse(line, now) for line in lines]

    def last_line(self, now: str) -> list[LogLine]:
        """Decode the last line of a log that grows no more."""
        line, self.rest = self.rest, b""
        return [self._parse(line, now)] if line else []

    def skip(self, start: int, content: bytes) -> None:
        """Go on behind `content`, the log's bytes from `start` to its end."""
        self.offset = start + len(content)
        self.tail = content[-OVERLAP:]
        self.rest = content[content.rfind(b"\n") + 1 :]
        stamps = _STAMPS.findall(content)
        self.ts = stamps[-1].decode("ascii") if stamps else self.ts

    def begin_before(self, since: str, start: int, content: bytes) -> bool:
        """Go on in `content`, the log's bytes from `start` on, where it begins before that time.

        Whether it does.
        """
        found = _STAMPS.search(content, 0 if start == 0 else 1)
        if start and (found is None or found[1].decode("ascii") >= since):
            return False
        self.offset = start + (found.start(1) if start and found else 0)
        return True

    def _parse(self, line: bytes, now: str) -> LogLine:
        ts, text = split_line(line)
        self.ts = ts or self.ts
        return LogLine(ts=self.ts or now, rank=self.rank, text=text)


def split_line(line: bytes) -> tuple[str, str]:
    """Split a line into time and text. Lines without a time are Azure ML's own, or mpirun's."""
    ts = ""
    if _STAMP.match(line):
        ts, line = line[:27].decode("ascii"), line[28:]
    return ts, line.removesuffix(b"\r").decode(errors="replace")


def parse_block(
    content: bytes, rank: int, *, is_first: bool, now: str
) -> tuple[bytes, list[LogLine]]:
    """Split a piece of a log into whole lines, and the start that belongs to the piece before.

    That is all before the first line that has a time: lines without one have that of the line
    before. Where there are LONGEST_RANGE bytes of such lines they are taken as they are.
    """
    content = content[: content.rfind(b"\n") + 1]
    begin = 0
    if not is_first:
        found = _STAMPS.search(content, 1)
        if found is None and len(content) <= LONGEST_RANGE:
            return content, []
        begin = found.start(1) if found else content.find(b"\n") + 1
    reading = Reading(name="", rank=rank)
    return content[:begin], reading.take(content[begin:], now) or []


class Readings:
    """The logs of one job, as listings tell of them; of these ranks only where they are given."""

    def __init__(self, num_ranks: int, *, ranks: Sequence[int] | None = None) -> None:
        self._num_ranks = num_ranks
        self._ranks = None if ranks is None else frozenset(ranks)
        self._files: dict[str, Reading] = {}

    def see(self, listed: Iterable[tuple[str, int]]) -> None:
        """Take a listing: names, beginning with `user_logs/`, and sizes."""
        found = dict(listed)
        for name, reading in self._files.items():
            # What is gone is not asked for.
            reading.size = found.get(name, reading.offset)
        for name in found.keys() - self._files.keys():
            reading = self._meet(name)
            if reading is not None:
                reading.size = found[name]
                self._files[name] = reading

    def due(self, most: int) -> list[Reading]:
        """Choose up to `most` files to read now: those first that have waited longest."""
        news = [each for each in self._files.values() if each.has_news]
        return sorted(news, key=lambda each: (each.read_at_s, *_order(each)))[:most]

    def in_order(self) -> list[Reading]:
        """Order files by rank, those from before a restart first."""
        return sorted(self._files.values(), key=_order)

    def _meet(self, name: str) -> Reading | None:
        parsed = parse_name(name, self._num_ranks)
        if parsed is None or (self._ranks is not None and parsed.rank not in self._ranks):
            return None
        made = Reading(name=name, rank=parsed.rank, retry=parsed.retry)
        if parsed.retry:
            # What was set aside at a restart was read up to here, under the current name.
            for each in self._files.values():
                if (each.rank, each.retry) == (made.rank, 0):
                    made.go_on(*(each.former or each.place))
        return made


def _order(reading: Reading) -> tuple[int, float, str]:
    return reading.rank, reading.retry or float("inf"), reading.name


def merged(lines: Iterable[LogLine]) -> list[LogLine]:
    """Sort lines by time, each rank's in the order it wrote them."""
    return sorted(lines, key=lambda line: (line.ts, line.rank))
