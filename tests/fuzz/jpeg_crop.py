"""Builds the fuzzer of the cropper under AddressSanitizer and UBSan, and its seeds."""

from __future__ import annotations

import io
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

SOURCE = Path(__file__).with_name("jpeg_crop_fuzz.c")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-O2", "-g", "-fwrapv", "-mavx2", "-mbmi2", *SANITIZERS)


def make_seeds(folder: Path) -> list[Path]:
    """Write small JPEGs of each kind that the cropper decodes, and of some that it refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(16)
    seeds = []
    for number in range(24):
        size = rng.randint(8, 64), rng.randint(1, 64)
        small = Image.frombytes("RGB", (9, 9), rng.randbytes(9 * 9 * 3))
        picture = small.resize(size, Image.Resampling.BICUBIC)
        options = {
            "quality": rng.choice([20, 60, 90, 100]),
            "subsampling": number % 3,
            "optimize": rng.random() < 0.5,
        }
        if number % 8 == 7:
            picture, options = picture.convert("L"), {"quality": 80}
        if number % 12 == 11:
            options["restart_marker_rows" if number > 12 else "progressive"] = 1
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", **options)
        seeds.append(folder / f"{number:02}.jpg")
        seeds[-1].write_bytes(encoded.getvalue())
    return seeds


def build(folder: Path) -> Path:
    """Compile the fuzzer."""
    program = folder / "jpeg_crop_fuzz"
    subprocess.run(["cc", *FLAGS, str(SOURCE), "-o", str(program)], check=True)
    return program


def run(
    program: Path, seeds: Sequence[Path], *, number: int, seed: int = 1, first: int = 0
) -> dict[str, int]:
    """Give so many damaged inputs to the cropper; gives how many came how far.

    Raises AssertionError with what a sanitizer said, and the number of the input.
    """
    arguments = [str(each) for each in (seed, first, number)]
    done = subprocess.run(
        [str(program), *arguments, *map(str, seeds)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[:4000]}{done.stderr[-200:]}"
    pattern = r"(\d+) inputs: (\d+) refused by header, (\d+) by scan, (\d+) decoded"
    found = re.search(pattern, done.stdout)
    assert found, done.stdout
    names = ("inputs", "refused_by_header", "refused_by_scan", "decoded")
    return dict(zip(names, map(int, found.groups()), strict=True))
