"""Runs many requests of one transfer at once, in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

# Small requests under way at once; fewer where their bodies would fill ROOM_BYTES of memory.
NUM_REQUESTS = 32
ROOM_BYTES = 64 << 20
_TELL_EVERY_S = 0.1

Job = Callable[[], Coroutine[Any, Any, None]]


class Jobs(Protocol):
    """Source of a transfer's requests."""

    def next_job(self) -> Job | None:
        """Give one; None where there is none until some that run are over."""
        ...


async def run_all(jobs: Jobs, tell: Callable[[], None]) -> None:
    """Do all jobs; the first that raises ends the rest. `tell` is called now and then."""
    requests = _Requests(jobs)
    tasks = [asyncio.create_task(requests.work()) for _ in range(NUM_REQUESTS)]
    pending: set[asyncio.Task[None]] = set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=_TELL_EVERY_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for each in done:
                each.result()
            tell()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Requests:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._num_running = 0
        self._is_over = asyncio.Event()

    async def work(self) -> None:
        while True:
            job = self._jobs.next_job()
            if job is not None:
                self._num_running += 1
                try:
                    await job()
                finally:
                    self._num_running -= 1
                    self._is_over.set()
                continue
            if not self._num_running:
                return
            # One that is over may have left more to do.
            self._is_over.clear()
            await self._is_over.wait()


class Room:
    """Memory for bodies, which requests share."""

    def __init__(self, num_bytes: int = ROOM_BYTES) -> None:
        self._free = num_bytes
        self._freed = asyncio.Condition()

    async def hold(self, num_bytes: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while so many bytes are taken."""
        async with self._freed:
            while self._free < num_bytes:
                await self._freed.wait()
            self._free -= num_bytes
        try:
            await work()
        finally:
            self._free += num_bytes
            async with self._freed:
                self._freed.notify_all()


class Bandwidth:
    """Spreads bytes over time so that they never pass a rate."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = time.monotonic()

    @property
    def is_capped(self) -> bool:
        """Tell if a rate is set."""
        return bool(self._bytes_per_s)

    async def take(self, count: int) -> None:
        """Wait until so many bytes may go."""
        if not self._bytes_per_s:
            return
        now = time.monotonic()
        wait_s = max(0.0, self._free_at - now)
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        if wait_s:
            await asyncio.sleep(wait_s)
