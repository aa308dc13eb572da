"""azureml-core's own environment: where it is, and how it is laid (`make setup-v1`).

It is not installed beside `launch`, which would then have its old packages. Its lock, uv.lock's part
for the extra `azureml-v1`, lies beside this file, so that an installed wheel has it, too.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host import console
from jobs.host.cache import cache_root, content_key, run_logged
from jobs.host.private import make_folder
from jobs.images.runtimes import PROJECT, find_uv, python_tag, uv_environment

LOCK = Path(__file__).with_name("requirements.txt")


def sdk_python() -> Path:
    """Find the interpreter that has azureml-core; raises EnvironmentFailure if there is none."""
    python = _interpreter(_root())
    if not python.exists():
        message = "azureml-core, which the engine azureml_v1 needs, is not installed"
        raise EnvironmentFailure(
            message, hint="make setup-v1 (python -m jobs.engines.azure_ml_v1.sdk)"
        )
    return python


def lay_sdk() -> Path:
    """Lay the environment where it is not; raises EnvironmentFailure (no uv, no package index).

    It is whole or not there at all, also where two do so at once: it gets its name at the end.
    """
    root = _root()
    if _interpreter(root).exists():
        return _interpreter(root)
    draft = root.with_name(f".{root.name}.{os.getpid()}")
    make_folder(draft.parent)
    uv, log = find_uv(PROJECT), root.with_name(f"{root.name}.log")
    env = uv_environment(uv)
    try:
        make = [uv, "venv", "--python", sys.executable, draft]
        run_logged(make, what="making azureml-core's environment", log=log, env=env)
        install = [uv, "pip", "sync", "--require-hashes", "--python", _interpreter(draft), LOCK]
        run_logged(install, what="installing azureml-core", log=log, env=env)
        if not _interpreter(root).exists():
            draft.replace(root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _interpreter(root)


def _root() -> Path:
    key = content_key([LOCK.read_bytes(), python_tag()])
    return cache_root(os.environ) / "azureml-v1" / key


def _interpreter(root: Path) -> Path:
    return root / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main() -> int:
    """Lay it, and say where."""
    try:
        python = lay_sdk()
    except LaunchError as error:
        console.report_error(error)
        return error.exit_code
    console.say(f"azureml-core: {python.parent.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
