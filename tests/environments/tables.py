"""Makes the tables of Microsoft's models, once per machine, lock and list of what is wanted."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

PROGRAM = Path(__file__).with_name("azure_models.py")


def make_tables(wanted: str) -> Path:
    """Make the file with the tables of all `wanted` lines, as azure_models.py describes them.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    from jobs.host.cache import cache_root, content_key, exclusive
    from tests.environments.laying import lay_environment

    lock = PROGRAM.with_suffix(".txt")
    folder = cache_root(os.environ) / "azure_models"
    tables = folder / f"{content_key([lock.read_bytes(), PROGRAM.read_bytes(), wanted])}.json"
    # One lock for all tables: the environment is taken away as soon as one of them is made.
    with exclusive(folder / "tables.lock", what="Azure's models", report=nullcontext):
        if not tables.exists():
            environment = lay_environment(lock, PROGRAM.parents[2], what="Azure's models")
            made = subprocess.run(
                [environment / "bin" / "python", PROGRAM],
                input=wanted,
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, made.stderr
            partial = tables.with_suffix(".partial")
            partial.write_text(made.stdout)
            partial.replace(tables)
            shutil.rmtree(environment)  # 170 MB that nobody needs again
    return tables
