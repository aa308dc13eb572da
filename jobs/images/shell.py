"""Makes the environment in which an image's Python runs by hand: as for ranks, without a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from jobs.host.cache import cache_root

# A shell in a rank is no part of that run. With VIRTUAL_ENV `uv pip` would write into the runtime, which
# all jobs share, or into another environment.
_LEFT_OUT = (
    "TRAINYARD_RUN_DIR",
    "TRAINYARD_CHECKPOINT_DIR",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "VIRTUAL_ENV_PROMPT",
)
_OF_FOLDERS = "TRAINYARD_INPUT_", "TRAINYARD_OUTPUT_", "TRAINYARD_STREAMED_"


def shell_environment(python: Path, project: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the caller's environment with the runtime of `python` first, and `trainer` importable.

    Ranks' own variables (RANK, WORLD_SIZE) are left to whatever the user starts, as torchrun.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _LEFT_OUT and not name.startswith(_OF_FOLDERS)
    }
    paths = [str(python.parent), environ.get("PATH", os.defpath)]
    modules = [str(project), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(cache_root(environ) / "torchinductor"),
        **kept,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": os.pathsep.join(modules),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def interactive_shell(environ: Mapping[str, str]) -> list[str]:
    """Give the command of the user's shell; bash keeps the PATH that ~/.bashrc would put others before."""
    shell = environ.get("SHELL") or "/bin/sh"
    if Path(shell).name != "bash":
        return [shell]
    # In memory: nobody would be there to remove a file once this process is the shell.
    lines = os.memfd_create("bashrc", 0)
    path = f"export PATH={shlex.quote(environ['PATH'])}"
    os.write(lines, f"[ ! -f ~/.bashrc ] || . ~/.bashrc\n{path}\nexec {lines}<&-\n".encode())
    os.lseek(lines, 0, os.SEEK_SET)
    return [shell, "--rcfile", f"/dev/fd/{lines}"]
