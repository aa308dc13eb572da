"""Runs many transfers at once in the calling thread, over connections that are kept."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Protocol

from jobs.blobs.transfers.address import Address
from jobs.blobs.transfers.connection import BUFFER_BYTES, Connection, Steps
from jobs.blobs.transfers.pace import Bandwidth, Pace
from jobs.blobs.transfers.portable import open_poll

# How often `tell` is called, stalled connections are looked for and the pace is reviewed.
_LOOK_EVERY_S = 0.1

Job = Callable[[Connection], Steps[None]]


class Jobs(Protocol):
    """Where the work comes from."""

    def next_job(self) -> Job | None:
        """Give one; None where there is none until some that run are over."""
        ...


class _Worker:
    """A connection and the job that runs over it."""

    __slots__ = ("connection", "is_asleep", "since", "steps")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.steps: Steps[None] | None = None
        self.is_asleep = False
        self.since = 0.0


class Crew:
    """One run over one address; everything it opened is closed at its end, however it ends."""

    def __init__(self, address: Address, pace: Pace, *, max_bytes_per_s: int | None = None) -> None:
        self._address = address
        self._pace = pace
        self._bandwidth = Bandwidth(max_bytes_per_s) if max_bytes_per_s else None
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._poll = open_poll()
        self._by_descriptor: dict[int, _Worker] = {}
        self._workers: list[_Worker] = []
        self._free: list[_Worker] = []
        self._asleep: list[tuple[float, int, _Worker]] = []
        self._num_running = 0

    def run(self, jobs: Jobs, tell: Callable[[], None]) -> None:
        """Do all jobs; the first that raises ends the rest. `tell` is called now and then."""
        try:
            look_at = time.monotonic() + _LOOK_EVERY_S
            while self._start(jobs):
                before = time.monotonic()
                if before >= look_at:
                    look_at = before + _LOOK_EVERY_S
                    self._look(before)
                    tell()
                self._wait(before, look_at)
            tell()
        finally:
            self._end()

    def _start(self, jobs: Jobs) -> bool:
        """Fill up with work; whether any is under way."""
        self._is_full = False
        while self._num_running < self._pace.limit:
            job = jobs.next_job()
            if job is None:
                return self._num_running > 0
            worker = self._free.pop() if self._free else self._hire()
            worker.steps = job(worker.connection)
            self._num_running += 1
            self._step(worker)
        self._is_full = True
        return True

    def _hire(self) -> _Worker:
        def opened(descriptor: int) -> None:
            self._by_descriptor[descriptor] = worker
            self._poll.add(descriptor)

        worker = _Worker(
            Connection(
                self._address,
                buffer=self._buffer,
                bandwidth=self._bandwidth,
                opened=opened,
                closing=self._poll.remove,
                count=self._pace.did,
            )
        )
        self._workers.append(worker)
        return worker

    def _wait(self, before: float, look_at: float) -> None:
        wake_at = min(look_at, self._asleep[0][0]) if self._asleep else look_at
        ready = self._poll.wait(0)
        if not ready:
            ready = self._poll.wait(max(0.0, wake_at - before))
            self._pace.idled(time.monotonic() - before)
        for descriptor in ready:
            worker = self._by_descriptor[descriptor]
            if worker.steps is not None and not worker.is_asleep:
                self._step(worker)
        if self._asleep:
            now = time.monotonic()
            while self._asleep and self._asleep[0][0] <= now:
                worker = heapq.heappop(self._asleep)[2]
                worker.is_asleep = False
                self._step(worker)

    def _step(self, worker: _Worker, error: Exception | None = None) -> None:
        assert worker.steps is not None
        try:
            wanted = worker.steps.send(None) if error is None else worker.steps.throw(error)
        except StopIteration:
            worker.steps = None
            self._num_running -= 1
            self._free.append(worker)
            return
        worker.since = time.monotonic()
        if isinstance(wanted, float):
            worker.is_asleep = True
            heapq.heappush(self._asleep, (worker.since + wanted, id(worker), worker))
        else:
            assert worker.connection.socket is not None
            self._poll.want(worker.connection.socket.fileno(), wanted)

    def _look(self, now: float) -> None:
        self._pace.review(now, is_full=self._is_full)
        for worker in self._workers:
            if worker.steps is None or worker.is_asleep:
                continue
            patience_s = worker.connection.patience_s
            if now - worker.since > patience_s:
                self._step(worker, TimeoutError(f"no answer for {patience_s:.0f} s"))

    def _end(self) -> None:
        for worker in self._workers:
            if worker.steps is not None:
                worker.steps.close()
            worker.connection.close()
        self._poll.close()
