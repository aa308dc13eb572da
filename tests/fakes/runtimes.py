"""Lays what stands for an image's runtime, with nothing in it that runs."""

from __future__ import annotations

from pathlib import Path


def make_runtime(folder: Path, library: bytes, *, framework: str = "torch") -> Path:
    """A runtime with a framework and its Horovod in it; gives its interpreter."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    (packages / framework).mkdir(parents=True)
    horovod = packages / "horovod" / framework
    horovod.mkdir(parents=True)
    (horovod / "mpi_lib_v2.so").write_bytes(library)
    return folder / "bin" / "python"
