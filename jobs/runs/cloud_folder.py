"""Name the folder in which this machine keeps its records of a workspace's runs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jobs.contracts.spec import Environment
from jobs.host.owners import FOLDER, xdg_folder


def workspace_folder(environment: Environment) -> Path:
    """Give the folder of a workspace, by its name and id; `runs/<ID>/` in it is a run's."""
    workspace = environment.workspace
    # Resource Manager does not tell capitals from small letters.
    digest = hashlib.sha256(workspace.id.lower().encode()).hexdigest()[:8]
    root = state_root(os.environ, sys.platform, Path.home())
    return root / f"{workspace.name}-{digest}"


def state_root(environ: Mapping[str, str], platform: str, home: Path) -> Path:
    """Give our folder where the platform's programs keep what outlives them and is no setting.

    Raises EnvironmentFailure where XDG_STATE_HOME names a folder that others can change.
    """
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / FOLDER
    if platform == "darwin":
        return home / "Library" / "Application Support" / FOLDER
    return xdg_folder(environ, "XDG_STATE_HOME") or home / ".local" / "state" / FOLDER
