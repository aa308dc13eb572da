"""MATLAB's version 5 files: read as SciPy, a writer of others, writes them; damage is named."""

from __future__ import annotations

import io
import random
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from scipy.io import savemat

from trainer.common.errors import TrainingError
from trainer.data.matlab import read_structs

ROWS = [
    {"ID": 1.0, "WNID": "n02119789", "words": "kit fox, Vulpes macrotis", "children": []},
    {"ID": 300.0, "WNID": "n02100735", "words": "Ente \u00e4", "children": [1.0, 2.5]},
]


def write(*, compressed: bool) -> bytes:
    kinds = [(name, "O") for name in ROWS[0]]
    synsets = np.zeros((2, 1), dtype=kinds)
    for number, row in enumerate(ROWS):
        values = [row["ID"], row["WNID"], row["words"], np.array([row["children"]], dtype=float)]
        synsets[number, 0] = tuple(values)
    made = io.BytesIO()
    before = {"numbers": np.arange(7), "cell": np.array([1, "a"], dtype=object)}
    savemat(made, {**before, "synsets": synsets, "after": 1}, do_compression=compressed)
    return made.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
def test_structs_are_read_as_they_were_written(compressed):
    assert read_structs(write(compressed=compressed), "synsets") == ROWS


def test_texts_of_16_bits_and_numbers_of_few_bytes_are_read_in_either_order():
    """As MATLAB itself writes them: characters as numbers of 16 bits, small numbers in 1 byte."""
    for order, mark in (("<", b"IM"), (">", b"MI")):
        made = _by_hand(order, mark)
        assert read_structs(made, "s") == [{"ID": 7, "WNID": "n0\u00e4"}]


def _by_hand(order: str, mark: bytes) -> bytes:
    def element(kind: int, content: bytes) -> bytes:
        if 0 < len(content) <= 4:
            pair = (len(content), kind) if order == ">" else (kind, len(content))
            return struct.pack(f"{order}HH", *pair) + content.ljust(4, b"\0")
        head = struct.pack(f"{order}II", kind, len(content))
        return head + content + bytes(-len(content) % 8)

    def array(kind: int, shape: tuple[int, int], name: bytes, *parts: bytes) -> bytes:
        flags = element(6, struct.pack(f"{order}II", kind, 0))
        size = element(5, struct.pack(f"{order}ii", *shape))
        return element(14, flags + size + element(1, name) + b"".join(parts))

    text = struct.pack(f"{order}3H", *map(ord, "n0\u00e4"))
    names = element(5, struct.pack(f"{order}i", 8)) + element(
        1, b"ID".ljust(8, b"\0") + b"WNID\0\0\0\0"
    )
    number = array(6, (1, 1), b"", element(2, b"\7"))
    struct_array = array(2, (1, 1), b"s", names, number, array(4, (1, 3), b"", element(4, text)))
    packed = zlib.compress(struct_array)
    compressed = struct.pack(f"{order}II", 15, len(packed)) + packed
    return b"MATLAB".ljust(124) + struct.pack(f"{order}H", 0x100) + mark + compressed


def test_what_is_not_there_is_named():
    with pytest.raises(TrainingError, match=r"it has no structs `synsets`"):
        read_structs(write(compressed=True)[: 128 + 0], "synsets")
    with pytest.raises(TrainingError, match=r"it has no structs `numbers`"):
        read_structs(write(compressed=True), "numbers")
    with pytest.raises(TrainingError, match=r"it is no MATLAB 5 file"):
        read_structs(b"hello", "synsets")


def test_damage_is_named_or_shows_in_the_values():
    """Never another error, whatever is damaged: 2,000 flipped bytes and cut files."""
    draw = random.Random(5)
    for compressed in (True, False):
        whole = write(compressed=compressed)
        for _ in range(500):
            damaged = bytearray(whole)
            damaged[draw.randrange(126, len(whole))] = draw.randrange(256)
            _read(bytes(damaged))
            _read(whole[: draw.randrange(len(whole))])


def _read(content: bytes) -> None:
    with suppress(TrainingError):
        read_structs(content, "synsets")
