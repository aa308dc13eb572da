"""What operating systems do differently about waiting for sockets and reading files at a place.

Linux has the fast way; the other one runs everywhere.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from errno import EINPROGRESS, EWOULDBLOCK
from typing import Protocol

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# What a connect that has begun answers; the last one is Windows' own number.
CONNECTING = (EINPROGRESS, EWOULDBLOCK, 10035)
# No link is followed, no line end changed, where the system knows of such.
OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_MOST_UNSENT_BYTES = 128 << 10
_TCP_NOTSENT_LOWAT = 25  # linux/tcp.h


class Poll(Protocol):
    """Waits for many sockets at once."""

    def add(self, descriptor: int) -> None:
        """Take a new socket."""
        ...

    def remove(self, descriptor: int) -> None:
        """Forget one that is about to be closed."""
        ...

    def want(self, descriptor: int, events: int) -> None:
        """Wait for READ or WRITE of one, after it has said that it would block."""
        ...

    def wait(self, timeout_s: float) -> list[int]:
        """Give the sockets that are ready; perhaps others, too."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class SelectorPoll:
    """Of the standard library: one more call into the system for each wait."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, descriptor: int) -> None:
        """See Poll."""

    def remove(self, descriptor: int) -> None:
        """See Poll."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def want(self, descriptor: int, events: int) -> None:
        """See Poll."""
        self._selector.register(descriptor, events)

    def wait(self, timeout_s: float) -> list[int]:
        """See Poll."""
        if not self._selector.get_map():
            # Windows refuses to wait for nothing.
            time.sleep(timeout_s)
            return []
        ready = [key.fd for key, _ in self._selector.select(timeout_s)]
        for descriptor in ready:
            self._selector.unregister(descriptor)
        return ready

    def close(self) -> None:
        """See Poll."""
        self._selector.close()


if sys.platform == "linux":
    import select

    class EdgePoll:
        """Tells of changes only: a socket is registered once, and then costs nothing more."""

        def __init__(self) -> None:
            self._epoll = select.epoll()

        def add(self, descriptor: int) -> None:
            """See Poll."""
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

        def remove(self, descriptor: int) -> None:
            """See Poll; closing does it."""

        def want(self, descriptor: int, events: int) -> None:
            """See Poll."""

        def wait(self, timeout_s: float) -> list[int]:
            """See Poll."""
            return [descriptor for descriptor, _ in self._epoll.poll(timeout_s)]

        def close(self) -> None:
            """See Poll."""
            self._epoll.close()


def open_poll() -> Poll:
    """Give the system's best way to wait."""
    return EdgePoll() if sys.platform == "linux" else SelectorPoll()


def tune(opened: socket.socket) -> None:
    """Have small pieces go at once, and large ones wait with us and not in the system.

    On a slow line megabytes would stand in the system's buffers, and look as if they were sent.
    """
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        opened.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _MOST_UNSENT_BYTES)


def send_two(to: socket.socket, first: bytes, second: bytes) -> int:
    """Send two pieces in one call, where there is one for it; gives how many bytes went."""
    if sys.platform == "win32":
        return to.send(first)
    return to.sendmsg((first, second))


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read a piece of a file; less at its end."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)
    return os.pread(descriptor, length, offset)


def write_at(descriptor: int, chunk: memoryview, offset: int) -> int:
    """Write a piece of a file; gives how much of it was written."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, chunk)
    return os.pwrite(descriptor, chunk, offset)


def will_read(descriptor: int, offset: int, length: int) -> None:
    """Have the system fetch a piece of a file from its disk meanwhile."""
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


def lock(descriptor: int, *, without_locks: bool = True) -> bool:
    """Lock an open file for its life; False where another process has it.

    `without_locks` is the answer where the system has none.
    """
    if sys.platform == "win32":
        return without_locks  # two processes cannot have the file under its final name open at once
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without_locks  # a network mount may have none
    return True
