"""Where this machine keeps what it knows of a workspace's runs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jobs.contracts.spec import Environment


def workspace_folder(environment: Environment) -> Path:
    """The folder of a workspace, by its name and id; `runs/<ID>/` in it is a run's."""
    workspace = environment.workspace
    # Resource Manager does not tell capitals from small letters.
    digest = hashlib.sha256(workspace.id.lower().encode()).hexdigest()[:8]
    root = state_root(os.environ, sys.platform, Path.home())
    return root / "trainyard" / f"{workspace.name}-{digest}"


def state_root(environ: Mapping[str, str], platform: str, home: Path) -> Path:
    """Where the platform's programs keep what should outlive them, and is no setting."""
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if platform == "darwin":
        return home / "Library" / "Application Support"
    given = environ.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored, says the specification.
    return Path(given) if given.startswith("/") else home / ".local" / "state"
