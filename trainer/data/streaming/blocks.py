"""Fetches blocks of remote files once a node, ahead of their use or when they are read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from trainer.common.errors import TrainingError
from trainer.data.streaming.cache import BlockCache
from trainer.data.streaming.store import MAX_RANGE_BYTES, RangeStore, RemoteFile

# Small, so that the first batch of an epoch, each picture of it in another block, waits for
# little; large enough that a request's cost does not count.
BLOCK_BYTES = 1 << 20
NUM_FETCHERS = 8
# A thread that has nothing to fetch ends after this.
IDLE_S = 2.0
# How long a block that another process fetches is waited for, and how often it is looked for.
CLAIMED_PATIENCE_S, LOOK_EVERY_S = 10.0, 0.005


class Block(NamedTuple):
    """A file, by its place in the list, and which piece of it."""

    file: int
    number: int


class Blocks:
    """The bytes of some remote files, by way of a cache; for any number of threads.

    They are read in any order within `window` blocks, and those are not wanted again soon. Of what
    is to be read soon at most `max_ahead` blocks are fetched before they are read: more would push
    out of the cache what is being read now.
    """

    def __init__(
        self,
        files: Sequence[RemoteFile],
        store: RangeStore,
        cache: BlockCache,
        *,
        name: str,
        window: int,
        max_ahead: int,
    ) -> None:
        self._files = files
        self._store = store
        self._cache = cache
        self._name = name
        self._lock = threading.Lock()
        self._under_way: dict[Block, Future[bytes | None]] = {}
        # What was asked for, numbered in this order, and up to which number it was read.
        self._queue: deque[tuple[int, Block]] = deque()
        self._numbers: dict[Block, int] = {}
        self._num_asked = 0
        self._num_reached = 0
        self._window = window
        self._max_ahead = max_ahead
        self._changed = threading.Condition(self._lock)
        self._num_fetchers = 0

    def read(self, file: int, start: int, length: int) -> bytes:
        """Give a part of a file; waits for it. Raises TrainingError where the store gives none."""
        if not self._cache.takes(BLOCK_BYTES):
            return self._read_straight(file, start, length)
        parts: list[bytes] = []
        at, end = start, start + length
        while at < end:
            block = Block(file, at // BLOCK_BYTES)
            offset = at % BLOCK_BYTES
            taken = min(BLOCK_BYTES - offset, end - at)
            parts.append(self._read_part(block, offset, taken))
            at += taken
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def begin(self, wanted: Iterable[tuple[int, int, int]]) -> None:
        """Queue the blocks of these parts (file, start, length) for fetching; returns at once."""
        if not self._cache.takes(BLOCK_BYTES):
            return
        blocks = {
            Block(file, number): None
            for file, start, length in wanted
            for number in range(start // BLOCK_BYTES, -(-(start + length) // BLOCK_BYTES))
        }
        with self._lock:
            for block in blocks:
                if block not in self._numbers:
                    self._numbers[block] = self._num_asked
                    self._queue.append((self._num_asked, block))
                    self._num_asked += 1
            self._forget()
            self._wake_fetchers()

    def _forget(self) -> None:
        """Forget blocks that were read a window ago: the cache may have dropped them."""
        last = self._num_reached - self._window
        while self._numbers and self._numbers[oldest := next(iter(self._numbers))] < last:
            del self._numbers[oldest]

    def _wake_fetchers(self) -> None:
        """Wake threads that wait on the queue, and start those that are missing."""
        if not self._may_fetch():
            return
        self._changed.notify_all()
        for _ in range(min(NUM_FETCHERS, len(self._queue)) - self._num_fetchers):
            self._num_fetchers += 1
            threading.Thread(target=self._fetch_queue, name="fetching", daemon=True).start()

    def _may_fetch(self) -> bool:
        return bool(self._queue) and self._queue[0][0] < self._num_reached + self._max_ahead

    def _fetch_queue(self) -> None:
        """Fetch queued blocks; a failed one is left to its reader."""
        while (block := self._next()) is not None:
            if not self._cache.want(self._name_of(block)):
                with contextlib.suppress(TrainingError):
                    self._get(block, waits=False)

    def _next(self) -> Block | None:
        """Wait for a block to fetch; None after a while without one."""
        with self._lock:
            while True:
                while self._may_fetch():
                    _, block = self._queue.popleft()
                    if block not in self._under_way:
                        return block
                if not self._changed.wait(IDLE_S):
                    self._num_fetchers -= 1
                    return None

    def _reach(self, block: Block) -> None:
        """Record the offset of the newest read."""
        number = self._numbers.get(block, -1)
        if number >= self._num_reached:
            with self._lock:
                self._num_reached = max(self._num_reached, number + 1)
                self._wake_fetchers()

    def _read_part(self, block: Block, offset: int, length: int) -> bytes:
        self._reach(block)
        while True:
            size = self._size_of(block)
            found = self._cache.read(self._name_of(block), offset, length, block_bytes=size)
            if found is not None:
                return found
            content = self._get(block, waits=True)
            if content is not None:
                return content[offset : offset + length]

    def _get(self, block: Block, *, waits: bool) -> bytes | None:
        """Fetch a block, once for all threads that want it; None where another process does."""
        with self._lock:
            future = self._under_way.get(block)
            is_ours = future is None
            if future is None:
                future = self._under_way[block] = Future()
        if not is_ours:
            return future.result()
        try:
            content = self._fetch(block, waits=waits)
            future.set_result(content)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[block]
        return content

    def _fetch(self, block: Block, *, waits: bool) -> bytes | None:
        name, size = self._name_of(block), self._size_of(block)
        give_up_s = time.monotonic() + CLAIMED_PATIENCE_S
        while True:
            with self._cache.claim(name) as is_claimed:
                # One that stands still must not hold up the others.
                if is_claimed or (waits and time.monotonic() > give_up_s):
                    content = self._cache.read(name, 0, size, block_bytes=size)
                    if content is None:
                        start = block.number * BLOCK_BYTES
                        content = self._store.read(self._files[block.file], start, size)
                        self._cache.write(name, content)
                    return content
            if not waits:
                return None
            time.sleep(LOOK_EVERY_S)

    def _read_straight(self, file: int, start: int, length: int) -> bytes:
        """Fetch the exact range, since without a cache more would be fetched again each time."""
        end = start + length
        return b"".join(
            self._store.read(self._files[file], at, min(MAX_RANGE_BYTES, end - at))
            for at in range(start, end, MAX_RANGE_BYTES)
        )

    def _name_of(self, block: Block) -> str:
        return f"{self._name}-{block.file:06}-{block.number:06}"

    def _size_of(self, block: Block) -> int:
        return min(BLOCK_BYTES, self._files[block.file].bytes - block.number * BLOCK_BYTES)
