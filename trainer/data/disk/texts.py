"""Stores many short texts in two blocks of memory: forks share them and pickling is fast."""

from __future__ import annotations

import os
from array import array


class Texts:
    """A list of texts that only grows."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("Q", [0])

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._data += os.fsencode(text)
        self._ends.append(len(self._data))

    def __getitem__(self, index: int) -> str:
        return os.fsdecode(bytes(self._data[self._ends[index] : self._ends[index + 1]]))
