"""Installs a lock of the tests as an environment, once per machine and lock."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

from jobs.host.cache import cache_root, content_key, exclusive, run_logged
from jobs.images.runtimes import find_uv, python_tag, uv_environment

FINISHED = ".finished"


def lay_environment(lock: Path, project: Path, *, what: str) -> Path:
    """Install the environment that `lock` (with hashes) describes and return its folder.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    key = content_key([lock.read_bytes(), python_tag()])
    root = cache_root(os.environ) / lock.stem / key
    with exclusive(root.with_name(f"{key}.lock"), what=what, report=nullcontext):
        if (root / FINISHED).exists() and (root / "bin" / "python").exists():
            return root
        shutil.rmtree(root, ignore_errors=True)
        uv, log = find_uv(project), project / ".trainyard" / "logs" / f"{lock.stem}.log"
        env = uv_environment(uv)
        python = root / "bin" / "python"
        run_logged([uv, "venv", root], what=f"making {what}", log=log, env=env)
        install = [uv, "pip", "sync", "--require-hashes", "--python", python, lock]
        run_logged(install, what=f"installing {what}", log=log, env=env)
        (root / FINISHED).write_text("")
    return root
