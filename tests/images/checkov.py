"""The environment of Checkov, which cannot share a lock with this project."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

from jobs.build_cache import cache_root, content_key, exclusive, run_logged
from jobs.images import find_uv, python_tag, uv_environment

LOCK = Path(__file__).with_name("checkov.txt")
FINISHED = ".finished"


def checkov_environment(project: Path) -> Path:
    """The folder of the environment; made from checkov.txt once per machine and lock.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    key = content_key([LOCK.read_bytes(), python_tag()])
    root = cache_root(os.environ) / "checkov" / key
    with exclusive(root.with_name(f"{key}.lock"), what="Checkov", report=nullcontext):
        if (root / FINISHED).exists() and (root / "bin" / "python").exists():
            return root
        shutil.rmtree(root, ignore_errors=True)
        uv, log = find_uv(project), project / ".trainyard" / "logs" / "checkov.log"
        env = uv_environment(uv)
        python = root / "bin" / "python"
        run_logged([uv, "venv", root], what="making Checkov's environment", log=log, env=env)
        install = [uv, "pip", "sync", "--require-hashes", "--python", python, LOCK]
        run_logged(install, what="installing Checkov", log=log, env=env)
        (root / FINISHED).write_text("")
    return root
