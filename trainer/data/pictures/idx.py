"""Reads and writes IDX files, the format that MNIST comes in (unsigned bytes only).

Format: two zero bytes, the type (8 = unsigned byte), the number of dimensions, each dimension
as a big-endian 32-bit number, then the values. Source: http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

from trainer.common.errors import TrainingError

# Training pictures and labels, then those for testing.
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_UNSIGNED_BYTE = 8
# The largest of MNIST's files has 47 MB.
MOST_BYTES = 256 << 20


def write_idx(path: Path, shape: tuple[int, ...], values: bytes) -> None:
    """Write the values of an array of that shape, last dimension fastest."""
    assert len(values) == math.prod(shape)
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, _UNSIGNED_BYTE, len(shape), *shape)
    path.write_bytes(header + values)


def read_idx(folder: Path, name: str) -> tuple[tuple[int, ...], bytes]:
    """Give shape and values of `folder/name`, or of `folder/name.gz`.

    Raises TrainingError where there is neither, or where the file is not whole.
    """
    path = folder / name
    packed = folder / f"{name}.gz"
    if path.is_file():
        content = path.read_bytes()
    elif packed.is_file():
        path, content = packed, _unpack(packed)
    else:
        message = f"no `{name}` (or `{name}.gz`) in `{folder}`"
        raise TrainingError(message, hint="launch data prepare digits --to DIR makes such a folder")
    return _parse(path, content)


def _unpack(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        message = f"`{path}` is not a complete gzip file: {error}"
        raise TrainingError(message, hint="get the file again") from None
    if len(content) > MOST_BYTES:
        message = f"`{path}` unpacks to more than {MOST_BYTES >> 20} MiB"
        raise TrainingError(message, hint="get the file again")
    return content


def _parse(path: Path, content: bytes) -> tuple[tuple[int, ...], bytes]:
    zeros, kind, num_dimensions = struct.unpack(">HBB", content[:4].ljust(4, b"\xff"))
    start = 4 + 4 * num_dimensions
    if zeros != 0 or kind != _UNSIGNED_BYTE or len(content) < start:
        message = f"`{path}` is not an IDX file of unsigned bytes"
        raise TrainingError(message, hint="get the file again")
    shape = struct.unpack(f">{num_dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        message = (
            f"`{path}` holds {len(content) - start} values, its header says {math.prod(shape)}"
        )
        raise TrainingError(message, hint="get the file again")
    return shape, content[start:]
