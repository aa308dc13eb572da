"""Lays what stands for an image's runtime, with nothing in it that runs."""

from __future__ import annotations

from pathlib import Path


def make_runtime(folder: Path, library: bytes) -> Path:
    """A runtime with a Horovod in it; gives its interpreter."""
    package = folder / "lib" / "python3.11" / "site-packages" / "horovod" / "torch"
    package.mkdir(parents=True)
    (package / "mpi_lib_v2.so").write_bytes(library)
    return folder / "bin" / "python"
