"""Stands in for a decoder of pictures; imported by the processes that decode, too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import numpy as np

from trainer.data.pictures.crops import Crop
from trainer.data.pictures.decoding import decode_rgb
from trainer.data.pictures.decoding_parts import Encoded, Pixels
from trainer.data.pictures.header import CorruptPicture


def put_bytes(target: Pixels, file: Encoded) -> None:
    """Write the file's length, and its bytes as often as they fit; by what they say, do worse."""
    data = file.read()
    if data == b"corrupt":
        raise CorruptPicture(file.name, f"`{file.name}` is corrupt", hint="take it away")
    if data == b"mistake":
        message = "a mistake of the decoder's"
        raise ZeroDivisionError(message)
    if data == b"killed":
        os.kill(os.getpid(), signal.SIGKILL)
    target[:] = np.resize(np.frombuffer(data, np.uint8), target.shape)
    target[:8] = np.frombuffer(len(data).to_bytes(8, "big"), np.uint8)


def put_process(target: Pixels, file: Encoded) -> None:
    """Write the number of the process."""
    target[:8] = np.frombuffer(os.getpid().to_bytes(8, "big"), np.uint8)


def put_and_tell_imports(
    target: Pixels, data: bytes, name: str, crop_of: Callable[[int, int], Crop]
) -> None:
    """Decode by Pillow, and write which modules came in since this process was forked."""
    picture = decode_rgb(data, name)
    crop_of(*picture.size)
    new = " ".join(sorted({*sys.modules} - IMPORTED)).encode()
    target.reshape(-1)[: len(new)] = np.frombuffer(new, np.uint8)[: target.size]


IMPORTED: set[str] = set()
os.register_at_fork(after_in_child=lambda: IMPORTED.update(sys.modules))
