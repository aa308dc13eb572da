"""Where set-up reads from and writes to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.host.cache import cache_root
from jobs.host.private import make_folder


@dataclass(frozen=True, kw_only=True)
class Project:
    """One clone of the repository, and the cache that it shares with others."""

    root: Path
    cache: Path

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def state(self) -> Path:
        """What belongs to this clone alone: Pulumi's home and state, logs, tools."""
        return self.root / ".trainyard"

    def log(self, name: str) -> Path:
        """An empty log file for one phase; only the last set-up's logs are kept."""
        path = self.state / "logs" / f"{name}.log"
        make_folder(path.parent)
        path.write_text("", encoding="utf-8")
        return path


def this_project(environ: Mapping[str, str]) -> Project:
    root = Path(__file__).resolve().parent.parent
    return Project(root=root, cache=cache_root(environ))


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The caller's environment without another project's virtual environment."""
    foreign = {
        "VIRTUAL_ENV",
        "UV_PROJECT",
        "UV_PROJECT_ENVIRONMENT",
        "UV_SYSTEM_PYTHON",
        "PYTHONHOME",
    }
    kept = {name: value for name, value in environ.items() if name not in foreign}
    return {**kept, "UV_PYTHON_DOWNLOADS": "never"}
