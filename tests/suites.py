"""Runs a suite of a test's own under this project's settings and plugins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = 'pytest_plugins = ["tests.judges"]\n'


def run_suite(
    folder: Path, files: Mapping[str, str], *options: str, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Write the files of a suite, and run it in a pytest of its own."""
    for name, text in {"conftest.py": CONFTEST, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTEST_", "TRAINYARD_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def counts(done: subprocess.CompletedProcess[str]) -> str:
    """The words of pytest's last line, without its time."""
    return re.sub(r" in .*", "", done.stdout.splitlines()[-1].strip("= "))
