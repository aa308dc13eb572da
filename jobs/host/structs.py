"""Has msgspec learn a struct's fields in one thread, before any thread reads into it."""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_LEARNING = Lock()
_LEARNT: set[Any] = set()


def prepared(kind: type[T]) -> type[T]:
    """Give the type back, with its fields known to msgspec: `msgspec.convert(value, prepared(kind))`.

    msgspec 0.22 learns them at the first use, and a thread that meets them half learnt ends the whole
    process by a segmentation fault.
    """
    if kind not in _LEARNT:
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _LEARNT.add(kind)
    return kind
