"""Sends the lines of a run to its page as they are written, and again those that a lost connection lost."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from re import Pattern

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from jobs.calling import heard
from jobs.contracts.errors import LaunchError, NotFound
from jobs.contracts.spec import LogLine, RunHandle
from jobs.engines.base import Attended, Engine
from jobs.host.units import utc_text
from jobs.ui.reading import Reading

# Lines of before that a page begins with, and that one event holds at most.
TAIL, MOST_AT_ONCE = 2000, 500
# Between two looks: while lines come, and once none has come for a while; a store costs a request.
PAUSE_S, LONGEST_PAUSE_S, PAUSE_OF_STORE_S = 0.1, 0.5, 2.0
# A browser that hears nothing may think that nobody is there.
SILENCE_S = 15.0
# Ranks' lines are written by several nodes, whose clocks differ.
_LATE = timedelta(seconds=10)


class Position:
    """How far the lines of each rank were sent: the last one's time, and how many of that time.

    Its text is the id of an event, which a browser sends when it connects again.
    """

    def __init__(self, text: str = "") -> None:
        self._sent: dict[int, tuple[str, int]] = {}
        # What is older was left out on purpose.
        self._floor, _, ranks = text.partition(";")
        for part in ranks.split(",") if ranks else ():
            rank, _, rest = part.partition("=")
            ts, _, number = rest.partition("~")
            if rank.isdecimal() and number.isdecimal():
                self._sent[int(rank)] = (ts, int(number))

    def __str__(self) -> str:
        """Write it in one line."""
        ranks = ",".join(f"{rank}={ts}~{number}" for rank, (ts, number) in self._sent.items())
        return f"{self._floor};{ranks}"

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

    def begin(self, lines: list[LogLine]) -> None:
        """Begin with the last lines of before: older ones are left out, where these are not all."""
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
            before, count = self._sent.get(line.rank, ("", 0))
            self._sent[line.rank] = (line.ts, count + 1 if line.ts == before else 1)
            yield line


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The lines of a run that a page watches."""

    engine: Engine
    handle: RunHandle
    ranks: list[int] | None
    pattern: Pattern[str] | None
    position: Position
    # Whether its folder is on this machine; one on Azure may not be yet.
    is_here: bool

    def look(self) -> tuple[list[LogLine], bool]:
        """Read what is new; tells whether there will be no more. Raises NotFound for a removed run."""
        position = self.position
        if self.is_here and not Path(self.handle.run_dir).is_dir():
            message = f"run {self.handle.id} was removed"
            raise NotFound(message)
        with heard():
            is_over = self.engine.store.status(self.handle).state.is_terminal()
            since = position.since
            lines = self.engine.logs(
                self.handle,
                self.ranks,
                follow=False,
                since=since,
                tail=None if since else TAIL,
                grep=self.pattern,
            )
            if since is None:
                found = list(lines)
                position.begin(found)
                return list(position.unsent(found)), is_over
            new = list(itertools.islice(position.unsent(lines), MOST_AT_ONCE))
        return new, is_over and len(new) < MOST_AT_ONCE


def lines_of(reading: Reading) -> Callable[[Request], Awaitable[Response]]:
    """Give the page that streams: `rank` and `grep` choose lines as `launch logs` does."""

    async def answer(request: Request) -> Response:
        try:
            watched = await run_in_threadpool(_open, reading, request)
        except LaunchError as error:
            return PlainTextResponse(f"{error.message}\n", 404)
        return StreamingResponse(_events(watched, request), media_type="text/event-stream")

    return answer


def _open(reading: Reading, request: Request) -> Watched:
    from jobs.commands.options import open_environment, open_run
    from jobs.runs.logs import parse_pattern, parse_ranks

    asked = request.query_params
    name, _, value = reading.words_for(request.path_params["place"])[0].partition("=")
    with heard():
        is_file = name == "--env"
        environment = open_environment("" if is_file else value, Path(value) if is_file else None)
        engine, handle = open_run(request.path_params["run"], environment)
        size = engine.store.status(handle).world_size
    return Watched(
        engine=engine,
        handle=handle,
        ranks=parse_ranks(asked["rank"], size) if asked.get("rank") else None,
        pattern=parse_pattern(asked.get("grep") or None),
        position=Position(request.headers.get("last-event-id", "")),
        is_here=Path(handle.run_dir).is_dir(),
    )


async def _events(watched: Watched, request: Request) -> AsyncIterator[str]:
    """Yield events of lines; ends with the run, or with the connection."""
    shortest_s = PAUSE_OF_STORE_S if isinstance(watched.engine, Attended) else PAUSE_S
    pause_s, silent_s = shortest_s, 0.0
    yield "retry: 1000\n\n"
    while not await request.is_disconnected():
        try:
            lines, is_over = await run_in_threadpool(watched.look)
        except (LaunchError, OSError) as error:
            yield f"event: lost\ndata: {json.dumps(str(error))}\n\n"
            return
        for start in range(0, len(lines), MOST_AT_ONCE):
            told = [[each.rank, each.ts, each.text] for each in lines[start : start + MOST_AT_ONCE]]
            is_last = start + MOST_AT_ONCE >= len(lines)
            place = f"id: {watched.position}\n" if is_last else ""
            yield f"{place}data: {json.dumps(told)}\n\n"
        if is_over:
            yield "event: over\ndata: null\n\n"
            return
        if lines:
            pause_s, silent_s = shortest_s, 0.0
        elif silent_s >= SILENCE_S:
            yield ": nothing new\n\n"
            silent_s = 0.0
        await asyncio.sleep(pause_s)
        silent_s += pause_s
        pause_s = max(shortest_s, min(pause_s * 1.2, LONGEST_PAUSE_S))
