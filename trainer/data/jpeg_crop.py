"""Cuts rectangles out of JPEGs and resizes them in C, which is compiled once on each machine.

    python -m trainer.data.jpeg_crop        says where the compiled program is, or why there is none
    python -m trainer.data.jpeg_crop DIR    compiles it for an image: to lib/trainyard of its Python

It does with a picture what decoding, cropping and antialiased resizing do one after the other, and
gives the bytes that torchvision and PyTorch give, in less time (docs/adr/0012). Nothing depends on
it: where no compiler is, and for pictures that it refuses, the frameworks' own decoders remain.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trainer.common.speech import warn
from trainer.common.world import World
from trainer.data.pictures.crops import Crop

SOURCE = Path(__file__).parent / "native" / "jpeg_crop.c"
# Instructions that the source is written for, as gcc and clang name them and as Linux does.
INSTRUCTIONS = ("avx2", "bmi2")
FLAGS = ("-O3", "-fwrapv", "-shared", "-fPIC", *(f"-m{name}" for name in INSTRUCTIONS))
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


def open_cropper() -> JpegCropper | None:
    """Give the compiled program, compiling it where that was not done; None where it cannot be."""
    found = _open()
    return None if isinstance(found, str) else found


def warn_without_cropper(world: World) -> None:
    """Let the first rank say why training will be slower than it might be, where it will."""
    found = _open()
    if isinstance(found, str) and world.is_main:
        warn(f"pictures are decoded without our compiled program, which is slower: {found}")


@functools.cache
def _open() -> JpegCropper | str:
    """Give the compiled program, or why there is none."""
    try:
        return JpegCropper(compiled())
    except (OSError, AttributeError) as error:
        return str(error)


def compiled() -> Path:
    """Give the compiled program's path; raises OSError, which says why, where there is none."""
    _require_processor()
    name = _file_name()
    # Where an image brings it along, and where a person's own programs are kept.
    of_image = Path(sys.prefix) / "lib" / "trainyard" / name
    if of_image.is_file():
        return of_image
    home = os.environ.get("XDG_CACHE_HOME", "")
    # A program of whatever folder we are in is nobody's own: the rule of jobs.host.cache.
    if not os.path.isabs(home):  # noqa: PTH117
        home = os.path.expanduser("~/.cache")  # noqa: PTH111
    if not os.path.isabs(home):  # noqa: PTH117
        message = "there is no home folder to keep it in; XDG_CACHE_HOME names another"
        raise OSError(message)
    library = Path(home) / "trainyard" / "native" / name
    if not library.is_file():
        _compile(library)
    return library


def _file_name() -> str:
    """Give a name that another source, or other flags, would not have."""
    content = SOURCE.read_bytes() + " ".join(FLAGS).encode()
    return f"jpeg_crop-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _require_processor() -> None:
    if platform.machine() != "x86_64":
        message = f"it is written for x86_64, and this is {platform.machine()}"
        raise OSError(message)
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("flags")
    missing = set(INSTRUCTIONS) - set(flags[2].partition("\n")[0].split())
    if missing:
        message = f"this processor has no {', '.join(sorted(missing))}"
        raise OSError(message)


def _compile(library: Path) -> None:
    """Compile to another name first: ranks that start together all do it, and see whole files."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        message = "there is no C compiler (`cc`) on PATH"
        raise OSError(message)
    library.parent.mkdir(parents=True, exist_ok=True)
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
            message = f"`{compiler}` failed: {done.stderr.strip()[-300:]}"
            raise OSError(message)
        os.chmod(partial, 0o755)  # noqa: PTH101, S103 - whoever runs in an image did not build it
        os.replace(partial, library)  # noqa: PTH105 - paths of one folder
    except subprocess.TimeoutExpired:
        message = f"`{compiler}` took more than {COMPILE_TIMEOUT_S} s"
        raise OSError(message) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)  # noqa: PTH108


def main() -> int:
    """Say where the compiled program is, or why there is none."""
    try:
        if len(sys.argv) > 1:
            # What an image is built on need not be what it runs on.
            _compile(Path(sys.argv[1]) / _file_name())
        else:
            print(compiled())
    except OSError as error:
        print(f"no compiled program: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
