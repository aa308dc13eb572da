"""What an attack on files of ours needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def no_umask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Take from nobody what the program does not take itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    yield
    os.umask(before)
