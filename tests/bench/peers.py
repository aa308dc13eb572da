"""The peers' own environment: torchx, which cannot share a lock with this project."""

from __future__ import annotations

import subprocess
from pathlib import Path


def torchx(project: Path) -> Path:
    """Give the `torchx` program; installs it from tests/bench/peers.txt the first time."""
    from jobs.images.runtimes import find_uv

    folder = project / ".trainyard" / "bench-peers"
    program = folder / "bin" / "torchx"
    if not program.exists():
        requirements = project / "tests" / "bench" / "peers.txt"
        uv = find_uv(project)
        python = folder / "bin" / "python"
        subprocess.run([uv, "venv", "--quiet", "--clear", folder], check=True)
        subprocess.run([uv, "pip", "sync", "--quiet", "--python", python, requirements], check=True)
    return program
