"""Finds the project: the folder whose Pulumi.yaml is Trainyard's."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.errors import LaunchError

NAME = "trainyard"
_NAME_LINE = re.compile(rf"^name:\s*[\"']?{NAME}[\"']?\s*$", re.MULTILINE)


def project_root() -> Path:
    """The working folder or the nearest above it, else the clone that `launch` runs from.

    Raises LaunchError where there is neither, as for a practitioner who has `launch` only.
    """
    installed = Path(__file__).resolve().parents[1]
    for folder in (Path.cwd(), *Path.cwd().parents, installed):
        if _is_project(folder):
            return folder
    message = f"no {NAME} project in {Path.cwd()} or above"
    raise LaunchError(message, hint="give an environment by `--env FILE` (`launch env export`)")


def trainers_folder() -> Path:
    """Where the package `trainer` lies: in the project, or where `launch` is installed without one."""
    try:
        return project_root()
    except LaunchError:
        installed = Path(__file__).resolve().parents[1]
        if not (installed / "trainer").is_dir():
            raise
        return installed


def _is_project(folder: Path) -> bool:
    try:
        return _NAME_LINE.search((folder / "Pulumi.yaml").read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False
