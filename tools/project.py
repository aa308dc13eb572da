"""Locates the folders that set-up reads from and writes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.host.cache import cache_root
from jobs.host.private import make_folder
from jobs.host.trust import INSTALLED


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
        """The folder of this clone alone: Pulumi's home and state, logs, tools."""
        return self.root / ".trainyard"

    def log(self, name: str) -> Path:
        """Create an empty log file for one phase; only the last set-up's logs are kept."""
        path = self.state / "logs" / f"{name}.log"
        make_folder(path.parent)
        path.write_text("", encoding="utf-8")
        return path


def this_project(environ: Mapping[str, str]) -> Project:
    """Build the project of the clone that this program lies in."""
    return Project(root=INSTALLED, cache=cache_root(environ))
