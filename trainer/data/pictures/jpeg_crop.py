"""Cuts rectangles out of JPEGs and resizes them in C, which each machine compiles once.

It does with a picture what decoding, cropping and antialiased resizing do one after the other, and
gives the bytes that simplejpeg and PyTorch give, in less time (docs/adr/0012). It is used where
`--decoder fast` asks for it; pictures that it refuses are left to the library's decoder.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from trainer.common.errors import TrainingError
from trainer.data.pictures.crops import Crop

# Who decodes JPEGs: the framework's own library, or the program below.
DecoderName = Literal["library", "fast"]

SOURCE = Path(__file__).parents[1] / "native" / "jpeg_crop.c"
# Instructions that the source is written for, as gcc and clang name them and as Linux does.
INSTRUCTIONS = ("avx2", "bmi2")
# For this very processor, but by no instruction that rounds once where C rounds twice.
_NATIVE = ("-march=native", "-ffp-contract=off", *(f"-m{name}" for name in INSTRUCTIONS))
FLAGS = ("-O3", "-fwrapv", "-shared", "-fPIC", *_NATIVE)
COMPILE_TIMEOUT_S = 120


class JpegCropper:
    """The compiled program; for any number of threads, which all let go of Python's lock."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        side = ctypes.POINTER(ctypes.c_int32)
        self._size = loaded.trainyard_size
        self._size.argtypes = [ctypes.c_char_p, ctypes.c_size_t, side, side]
        self._crop = loaded.trainyard_crop
        self._crop.argtypes = [
            *(ctypes.c_char_p, ctypes.c_size_t),
            *(ctypes.c_int32 for _ in range(6)),
            ctypes.c_void_p,
        ]

    def size(self, data: bytes) -> tuple[int, int] | None:
        """Give a picture's width and height; None where it is for another decoder."""
        width, height = ctypes.c_int32(), ctypes.c_int32()
        if self._size(data, len(data), ctypes.byref(width), ctypes.byref(height)):
            return None
        return width.value, height.value

    def crop(self, data: bytes, crop: Crop, *, side: int, address: int) -> bool:
        """Write a part of a picture, resized, to memory; gives False where it cannot be done.

        `address` is of side x side x 3 bytes, rows of pixels of red, green and blue, which hold
        anything afterwards where it was not done.
        """
        place = (crop.left, crop.top, crop.width, crop.height, crop.is_flipped, side)
        return self._crop(data, len(data), *place, address) == 0

    def put(
        self, data: bytes, crop_of: Callable[[int, int], Crop], *, side: int, address: int
    ) -> bool:
        """Write the part that `crop_of` chooses by the picture's width and height, as `crop` does.

        Gives False where another decoder has to.
        """
        size = self.size(data)
        return size is not None and self.crop(data, crop_of(*size), side=side, address=address)


def open_cropper() -> JpegCropper:
    """Load the compiled program, compiling it first where this machine has not.

    Raises TrainingError, which says why, where there can be none.
    """
    try:
        return JpegCropper(_compiled())
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"--decoder fast cannot be used here: {error}"
        raise TrainingError(message, hint="--decoder library") from None


def _compiled() -> Path:
    """Give the compiled program's path; raises OSError, which says why, where there is none."""
    instructions = _processor_instructions()
    library = _own_folder() / _file_name(instructions)
    if not library.is_file():
        _compile(library)
    return library


def _file_name(instructions: str) -> str:
    """Give a name that another source, other flags or another processor of the same home would not have."""
    content = SOURCE.read_bytes() + " ".join((*FLAGS, instructions)).encode()
    return f"jpeg_crop-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _own_folder() -> Path:
    """Make a folder in the user's cache; raises OSError where others may write into it."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # A program of whatever folder we are in is nobody's own: a relative one is ignored.
    if not os.path.isabs(home):  # noqa: PTH117
        home = os.path.expanduser("~/.cache")  # noqa: PTH111
    if not os.path.isabs(home):  # noqa: PTH117
        message = "there is no home folder to keep it in; XDG_CACHE_HOME names another"
        raise OSError(message)
    folder = Path(home) / "trainyard" / "native"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        message = f"`{folder}` is not a folder of yours alone, so nothing in it is loaded"
        raise OSError(message)
    return folder


def _processor_instructions() -> str:
    """Give the processor's instructions, as Linux names them; raises OSError where some are missing."""
    if platform.machine() != "x86_64":
        message = f"it is written for x86_64, and this is {platform.machine()}"
        raise OSError(message)
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = about.partition("flags")[2].partition("\n")[0]
    missing = set(INSTRUCTIONS) - set(found.split())
    if missing:
        message = f"this processor has no {', '.join(sorted(missing))}"
        raise OSError(message)
    return found


def _compile(library: Path) -> None:
    """Compile to another name first: ranks that start together all do it, and see whole files."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        message = "there is no C compiler (`cc`) on PATH"
        raise OSError(message)
    handle, partial = tempfile.mkstemp(prefix=f".{library.name}.", dir=library.parent)
    os.close(handle)
    try:
        done = subprocess.run(
            [*compiler.split(), *FLAGS, str(SOURCE), "-o", partial],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=COMPILE_TIMEOUT_S,
        )
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
            message = f"`{compiler}` failed: {said}"
            raise OSError(message)
        os.replace(partial, library)  # noqa: PTH105 - paths of one folder
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)  # noqa: PTH108
