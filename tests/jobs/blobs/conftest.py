"""A store behind real HTTP, and what holds for every transfer with it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.blobs import session
from tests.busy import Bound
from tests.fakes.http_blobs import HttpBlobs, http_blobs


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(session, "_BACKOFF_S", 0.001)


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def leaves_nothing_open() -> Iterator[None]:
    """No descriptor and no thread of ours outlives a transfer, however it ended."""
    before = open_files()
    threads = threading.active_count()
    yield
    # The server's own threads end when they see that their clients have gone.
    bound = Bound(5)
    looks = 0
    while open_files() - before or threading.active_count() > threads:
        bound.check(open_files())
        looks += 1
        if looks % 10 == 0:
            gc.collect()  # an error's traceback holds the store that it came from
        time.sleep(0.01)


@pytest.fixture
def blobs() -> Iterator[HttpBlobs]:
    with http_blobs() as made:
        yield made
