"""Reads safetensors files without the library."""

from __future__ import annotations

import json
from pathlib import Path


def read_tensors(path: Path) -> dict[str, bytes]:
    """The bytes of each tensor in a safetensors file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    places = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: data[start + begin : start + end] for name, (begin, end) in places.items()}
