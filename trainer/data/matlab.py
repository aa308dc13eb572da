"""Reads structs from MATLAB's version 5 files, as far as ImageNet's `meta.mat` needs.

Format: MathWorks, "MAT-File Format" (R2019b), chapter 1: data elements of a type and a size, padded
to 8 bytes; an array is an element that holds elements; an element may be compressed by zlib.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer.common.errors import TrainingError

_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXTS = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
_ARRAY, _COMPRESSED = 14, 15
_CHARS, _STRUCT = 4, 2
_NUMERIC = range(6, 16)
# Of the file and of what is in it unpacked; ImageNet's holds 1,860 structs of 8 short fields.
_MOST_BYTES = 8 << 20
_MOST_DIMENSIONS = 32
_HEADER_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class _Element:
    kind: int
    content: memoryview


class _Structs(list[dict[str, Any]]):
    """A struct array; an array of numbers is a list, too."""


def read_structs(content: bytes, variable: str) -> list[dict[str, Any]]:
    """Give a struct array's elements; a value is a text, a number, a list of numbers, or None.

    None stands for what is not needed here: cells, objects, structs in structs. Raises
    TrainingError where the file is damaged or has no such variable.
    """
    if len(content) < _HEADER_BYTES or content[126:128] not in {b"IM", b"MI"}:
        message = "it is no MATLAB 5 file"
        raise TrainingError(message)
    order = "<" if content[126:128] == b"IM" else ">"
    try:
        left = _MOST_BYTES - len(content)
        if left < 0:
            message = f"a file of {len(content)} bytes"
            raise ValueError(message)
        for element in _elements(memoryview(content)[_HEADER_BYTES:], order):
            array = _inflate(element, order, left) if element.kind == _COMPRESSED else element
            left -= len(array.content)
            name, value = _array(array, order)
            if name == variable and isinstance(value, _Structs):
                return list(value)
    except (
        struct.error,
        ValueError,
        IndexError,
        StopIteration,
        RecursionError,
        zlib.error,
    ) as error:
        message = f"it is a damaged MATLAB file: {error!r:.200}"
        raise TrainingError(message) from None
    message = f"it has no structs `{variable}`"
    raise TrainingError(message)


def _inflate(element: _Element, order: str, most_bytes: int) -> _Element:
    stream = zlib.decompressobj()
    content = stream.decompress(element.content, max(most_bytes, 1))
    if not stream.eof:
        message = f"variables of over {_MOST_BYTES} bytes, or one that is cut off"
        raise ValueError(message)
    return next(_elements(memoryview(content), order))


def _elements(content: memoryview, order: str) -> Iterator[_Element]:
    while content:
        kind, size = struct.unpack_from(f"{order}II", content)
        if kind >> 16:
            # The small form: size and type share four bytes, up to four bytes of data follow.
            kind, size, start, taken = kind & 0xFFFF, kind >> 16, 4, 8
        else:
            start = 8
            taken = start + size + (-size % 8 if kind != _COMPRESSED else 0)
        if start + size > len(content):
            message = f"an element of {size} bytes has {len(content) - start}"
            raise ValueError(message)
        yield _Element(kind=kind, content=content[start : start + size])
        content = content[taken:]


def _array(element: _Element, order: str) -> tuple[str, Any]:
    """Give an array's name and value."""
    if element.kind != _ARRAY or not element.content:
        return "", None
    parts = _elements(element.content, order)
    kind = int(_numbers(next(parts), order)[0]) & 0xFF
    dimensions = _numbers(next(parts), order)
    if len(dimensions) > _MOST_DIMENSIONS:
        message = f"an array of {len(dimensions)} dimensions"
        raise ValueError(message)
    count = math.prod(map(int, dimensions))
    name = bytes(next(parts).content).decode("ascii")
    if kind == _STRUCT:
        return name, _structs(parts, order, count)
    if kind == _CHARS:
        return name, _text(next(parts), order)
    if kind in _NUMERIC:
        numbers = _numbers(next(parts), order)
        return name, numbers[0] if len(numbers) == 1 else numbers
    return name, None


def _structs(parts: Iterator[_Element], order: str, count: int) -> _Structs:
    """All fields of the first struct, then all of the second, ..."""
    width = int(_numbers(next(parts), order)[0])
    packed = bytes(next(parts).content)
    names = [
        packed[start : start + width].split(b"\0", 1)[0].decode("ascii")
        for start in range(0, len(packed), width)
    ]
    # Each value takes some bytes; without any field nothing says how many structs there can be.
    if count > 0 and not names:
        message = f"{count} structs without a field"
        raise ValueError(message)
    return _Structs([{name: _array(next(parts), order)[1] for name in names} for _ in range(count)])


def _numbers(element: _Element, order: str) -> list[Any]:
    code = _NUMBERS.get(element.kind, "")
    if not code:
        message = f"numbers of type {element.kind}"
        raise ValueError(message)
    count = len(element.content) // struct.calcsize(code)
    return list(struct.unpack(f"{order}{count}{code}", element.content))


def _text(element: _Element, order: str) -> str:
    if element.kind in _TEXTS:
        width = "" if element.kind == 16 else ("-le" if order == "<" else "-be")
        return bytes(element.content).decode(_TEXTS[element.kind] + width)
    return "".join(chr(number) for number in _numbers(element, order))
