"""Keeps the subscription in files: whole after any kill, one writer at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Store:
    """The files of one subscription; several providers may use them at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "resources.json"
        self._troubles = folder / "troubles.json"
        self._calls = folder / "calls.jsonl"
        self._lock = folder / "lock"

    @contextmanager
    def writing(self) -> Generator[dict[str, dict[str, Record]]]:
        """The state, written back when the block ends well."""
        with self._locked():
            state = self.read()
            yield state
            _replace(self._state, state)

    def read(self) -> dict[str, dict[str, Record]]:
        """The state as it is now."""
        empty: dict[str, dict[str, Record]] = {
            key: {} for key in ("resources", "deleted", "sizes", "identities")
        }
        return empty | _load(self._state)

    def troubles(self) -> Record:
        return _load(self._troubles)

    @contextmanager
    def using_troubles(self) -> Generator[Record]:
        """The scripted troubles, written back when the block changed them."""
        with self._locked():
            troubles = _load(self._troubles)
            before = json.dumps(troubles)
            yield troubles
            if json.dumps(troubles) != before:
                _replace(self._troubles, troubles)

    def note(self, call: Record) -> None:
        """One line of calls.jsonl, whole."""
        line = json.dumps({key: each for key, each in call.items() if each is not None}) + "\n"
        descriptor = os.open(self._calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Generator[None]:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _load(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def _replace(path: Path, content: object) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(content))
    partial.replace(path)
