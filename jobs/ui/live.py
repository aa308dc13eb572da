"""Sends the lines of a run to its page as they are written, and again those that a lost connection lost."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from re import Pattern
from typing import Literal
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from jobs.calling import heard
from jobs.contracts.errors import LaunchError, NotFound, Unreached
from jobs.contracts.spec import LogLine, RunHandle
from jobs.engines.base import Attended, Engine
from jobs.host.units import utc_text
from jobs.ui.edge import or_bug
from jobs.ui.reading import Reading

# Lines of before that a page begins with, and that one event holds at most.
TAIL, MOST_AT_ONCE = 2000, 500
# Characters of a line that a page gets; of an event about so many (a page reads it whole).
LONGEST_LINE, MOST_CHARACTERS = 10_000, 200_000
# Between two looks: while lines come, and once none has come for a while; a store costs a request.
PAUSE_S, LONGEST_PAUSE_S, PAUSE_OF_STORE_S = 0.1, 0.5, 2.0
# A browser that hears nothing may think that nobody is there.
SILENCE_S = 15.0
# A browser opens six connections to a host. So many streams stay; another ends once it has told what is
# there, comes again, and stays when there is room: two connections are left for everything else.
MOST_STREAMS = 4
# After which a browser connects again: one whose connection broke off, and one whose turn was over.
RETRY_MS, TURN_MS = 1000, 2000
# Ranks' lines are written by several nodes, whose clocks differ.
_LATE = timedelta(seconds=10)
_NUMBER = re.compile(r"[0-9]{1,9}")
# Of a look: look again at once, after a while, or no more.
Then = Literal["more", "wait", "over"]


class Position:
    """How far the lines of each rank were sent: the last one's time, and how many of that time.

    Its text is the id of an event, which a browser sends when it connects again.
    """

    def __init__(self, text: str = "") -> None:
        self._sent: dict[int, tuple[str, int]] = {}
        # What is older was left out on purpose.
        floor, _, ranks = text.partition(";")
        self._floor = unquote(floor)
        for part in ranks.split(",") if ranks else ():
            rank, _, rest = part.partition("=")
            ts, _, number = rest.rpartition("~")
            if _NUMBER.fullmatch(rank) and _NUMBER.fullmatch(number):
                self._sent[int(rank)] = (unquote(ts), int(number))

    def __str__(self) -> str:
        """Write it in one line, whatever a log has in the place of a time."""
        ranks = ",".join(
            f"{rank}={quote(ts, safe=':')}~{number}" for rank, (ts, number) in self._sent.items()
        )
        return f"{quote(self._floor, safe=':')};{ranks}"

    @property
    def is_beginning(self) -> bool:
        """Tell whether no line was sent."""
        return not self._sent

    @property
    def since(self) -> str | None:
        """The time from which on lines may be missing; None where none was sent."""
        if not self._sent:
            return None
        try:
            first = datetime.fromisoformat(min(ts for ts, _ in self._sent.values()))
            return utc_text(first - _LATE)
        except (ValueError, OverflowError):
            return None

    def copy(self) -> Position:
        """Give one that stays as this is now."""
        made = Position()
        made._floor, made._sent = self._floor, dict(self._sent)
        return made

    def begin(self, lines: list[LogLine]) -> None:
        """Begin with the run's last lines; where there are TAIL of them, older ones are never sent."""
        if len(lines) == TAIL:
            self._floor = lines[0].ts

    def unsent(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Leave out what was sent; what is yielded counts as sent."""
        sent, seen = dict(self._sent), dict.fromkeys(self._sent, 0)
        for line in lines:
            last, number = sent.get(line.rank, (self._floor, 0))
            if line.ts < last:
                continue
            if line.ts == last and line.rank in seen:
                seen[line.rank] += 1
                if seen[line.rank] <= number:
                    continue
            yield self.sending(line)

    def sending(self, line: LogLine) -> LogLine:
        """Count a line as sent, and give it."""
        before, count = self._sent.get(line.rank, ("", 0))
        self._sent[line.rank] = (line.ts, count + 1 if line.ts == before else 1)
        return line


@dataclass(kw_only=True)
class Watched:
    """The lines of a run that a page watches, over one connection."""

    engine: Engine
    handle: RunHandle
    ranks: list[int] | None
    pattern: Pattern[str] | None
    position: Position
    # Whether its folder is on this machine; one on Azure may not be yet.
    is_here: bool
    _looks: Iterator[Iterator[LogLine]] | None = None
    # Of the look that has not come to its end: the rest.
    _lines: Iterator[LogLine] | None = None
    _is_over: bool = False
    _is_last: bool = False

    def look(self) -> tuple[list[LogLine], Then]:
        """Read what is new, as much as one event holds; tells what comes after it.

        Raises NotFound for a removed run, and what the engine raises; after Unreached the next look
        goes on after the last line that a look gave.
        """
        self._require_folder()
        before = self.position.copy()
        try:
            with heard():
                if self._lines is None:
                    # Looked at first: what is read after the end is all there will be.
                    self._is_over = self.engine.store.status(self.handle).state.is_terminal()
                    # The first look may pass a last line over that has no end.
                    self._is_last = self._is_over and self._looks is not None
                    self._lines = self._next_look()
                found, is_full = _for_one_event(self._lines)
        except Unreached:  # lines of this look were counted, and are not sent
            self._looks, self._lines, self.position = None, None, before
            raise
        except OSError as error:  # as of a run that is being removed
            message = f"the lines of run {self.handle.id} cannot be read: {error.strerror}"
            raise NotFound(message, hint="launch ls") from error
        if is_full:
            return found, "more"
        self._lines = None
        if self._is_last and not found:
            self._require_folder()  # without it a run looks as if it were over
            return found, "over"
        return found, "more" if self._is_over else "wait"

    def _require_folder(self) -> None:
        if self.is_here and not Path(self.handle.run_dir).is_dir():
            message = f"run {self.handle.id} was removed"
            raise NotFound(message, hint="launch ls")

    def _next_look(self) -> Iterator[LogLine]:
        position = self.position
        if self._looks is not None:
            return map(position.sending, next(self._looks))
        since, is_beginning = position.since, position.is_beginning
        self._looks = self.engine.watch(
            self.handle,
            self.ranks,
            since=since,
            tail=None if since else TAIL,
            grep=self.pattern,
        )
        lines = next(self._looks)
        if since is None:
            last = list(lines)
            position.begin(last)
            lines = iter(last)
        # Where the clock of a node was set back, the newest lines are not the latest.
        return map(position.sending, lines) if is_beginning else position.unsent(lines)


def _for_one_event(lines: Iterator[LogLine]) -> tuple[list[LogLine], bool]:
    """Take lines, the longest cut, until an event is full; tells whether it is."""
    found: list[LogLine] = []
    num_characters = 0
    for line in lines:
        found.append(_cut(line))
        num_characters += len(found[-1].text)
        if len(found) == MOST_AT_ONCE or num_characters >= MOST_CHARACTERS:
            return found, True
    return found, False


def _cut(line: LogLine) -> LogLine:
    num_more = len(line.text) - LONGEST_LINE
    if num_more <= 0:
        return line
    text = f"{line.text[:LONGEST_LINE]} [{num_more} more characters]"
    return LogLine(ts=line.ts, rank=line.rank, text=text)


class Turns:
    """How many streams stay."""

    def __init__(self) -> None:
        self.num_staying = 0

    @contextmanager
    def turn(self) -> Generator[bool]:
        """Tell whether a stream may stay; until the end it counts as one that does."""
        stays = self.num_staying < MOST_STREAMS
        self.num_staying += stays
        try:
            yield stays
        finally:
            self.num_staying -= stays


def lines_of(reading: Reading) -> Callable[[Request], Awaitable[Response]]:
    """Give the page that streams: `rank` and `grep` choose lines as `launch logs` does.

    It goes on after the event that `Last-Event-ID` names, or `last`, which a page can send.
    """
    turns = Turns()

    async def answer(request: Request) -> Response:
        try:
            watched = await run_in_threadpool(or_bug, lambda: _open(reading, request))
        except Unreached as error:  # with another status the browser would not come again
            told = f"retry: {TURN_MS}\n\n{_event('late', error.message)}"
            return Response(told, media_type="text/event-stream")
        except LaunchError as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.BAD_REQUEST
            return PlainTextResponse(error.message, status)
        return StreamingResponse(_events(watched, request, turns), media_type="text/event-stream")

    return answer


def open_run_at(reading: Reading, place: str, run: str) -> tuple[Engine, RunHandle]:
    """Open a run of an environment that is shown; raises NotFound where there is none."""
    from jobs.commands.options import open_environment, open_run

    name, _, value = reading.words_for(place)[0].partition("=")
    with heard():
        is_file = name == "--env"
        environment = open_environment("" if is_file else value, Path(value) if is_file else None)
        return open_run(run, environment)


def _open(reading: Reading, request: Request) -> Watched:
    from jobs.runs.logs import parse_pattern, parse_ranks

    asked = request.query_params
    engine, handle = open_run_at(reading, request.path_params["place"], request.path_params["run"])
    with heard():
        num_logs = engine.store.record(handle).plan.spec.num_processes
    return Watched(
        engine=engine,
        handle=handle,
        ranks=parse_ranks(asked["rank"], num_logs) if asked.get("rank") else None,
        pattern=parse_pattern(asked.get("grep") or None),
        position=Position(request.headers.get("last-event-id") or asked.get("last", "")),
        is_here=Path(handle.run_dir).is_dir(),
    )


async def _events(watched: Watched, request: Request, turns: Turns) -> AsyncIterator[str]:
    """Yield events of lines; ends with the run, the connection, or the stream's turn."""
    shortest_s = PAUSE_OF_STORE_S if isinstance(watched.engine, Attended) else PAUSE_S
    pause_s, silent_s = shortest_s, 0.0
    is_late = False
    with turns.turn() as stays:
        yield f"retry: {RETRY_MS if stays else TURN_MS}\n\n"
        while not await request.is_disconnected():
            try:
                lines, then = await run_in_threadpool(or_bug, watched.look)
            except Unreached as error:
                yield _event("late", error.message)
                lines, then, is_late = [], "wait", True
            except LaunchError as error:
                yield _event("lost", str(error))
                return
            else:
                if is_late:
                    yield _event("found")
                is_late = False
            if lines:
                told = json.dumps([[each.rank, each.ts, each.text] for each in lines])
                yield f"id: {watched.position}\ndata: {told}\n\n"
                pause_s, silent_s = shortest_s, 0.0
            elif silent_s >= SILENCE_S:
                yield ": nothing new\n\n"
                silent_s = 0.0
            if then == "more":
                continue
            if then == "over" or not stays:
                yield _event("over" if then == "over" else "turn")
                return
            await asyncio.sleep(pause_s)
            silent_s += pause_s
            pause_s = max(shortest_s, min(pause_s * 1.2, LONGEST_PAUSE_S))


def _event(name: str, told: str | None = None) -> str:
    return f"event: {name}\ndata: {json.dumps(told)}\n\n"
