"""Judges whose a project's folder is, and whether programs that lie in it may be started.

The rule is git's (safe.directory): a project is taken where it belongs to us or to root and others
cannot write to it, or where its user named it. But what a repository brings belongs to whoever
clones it. So programs of a project are started only where `launch` was installed from that very
clone, or where its user named it: by `launch env trust`, or by `make setup` in it.

Standard library only: set-up calls it before any environment exists.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.files import write_file
from jobs.host.owners import why_foreign
from jobs.host.private import locked, make_folder

# The clone that this package was installed from.
INSTALLED = Path(__file__).resolve().parents[2]
PROJECT_FILE = "Pulumi.yaml"
_LIST = "trusted.json"


def is_trusted(project: Path) -> bool:
    """Tell whether programs of this project may be started."""
    if project == INSTALLED:
        return True
    listed = _read_list().get(str(project))
    return listed is not None and listed == _owners(project)


def trusted_projects() -> list[Path]:
    """List the projects of this machine whose programs may be started, and this launch's own."""
    listed = (Path(each) for each in _read_list())
    return [INSTALLED, *(each for each in listed if each != INSTALLED and is_trusted(each))]


def trust(project: Path) -> Path:
    """List a project as trusted while its owners stay unchanged; gives the list's file.

    Projects that are gone or have changed hands leave the list. Raises EnvironmentFailure.
    """
    import json

    file = _list_file()
    try:
        make_folder(file.parent)
        with locked(file.with_suffix(".lock")):
            listed = _read_list() | {str(project): _owners(project)}
            kept = {
                each: uids for each, uids in listed.items() if uids and uids == _owners(Path(each))
            }
            write_file(file, json.dumps(kept, indent=1).encode(), mode=0o600)
    except OSError as error:
        message = f"the list of trusted projects, {file}, cannot be written: {error.strerror}"
        raise EnvironmentFailure(message, hint="XDG_CACHE_HOME names another folder") from error
    if _owners(project) is not None and not is_trusted(
        project
    ):  # as on a disk without owners and modes
        message = f"{file} is not trusted: {why_foreign(file) or 'it was changed at the same time'}"
        raise EnvironmentFailure(message, hint="XDG_CACHE_HOME names another folder")
    return file


def _list_file() -> Path:
    from jobs.host.cache import cache_root  # loads more than a project that is trusted needs

    return cache_root(os.environ) / _LIST


def _read_list() -> dict[str, Any]:
    """Projects and the uids whose they were; none where the list is missing, damaged or not ours."""
    import json

    file = _list_file()
    try:
        if why_foreign(file):
            return {}
        listed: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", listed) if isinstance(listed, dict) else {}


def _owners(project: Path) -> list[int] | None:
    try:
        return [each.stat().st_uid for each in (project, project / PROJECT_FILE)]
    except OSError:
        return None
